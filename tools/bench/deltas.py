"""Lookup p99 while deltas of a million rows are applied and published, against quiet windows of the same run.

A table of 4 million rows of 32 f16, told to apply at most half a million rows a second (apply_rows_per_s). Lookups of
10,000 uniform ids arrive by a Poisson process at 40% of the highest closed-loop rate of the run, and are timed from
their schedule. Ids are drawn beforehand, the thread spins until a lookup is due, and the check is a few vector
operations, so that what queues is lookups, not the work or the waking of the one who asks. Each names the newest epoch,
as a request does. Windows take turns: a delta window lasts from the first
row of a delta to its publication and the end of the epoch but one before, the quiet window after it as long. Every
answer is checked: a row's numbers must be one number (else it is torn), and all rows of one lookup that deltas write
must be of one delta (else the epoch is mixed). --quick: 1 million rows, deltas of 250,000, the same 20 windows.
"""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paramserver import Table
from tools.bench.figures import Figure, figure

__all__ = ["run"]

DIM, BATCH = 32, 10_000
WINDOWS = 20
BATCHES = 256  # drawn beforehand and asked in turn: 2.5 million ids, whose rows no cache holds
LOAD = 0.4
APPLY_ROWS_PER_S = 500_000
RATIO_MAX = 1.5
_ODD = np.int64(0x1E3779B97F4A7C15)
_HALVES = np.uint64(0x0001000100010001)  # times a half: four of it in one word
_PRIME, _TAGS = 509, 4  # rows hold number % 509 + 509 * (sequence % 4): exact in f16


@dataclass
class _Window:
    """Latencies in seconds, from schedule to answer, and what was wrong with answers."""

    latencies: list[float]
    torn: int = 0
    mixed: int = 0

    @property
    def p99(self) -> float:
        """The 99th percentile."""
        return float(np.percentile(self.latencies, 99))


def run(quick: bool) -> list[Figure]:
    """Measures 20 pairs of windows; their ratios of p99, torn rows and rates."""
    rows, changed = (1_000_000, 250_000) if quick else (4_000_000, 1_000_000)
    bench = _Bench(rows, changed)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    gc.disable()
    try:
        rate = bench.closed_loop_rate(2.0 if quick else 5.0)
        pairs, seconds = [], []
        for _ in range(WINDOWS):
            busy, took = bench.busy_window(LOAD * rate)
            pairs.append((busy, bench.window(LOAD * rate, took)))
            seconds.append(took)
    finally:
        gc.enable()
        sys.setswitchinterval(interval)
    return _figures(pairs, seconds, rate, changed)


def _figures(pairs: list[tuple[_Window, _Window]], seconds: list[float], rate: float, changed: int) -> list[Figure]:
    at = f"rows={changed // 1000}k"
    busy, quiet = [one.p99 for one, _ in pairs], [one.p99 for _, one in pairs]
    ratios = sorted(a / b for a, b in zip(busy, quiet, strict=True))
    # The median of n samples lies between these two of them in 95 of 100 runs (binomial; 6th and 15th of 20).
    spread = 0.98 * len(ratios) ** 0.5
    low, high = ratios[max(0, round(len(ratios) / 2 - spread) - 1)], ratios[min(len(ratios) - 1,
                                                                              round(len(ratios) / 2 + spread))]
    both = [window for pair in pairs for window in pair]
    return [
        figure(f"deltas.p99_ratio/{at}", ratios, "x", better="lower", of=f"deltas.p99_ms/quiet/{at}", target=RATIO_MAX),
        figure(f"deltas.p99_ratio/{at}/interval_95", [low, high], "x", better="lower"),
        figure(f"deltas.p99_ms/busy/{at}", busy, "ms", better="lower", scale=1e3),
        figure(f"deltas.p99_ms/quiet/{at}", quiet, "ms", better="lower", scale=1e3),
        figure("deltas.torn_rows", [sum(window.torn for window in both)], "rows", better="lower", target=0),
        figure("deltas.mixed_epochs", [sum(window.mixed for window in both)], "calls", better="lower", target=0),
        figure(f"deltas.rows_per_s/{at}", [changed / took for took in seconds], "rows/s"),
        figure("deltas.closed_loop/lookups_per_s", [rate], "1/s"),
    ]


