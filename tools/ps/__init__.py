"""`lambda-svc ps`: what an operator does with the parameter server, one module a task, on its public names only."""

__all__: list[str] = []
