"""What the native server answers from, kept equal to what the store holds."""

import threading
from collections.abc import Callable
from typing import Any

from paramserver.epoch import Epoch
from paramserver.store import ShardStore

__all__ = ["EpochServing"]


class EpochServing:
    """Publishes a store's epochs in the native server, and takes them from it again.

    An epoch is handed over with all its tables in one call, and only when each of them shows it already: a lookup finds
    the whole epoch or none of it; and it is taken back before the tables let it go, so that a lookup that comes too
    late is told so. is_tiered: whether lookups in a table may wait for a disk. Thread-safe."""

    def __init__(self, store: ShardStore, native: Any, is_tiered: Callable[[str], bool]) -> None:
        self._store, self._native, self._is_tiered = store, native, is_tiered
        self._lock = threading.Lock()
        self._served: dict[int, Epoch] = {}
        self._tables: dict[int, dict[str, Any]] = {}
        store.before_retiring = self._retire

    def sync(self) -> list[int]:
        """Serve exactly the epochs that the store holds; none when they are not the cluster's. Returns the numbers that
        are new, ascending."""
        with self._lock:
            held = {} if self._store.diverged else {epoch.number: epoch for epoch in self._store.epochs()}
            versions = {version: self._store.tables(version) for version in
                        sorted({epoch.package_version for epoch in held.values()})}
            new = [number for number in sorted(held) if number not in self._served]
            # A version may have been loaded again, with other tables for the same epochs.
            moved = [number for number in sorted(held) if number not in new
                     and versions[held[number].package_version] != self._tables.get(held[number].package_version)]
            for number in [*new, *moved]:
                tables = versions[held[number].package_version]
                self._native.publish(number, [(name, table.capsule, self._is_tiered(name))
                                              for name, table in tables.items()])
            for number in set(self._served) - set(held):
                self._native.retire(number)
            self._served, self._tables = held, versions
            return new

    def stop(self) -> None:
        """Let go of the store, which is not followed any more."""
        self._store.before_retiring = lambda _numbers: None

    def _retire(self, numbers: list[int]) -> None:
        # A `sync` that found them still held ends first, so that it cannot put them back.
        with self._lock:
            for number in numbers:
                self._native.retire(number)
            self._served = {number: epoch for number, epoch in self._served.items() if number not in numbers}

    def newest(self) -> Epoch | None:
        """The newest epoch served."""
        served = self._served
        return served[max(served)] if served else None

