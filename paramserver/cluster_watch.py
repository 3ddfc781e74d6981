"""Watches a cluster's directory for a client: its shard map and its epochs, off every request's path."""

import atexit
import os
import threading
import time
from pathlib import Path
from typing import Any

from paramserver.epoch import EPOCHS_FOLDER, epoch_numbers, read_epoch
from paramserver.errors import ParamServerError, ShardMapError
from paramserver.shard_map import MAP_FILE, ShardMap

__all__ = ["ClusterWatch"]

_SETTLED_NS = 1_000_000_000


class ClusterWatch:
    """Hands the native cluster `core` every new map and epoch of `directory`, looking every poll_ms and when a shard
    doubts the map. A file that cannot be read changes nothing: the last good one stays, and `problem` says why. Closes
    the core when it ends: by end(), by let_go() once nothing native reads of the core, or with the interpreter.
    Raises ShardMapError when there is no good map to begin with."""

    def __init__(self, core: Any, directory: Path, poll_ms: int) -> None:
        self._core = core
        self._directory = directory
        self._poll_ms = poll_ms
        self._lock = threading.Lock()
        self._map_seen: tuple[int, ...] | None = None
        self._epochs_seen: tuple[int, ...] | None = None
        self._problems: dict[str, str] = {}
        self._stopping = threading.Event()
        self._unowned = False
        self.map = self._read_map()
        self.refresh()
        self._thread = threading.Thread(target=self._run, name="paramserver-cluster-watch", daemon=True)
        self._thread.start()
        atexit.register(self.end)  # threads must not outlive the interpreter

    @property
    def problem(self) -> str | None:
        """Why the newest files are not in use; None when they are."""
        return "; ".join(self._problems.values()) or None

    def refresh(self, doubt: bool = False) -> None:
        """Look now. doubt: read the map even if the file looks the same."""
        with self._lock:
            self._tried("map", self._look_at_map, doubt)
            self._tried("epochs", self._look_at_epochs)

    @property
    def ended(self) -> bool:
        """Whether the core is closed."""
        return self._stopping.is_set()

    def end(self) -> None:
        """Close the core and end the thread. Again: nothing."""
        self._stopping.set()
        atexit.unregister(self.end)
        self._core.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def let_go(self) -> None:
        """Nobody in Python holds the cluster any more: end when no table is read natively either, within poll_ms."""
        self._unowned = True
        if not self._core.in_use():
            self.end()

    def _run(self) -> None:
        while not self._stopping.is_set():
            doubt = self._core.wait_for_doubt(self._poll_ms)
            if self._unowned and not self._core.in_use():
                self.end()
            if not self._stopping.is_set():
                self.refresh(doubt)

    def _tried(self, what: str, look: Any, *arguments: Any) -> None:
        try:
            look(*arguments)
            self._problems.pop(what, None)
        except (ParamServerError, OSError) as error:
            self._problems[what] = str(error)

    def _read_map(self) -> ShardMap:
        path = self._directory / MAP_FILE
        seen = _stamp(path)
        found = ShardMap.read(path)
        self._core.set_map(found.version, [list(replicas) for replicas in found.shards])
        self._map_seen = seen
        return found

    def _look_at_map(self, doubt: bool) -> None:
        path = self._directory / MAP_FILE
        seen = _stamp(path)
        if seen == self._map_seen and "map" not in self._problems and not doubt:
            return
        found = ShardMap.read(path)
        if found.version == self.map.version and found != self.map:
            raise ShardMapError(f"{path}: changed, but its version is still {found.version}: raise the version with "
                                "every edit")
        if found.version != self.map.version:
            self._core.set_map(found.version, [list(replicas) for replicas in found.shards])
            self.map = found
        self._map_seen = seen

    def _look_at_epochs(self) -> None:
        seen = _stamp(self._directory / EPOCHS_FOLDER)
        if seen == self._epochs_seen and "epochs" not in self._problems:
            return
        numbers = epoch_numbers(self._directory)
        newest = self._core.newest_epoch()
        if numbers and numbers[-1] > newest:
            self._core.set_newest_epoch(read_epoch(self._directory, numbers[-1]).number)
        # Another file may appear within the same tick of the folder's clock, so a fresh stamp does not count.
        settled = bool(seen) and time.time_ns() - seen[2] > _SETTLED_NS
        self._epochs_seen = seen if settled else None


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return ()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_nlink
