"""What a shard's server does now and then, on a thread of its own: expired rows are freed, long logs become bases."""

import threading
import time
from typing import Any

from paramserver.server.complaints import complain
from paramserver.store import ShardStore

__all__ = ["Upkeep"]

# A base is written again when the log has grown by this part of its bound since, or after a long time.
_GROWTH = 0.5
_AGAIN_S = 3600.0


class Upkeep:
    """Every `interval_s`, frees the rows of `store` that have expired, and writes a new base of each version whose
    deltas hold more than log_bytes_max, so that a restart replays little. Epochs that are held keep their deltas, so a
    log may stay above its bound: then it gets no new base until it has grown by half of the bound, or for an hour.
    Lookups and deltas go on meanwhile. What fails is printed and tried again the next time."""

    def __init__(self, store: ShardStore, interval_s: float, log_bytes_max: int) -> None:
        self._store, self._interval_s, self._log_bytes_max = store, interval_s, log_bytes_max
        # By version: what its log held after its last base, and when that was.
        self._bases: dict[int, tuple[int, float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="upkeep", daemon=True)

    def start(self) -> None:
        """Begin; the first round is after an interval."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread. A base that is being written is given up, and the one before it stays."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                self._round()
            except _Stopped:
                return
            except Exception as error:
                complain(error)

    def _round(self) -> None:
        for version, tables in self._store.status()["versions"].items():
            try:
                self._keep(int(version), tables)
            except _Stopped:
                raise
            except Exception as error:
                complain(error)

    def _keep(self, version: int, status: dict[str, Any]) -> None:
        for table in self._store.tables(version).values():
            table.sweep()
        if self._is_due(version, _log_bytes(status)):
            written = self._store.checkpoint(version, progress=self._go_on)
            if written is not None:
                left = _log_bytes(self._store.status()["versions"][str(version)])
                self._bases[version] = (left, time.monotonic())

    def _is_due(self, version: int, log_bytes: int) -> bool:
        if log_bytes <= self._log_bytes_max:
            return False
        left, written_at = self._bases.get(version, (0, -_AGAIN_S))
        grown = log_bytes - left > _GROWTH * self._log_bytes_max
        return grown or time.monotonic() - written_at >= _AGAIN_S

    def _go_on(self, _done: int, _of: int) -> None:
        if self._stop.is_set():
            raise _Stopped


class _Stopped(Exception):
    """The server stops while a base is being written."""


def _log_bytes(tables: dict[str, Any]) -> int:
    return sum(table["log_bytes"] for table in tables.values())
