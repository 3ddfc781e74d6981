"""What a shard's server does now and then, on a thread of its own: expired rows are freed, long logs become bases."""

import sys
import threading
from typing import Any

from paramserver.errors import ParamServerError
from paramserver.store import ShardStore

__all__ = ["Upkeep"]


class Upkeep:
    """Every `interval_s`, frees the rows of `store` that have expired, and writes a new base of each version whose
    deltas hold more than log_bytes_max, so that a restart replays little. Lookups and deltas go on meanwhile. What
    fails is printed and tried again the next time."""

    def __init__(self, store: ShardStore, interval_s: float, log_bytes_max: int) -> None:
        self._store, self._interval_s, self._log_bytes_max = store, interval_s, log_bytes_max
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="upkeep", daemon=True)

    def start(self) -> None:
        """Begin; the first round is after an interval."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a round in progress is finished first."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            for version, tables in self._store.status()["versions"].items():
                try:
                    self._keep(int(version), tables)
                except ParamServerError as error:
                    print(f"paramserver: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    def _keep(self, version: int, status: dict[str, Any]) -> None:
        for table in self._store.tables(version).values():
            table.sweep()
        if sum(table["log_bytes"] for table in status.values()) > self._log_bytes_max:
            self._store.checkpoint(version)
