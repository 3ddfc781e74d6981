"""What the native server answers from, kept equal to what the store holds."""

import threading
from typing import Any

from paramserver.epoch import Epoch
from paramserver.store import ShardStore

__all__ = ["EpochServing"]


class EpochServing:
    """Publishes a store's epochs in the native server, and takes them from it again.

    An epoch is handed over with all its tables in one call, and only when each of them shows it already: a lookup finds
    the whole epoch or none of it. Thread-safe."""

    def __init__(self, store: ShardStore, native: Any) -> None:
        self._store, self._native = store, native
        self._lock = threading.Lock()
        self._served: dict[int, Epoch] = {}

    def sync(self) -> list[int]:
        """Serve exactly the epochs that the store holds. Returns the numbers that are new, ascending."""
        with self._lock:
            held = {epoch.number: epoch for epoch in self._store.epochs()}
            new = [number for number in sorted(held) if number not in self._served]
            for number in new:
                tables = self._store.tables(held[number].package_version)
                self._native.publish(number, [(name, table.capsule, is_tiered(table))
                                              for name, table in tables.items()])
            for number in set(self._served) - set(held):
                self._native.retire(number)
            self._served = held
            return new

    def newest(self) -> Epoch | None:
        """The newest epoch served."""
        served = self._served
        return served[max(served)] if served else None


def is_tiered(table: Any) -> bool:
    """Whether a lookup in the table may wait for a disk."""
    return getattr(table, "tier", None) is not None
