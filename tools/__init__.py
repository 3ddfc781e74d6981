"""The command line and what it runs beside the service: demo, benchmarks, diagnosis, tidiness checks."""

__all__: list[str] = []
