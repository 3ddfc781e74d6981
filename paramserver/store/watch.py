"""A watched folder: delta files that other programs write there are staged as they come."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

from paramserver.delta import Delta, read_delta
from paramserver.errors import CallerError, OperatingError, ParamServerError, StoreError

__all__ = ["DeltaWatch"]


class DeltaWatch:
    """Stages the `*.arrow` files of a folder. Writers must rename them into place; names that begin with a dot are not
    looked at. Files stay where they are: several shards may watch one folder, each taking its part, and staging is
    idempotent, so a restart reads them all again. Not thread-safe.

    stage: what a delta goes to, such as a ShardStore's `stage`. shard, shards: whose part of each file is staged."""

    def __init__(self, folder: str | Path, stage: Callable[[Delta], str], *, shard: int = 0, shards: int = 1) -> None:
        self._folder, self._stage = Path(folder), stage
        self._shard, self._shards = shard, shards
        self._done: dict[str, tuple[int, int, int]] = {}
        #: Files that can never be taken, with the reason; a file written anew is tried anew.
        self.refused: dict[str, str] = {}
        #: Files that could not be taken yet, with the reason: a gap before them, or a full disk.
        self.waiting: dict[str, str] = {}

    def poll(self) -> dict[str, str]:
        """Look once. Returns what became of each file that was not done before: "applied", "already", "held",
        "refused" or "waiting". Raises StoreError when the folder cannot be read."""
        try:
            found = {entry.name: _identity(entry) for entry in os.scandir(self._folder)
                     if entry.name.endswith(".arrow") and not entry.name.startswith(".") and entry.is_file()}
        except OSError as error:
            raise StoreError(f"{self._folder}: {error}") from error
        self._done = {name: seen for name, seen in self._done.items() if name in found}
        self.refused = {name: why for name, why in self.refused.items() if self._done.get(name) == found.get(name)}
        self.waiting = {}
        outcomes: dict[str, str] = {}
        deltas = []
        for name, seen in found.items():
            if self._done.get(name) != seen:
                self._try(name, seen, outcomes, lambda name=name: deltas.append((self._read(name), name)) or "read")
        for delta, name in sorted(deltas, key=lambda item: (item[0].table, item[0].base_version, item[0].sequence)):
            self._try(name, found[name], outcomes, lambda delta=delta: self._stage(delta))
        return outcomes

    def run(self, stop: threading.Event, interval_s: float = 1.0) -> None:
        """Poll until `stop` is set."""
        while not stop.is_set():
            self.poll()
            stop.wait(interval_s)

    def _read(self, name: str) -> Delta:
        return read_delta(self._folder / name).split(self._shards)[self._shard]

    def _try(self, name: str, seen: tuple[int, int, int], outcomes: dict[str, str], step: Callable[[], str]) -> None:
        try:
            outcomes[name] = step()
        except ParamServerError as error:
            final = isinstance(error, CallerError)
            outcomes[name] = "refused" if final else "waiting"
            (self.refused if final else self.waiting)[name] = str(error)
            if not isinstance(error, (CallerError, OperatingError)):
                raise
        if outcomes[name] not in ("read", "waiting"):
            self._done[name] = seen


def _identity(entry: os.DirEntry) -> tuple[int, int, int]:
    stat = entry.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
