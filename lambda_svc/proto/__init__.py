"""Generated messages and stubs; `python -m tools.tidy.proto` writes them anew."""

__all__: list[str] = []
