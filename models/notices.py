"""TensorFlow's start-up notices, kept off a terminal that people read.

Its libraries write notices while they are being loaded, before they look at TF_CPP_MIN_LOG_LEVEL; on some CPUs that is
so for "oneDNN custom operations are on". Whatever else is written meanwhile is passed on.
"""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_notices"]

_NOTICE = re.compile(rb"(I\d{4} |WARNING: All log messages before absl::InitializeLog\(\))[^\n]*\n?")
_STDERR = 2


@contextmanager
def without_notices() -> Iterator[None]:
    """Holds back what the process writes to stderr, and writes it afterwards without lines that are notices.

    For the import of tensorflow at a program's start: the descriptor is the whole process's, so what other threads
    write meanwhile comes late. A process without stderr stays as it is.
    """
    try:
        before = os.dup(_STDERR)
    except OSError:
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), _STDERR)
        try:
            yield
        finally:
            os.dup2(before, _STDERR)
            os.close(before)
            held.seek(0)
            for line in held:
                if not _NOTICE.fullmatch(line):
                    os.write(_STDERR, line)
