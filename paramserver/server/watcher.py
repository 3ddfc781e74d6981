"""Watches a cluster's directory, off the serving threads: new epochs, a new shard map, and leases that end."""

import contextlib
import ctypes
import os
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path

from paramserver.epoch import EPOCHS_FOLDER
from paramserver.server.complaints import complain

__all__ = ["ClusterWatcher"]

# From <sys/inotify.h>: a name appears by rename, by link or by creation, or a file was written and closed.
_IN_CREATE, _IN_CLOSE_WRITE, _IN_MOVED_TO = 0x100, 0x8, 0x80
_COMPLAINT_S = 10.0


class ClusterWatcher:
    """Calls `look` on a thread of its own whenever the cluster's directory may have changed: the kernel said so,
    `missing_fd` became readable (a lookup named an epoch that is not served), `wake` was called, or poll_ms went by,
    for file systems that tell nobody. What `look` raises is printed, the same thing at most once in a while, and tried
    again."""

    def __init__(self, cluster: Path, look: Callable[[], None], missing_fd: int, poll_ms: int) -> None:
        self._look, self._poll_ms = look, poll_ms
        self._folders = [cluster, cluster / EPOCHS_FOLDER]
        self._missing_fd = missing_fd
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._notices = _Notices()
        self._stop = threading.Event()
        self._complained_at, self._complaint = -_COMPLAINT_S, ""
        self._thread = threading.Thread(target=self._run, name="cluster-watcher", daemon=True)

    def start(self) -> None:
        """Look for the first time soon."""
        self._thread.start()

    def wake(self) -> None:
        """Look at once."""
        os.eventfd_write(self._wake_fd, 1)

    def stop(self) -> None:
        """End the thread; a look in progress is finished first."""
        self._stop.set()
        self.wake()
        self._thread.join()
        self._notices.close()
        os.close(self._wake_fd)

    def _run(self) -> None:
        waiting = select.poll()
        for descriptor in (self._missing_fd, self._wake_fd, self._notices.descriptor):
            if descriptor >= 0:
                waiting.register(descriptor, select.POLLIN)
        while not self._stop.is_set():
            # Watches come before the look: what changes after it is told.
            for folder in self._folders:
                self._notices.watch(folder)
            try:
                self._look()
            except Exception as error:
                self._complain(error)
            for descriptor, _ in waiting.poll(self._poll_ms):
                with contextlib.suppress(BlockingIOError):
                    os.read(descriptor, 65536)

    def _complain(self, error: Exception) -> None:
        now, what = time.monotonic(), f"{type(error).__name__}: {error}"
        if what != self._complaint or now - self._complained_at >= _COMPLAINT_S:
            self._complained_at, self._complaint = now, what
            complain(error)


class _Notices:
    """inotify through libc; where there is none, `descriptor` is -1 and nothing is ever told."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._watched: dict[Path, tuple[int, int]] = {}
        try:
            self.descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except AttributeError:
            self.descriptor = -1

    def watch(self, folder: Path) -> None:
        """Be told of what appears in the folder, which may not be there yet, or be another one by now."""
        if self.descriptor < 0:
            return
        try:
            stat = os.stat(folder)
        except OSError:
            self._watched.pop(folder, None)
            return
        identity = (stat.st_dev, stat.st_ino)
        if self._watched.get(folder) != identity:
            mask = _IN_CREATE | _IN_CLOSE_WRITE | _IN_MOVED_TO
            if self._libc.inotify_add_watch(self.descriptor, os.fsencode(folder), mask) >= 0:
                self._watched[folder] = identity

    def close(self) -> None:
        """Stop being told."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