class _Bench:
    """A table, the ids that deltas write, and one thread's worth of lookups."""

    def __init__(self, rows: int, changed: int) -> None:
        self.rows, self.changed = rows, changed
        self.table = Table("bench_deltas", DIM, dtype="f16", rows_hint=rows, apply_rows_per_s=APPLY_ROWS_PER_S)
        self.rng = np.random.default_rng(5)
        self.out = np.zeros((BATCH, DIM), np.float16)
        self.batches = itertools.cycle([self._batch() for _ in range(BATCHES)])
        for first in range(0, rows, 1 << 18):
            numbers = np.arange(first, min(rows, first + (1 << 18)))
            self.table.upsert(numbers * _ODD, _values(numbers, 0))
        self.table.publish(1, 0)
        self.sequence, self.epoch = 0, 1

    def lookup(self, window: _Window, scheduled: float) -> None:
        """One lookup, timed from `scheduled`, and its check."""
        ids, written = next(self.batches)
        while time.perf_counter() < scheduled:
            pass
        self.table.lookup(ids, self.out, epoch=self.epoch)
        window.latencies.append(time.perf_counter() - scheduled)
        words, halves = self.out.view(np.uint64), self.out.view(np.uint16)
        whole = halves[:, 0].astype(np.uint64) * _HALVES
        window.torn += int((words != whole[:, None]).any(axis=1).sum())
        tags = self.out[written, 0].astype(np.int64) // _PRIME
        window.mixed += int(tags.size > 0 and tags.min() != tags.max())

    def _batch(self) -> tuple[np.ndarray, np.ndarray]:
        """Ids to ask for, and the places of those that deltas write."""
        numbers = self.rng.integers(0, self.rows, BATCH)
        return numbers * _ODD, np.flatnonzero(numbers < self.changed)

    def closed_loop_rate(self, seconds: float) -> float:
        """Lookups per second when each starts as the one before has been checked."""
        window = _Window([])
        start = time.perf_counter()
        while (now := time.perf_counter()) < start + seconds:
            self.lookup(window, now)
        return len(window.latencies) / (now - start)

    def window(self, rate: float, seconds: float = float("inf"),
               over: Callable[[], bool] = lambda: False) -> _Window:
        """Poisson arrivals at `rate` for some seconds, or until `over()`."""
        window = _Window([])
        scheduled = start = time.perf_counter()
        while not over() and scheduled < start + seconds:
            scheduled += self.rng.exponential(1 / rate)
            self.lookup(window, scheduled)
        return window

    def busy_window(self, rate: float) -> tuple[_Window, float]:
        """A window during which a delta is applied and published, and the seconds that it took."""
        sequence = self.sequence + 1
        numbers = np.arange(self.changed)
        ids, values = numbers * _ODD, _values(numbers, sequence)
        done, took = threading.Event(), [0.0]

        def write() -> None:
            start = time.perf_counter()
            self.table.apply(sequence, ids, values)
            self.table.publish(sequence + 1, sequence)
            self.epoch = sequence + 1
            if sequence > 1:
                self.table.retire(sequence - 1)
            took[0] = time.perf_counter() - start
            done.set()

        writer = threading.Thread(target=write)
        writer.start()
        window = self.window(rate, over=done.is_set)
        writer.join()
        self.sequence = sequence
        return window, took[0]


def _values(numbers: np.ndarray, sequence: int) -> np.ndarray:
    tagged = numbers % _PRIME + _PRIME * (sequence % _TAGS)
    return np.repeat(tagged.astype(np.float32)[:, None], DIM, axis=1)
