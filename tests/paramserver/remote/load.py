"""Lookups under load that know what every row must be."""

import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np
from paramserver import RowStatus

from tests.paramserver.server.servers import rows_of


@dataclass
class Seen:
    """What the lookups of a load gave."""

    lookups: int = 0
    wrong: int = 0  #: lookups with a row that is not its id's
    failed: dict[int, int] = field(default_factory=dict)  #: ids by status, of those not answered from data
    late: int = 0  #: lookups that took longer than their deadline and some slack
    slowest_s: float = 0.0


class Load:
    """Threads that look up known ids until it ends. A row answered from data must be its own bytes; whatever else an id
    gets is counted in `failed`."""

    def __init__(self, table: Any, ids: np.ndarray, dim: int, *, threads: int = 2, batch: int = 300,
                 deadline_s: float = 1.0, slack_s: float = 0.5) -> None:
        self.seen = Seen()
        self._table, self._ids, self._dim = table, ids, dim
        self._batch, self._deadline_s, self._slack_s = batch, deadline_s, slack_s
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(seed,)) for seed in range(threads)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def pass_some(self, lookups: int = 50, seconds: float = 60.0) -> None:
        """Wait until so many more lookups are done."""
        goal, ended = self.seen.lookups + lookups, time.monotonic() + seconds
        while self.seen.lookups < goal and time.monotonic() < ended:
            self._ended.wait(0.01)

    def take(self) -> Seen:
        """What was seen since the last take."""
        with self._lock:
            seen, self.seen = self.seen, Seen()
        return seen

    def _run(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        while not self._ended.is_set():
            ids = random.choice(self._ids, self._batch)
            status = np.full(ids.size, 99, np.uint8)
            began = time.monotonic()
            rows = self._table.lookup(ids, status=status, deadline_s=self._deadline_s)
            self._note(ids, rows, status, time.monotonic() - began)

    def _note(self, ids: np.ndarray, rows: np.ndarray, status: np.ndarray, took_s: float) -> None:
        data = status <= RowStatus.COLD
        wrong = bool((rows[data] != rows_of(ids[data], self._dim)).any())
        with self._lock:
            seen = self.seen
            seen.lookups += 1
            seen.wrong += wrong
            seen.late += took_s > self._deadline_s + self._slack_s
            seen.slowest_s = max(seen.slowest_s, took_s)
            for value, count in zip(*np.unique(status[~data], return_counts=True), strict=True):
                seen.failed[int(value)] = seen.failed.get(int(value), 0) + int(count)
