"""What goes wrong on a server's own threads is told on stderr, and the thread goes on."""

import sys
import traceback

from paramserver.errors import ParamServerError

__all__ = ["complain"]


def complain(error: Exception) -> None:
    """Print what happened: a line for a fault that this package names and for one of the system's files, the whole
    trace for one that nobody foresaw."""
    if not isinstance(error, (ParamServerError, OSError)):
        traceback.print_exception(error, file=sys.stderr)
    print(f"paramserver: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
