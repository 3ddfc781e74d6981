"""The last minute, and how long threads wait for the interpreter lock: what one small thread finds out now and then."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from dataclasses import dataclass

from lambda_svc.observe.histogram import Histogram, quantile_us
from lambda_svc.observe.recorder import STAGES, Recorder, Series

__all__ = ["Recent", "Window"]

WINDOW_S = 60.0
TICK_S = 5.0  # between looks at the counters
SAMPLE_S = 0.05  # of sleep between two samples of the lock


@dataclass(frozen=True)
class Recent:
    """One scenario in the last `seconds`; quantiles None without requests. Stages by name: (p50, p99, mean)."""

    seconds: float
    per_second: float
    errors: dict[str, int]
    p50_ms: float | None
    p99_ms: float | None
    stages_us: dict[str, tuple[float, float, float]]


class Window:
    """Keeps what the recorder counted over the last minute. `wait` is how late short sleeps returned."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._looks: deque[tuple[float, dict[str, Series], list[int]]] = deque(maxlen=int(WINDOW_S / TICK_S) + 1)
        self.wait = Histogram()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="observe", daemon=True)
        self.look()

    def start(self) -> None:
        """Looks on, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> None:
        """Keeps what is counted now."""
        self._looks.append((time.monotonic(), by_scenario(self._recorder), list(self.wait.counts)))

    def recent(self) -> dict[str, Recent]:
        """By scenario that was ever asked for."""
        since_s, before, _ = self._looks[0]
        seconds = time.monotonic() - since_s
        return {name: _recent(now, before.get(name, Series()), seconds)
                for name, now in by_scenario(self._recorder).items()}

    def recent_waits(self) -> list[int]:
        """Of the interpreter lock, by bucket."""
        return [now - before for now, before in zip(self.wait.counts, self._looks[0][2], strict=True)]

    def _watch(self) -> None:
        tick_s = time.monotonic() + TICK_S
        while True:
            asleep_ns = time.perf_counter_ns()
            if self._stop.wait(SAMPLE_S):
                return
            late_ns = time.perf_counter_ns() - asleep_ns - int(SAMPLE_S * 1e9)
            self.wait.add(max(0, late_ns // 1000))
            if time.monotonic() >= tick_s:
                self.look()
                tick_s = time.monotonic() + TICK_S


def by_scenario(recorder: Recorder) -> dict[str, Series]:
    """What was counted since the start, over all versions."""
    found: dict[str, Series] = {}
    for (scenario, _), series in recorder.totals().items():
        found.setdefault(scenario, Series()).merge(series)
    return found


def _recent(now: Series, before: Series, seconds: float) -> Recent:
    counts = _less(now.seconds, before.seconds)
    requests = max(0, now.requests - before.requests)
    p50, p99 = quantile_us(counts, 0.5), quantile_us(counts, 0.99)
    stages = {}
    for name, mine, its in zip(STAGES, now.stages, before.stages, strict=True):
        spent = _less(mine, its)
        if sum(spent):
            mean = (mine.sum_us - its.sum_us) / sum(spent)
            stages[name] = (quantile_us(spent, 0.5) or 0.0, quantile_us(spent, 0.99) or 0.0, mean)
    errors = Counter(now.codes) - Counter(before.codes)
    del errors["OK"]
    return Recent(seconds, requests / seconds if seconds > 0 else 0.0, dict(errors),
                  None if p50 is None else p50 / 1e3, None if p99 is None else p99 / 1e3, stages)


def _less(now: Histogram, before: Histogram) -> list[int]:
    """What came since; a series that started anew counts from 0."""
    return [max(0, mine - its) for mine, its in zip(now.counts, before.counts, strict=True)]
