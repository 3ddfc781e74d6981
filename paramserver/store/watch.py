"""A watched folder: delta files that other programs write there are staged as they come."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

from paramserver.delta import Delta, read_delta, read_place
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
        # Of files read once: what they were then, and where their deltas belong.
        self._places: dict[str, tuple[tuple[int, int, int], tuple[str, int, int]]] = {}
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
        self._places = {name: known for name, known in self._places.items() if known[0] == found.get(name)}
        for name, seen in found.items():
            if self._done.get(name) != seen and name not in self._places:
                self._try(name, seen, outcomes, lambda name=name, seen=seen: self._place(name, seen))
        waiting = [(place, name) for name, (seen, place) in self._places.items() if self._done.get(name) != seen]
        # One file's rows at a time are in memory, and none of those behind a file that must wait.
        first: dict[tuple[str, int], str] = {}
        for (table, version, _), name in sorted(waiting):
            before = first.get((table, version))
            if before is None:
                self._try(name, found[name], outcomes, lambda name=name: self._stage(self._read(name)))
            else:
                outcomes[name], self.waiting[name] = "waiting", f"{before} comes first, which waits"
            if outcomes[name] == "waiting":
                first.setdefault((table, version), name)
        return outcomes

    def run(self, stop: threading.Event, interval_s: float = 1.0) -> None:
        """Poll until `stop` is set."""
        while not stop.is_set():
            self.poll()
            stop.wait(interval_s)

    def _place(self, name: str, seen: tuple[int, int, int]) -> str:
        self._places[name] = seen, read_place(self._folder / name)
        return "read"

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
