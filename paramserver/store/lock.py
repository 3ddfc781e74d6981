"""The lock that keeps a second process from writing to a shard's directory."""

import fcntl
import os
from pathlib import Path

from paramserver import durable
from paramserver.errors import StoreLocked

__all__ = ["DirectoryLock"]


class DirectoryLock:
    """An exclusive flock on a file, held until `release` or the end of the process, however it ends.

    Raises StoreLocked, naming the directory and who holds it, when another holds it already: at once, without waiting.
    """

    def __init__(self, path: Path) -> None:
        with durable.disk_errors(f"{path.parent}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            # Opened again by a second store of this very process, it is a lock of its own all the same.
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._descriptor, 100, 0).decode("ascii", "replace").strip() or "another process"
            os.close(self._descriptor)
            raise StoreLocked(f"{path.parent} is open for writing by {holder} already: one process writes to a shard's "
                              "directory; stop that one, or ask it") from error
        # Only a hint for people: on a full disk the lock holds all the same.
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"process {os.getpid()}\n".encode(), 0)
        except OSError:
            pass

    def release(self) -> None:
        """Let others have it. A second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
