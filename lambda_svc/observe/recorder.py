"""What requests did, counted where they run: each thread counts for itself, and readers add the threads up.

So a request takes no lock and waits for nobody. Reading beside it may find one count of a request without the next, but
never loses any.
"""

from __future__ import annotations

from collections import Counter
from threading import get_ident

from lambda_svc.observe.histogram import Histogram
from lambda_svc.proto import ranking_pb2 as pb

__all__ = ["NO_VERSION", "STAGES", "Recorder", "Series"]

STAGES = ("parse", "admission", "gather", "lookup", "run", "topk", "respond")
NO_VERSION = 0  # of requests that failed before one was chosen
SERIES_MAX = 256  # scenarios times versions that a thread counts for; beyond, the oldest starts anew


class Series:
    """Counts of one scenario's requests on one version."""

    __slots__ = ("asked", "answered", "bytes_copied", "candidates", "codes", "reasons", "seconds", "stages",
                 "wasted_us")

    def __init__(self) -> None:
        self.codes: Counter[str] = Counter()  # requests by status code
        self.seconds = Histogram()
        self.stages = tuple(Histogram() for _ in STAGES)
        self.candidates = self.bytes_copied = 0
        self.asked: Counter[str] = Counter()  # feature cells and ids, by source
        self.answered: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.wasted_us: Counter[str] = Counter()  # of runs whose answer nobody got, by status code

    def merge(self, other: Series) -> None:
        """Everything that the other one counted, too. `other` may be counting."""
        self.seconds.merge(other.seconds)
        for mine, its in zip(self.stages, other.stages, strict=True):
            mine.merge(its)
        self.candidates += other.candidates
        self.bytes_copied += other.bytes_copied
        for name in ("codes", "asked", "answered", "reasons", "wasted_us"):
            getattr(self, name).update(dict(getattr(other, name)))

    @property
    def requests(self) -> int:
        """All requests, whatever became of them."""
        return sum(self.codes.values())

    @property
    def errors(self) -> int:
        """Requests that were not answered."""
        return self.requests - self.codes["OK"]


class Recorder:
    """Counts requests by scenario and version. Thread-safe."""

    def __init__(self) -> None:
        self._threads: dict[int, dict[tuple[str, int], Series]] = {}

    def answered(self, scenario: str, answer: pb.RankResponse, code: str, us: int, candidates: int) -> None:
        """One request that was scored. `code` is OK unless its caller had gone by then: the run was for nothing."""
        series = self._series(scenario, answer.plan.version)
        series.codes[code] += 1
        series.seconds.add(us)
        series.candidates += candidates
        series.bytes_copied += answer.bytes_copied
        times = answer.times
        for histogram, spent in zip(series.stages, (times.parse_us, times.admission_us, times.gather_us,
                                                    times.lookup_us, times.run_us, times.topk_us, times.respond_us)):
            histogram.add(spent)
        for one in answer.coverage:
            series.asked[one.source] += one.asked
            series.answered[one.source] += one.answered
        for reason in answer.reasons:
            series.reasons[reason.code] += reason.count
        if code != "OK":
            series.wasted_us[code] += times.run_us

    def failed(self, scenario: str, version: int, code: str, us: int, run_us: int) -> None:
        """One request that failed; `run_us` is how long the graph had run for it."""
        series = self._series(scenario, version)
        series.codes[code] += 1
        if version != NO_VERSION:  # else it was refused at once, which would make the others look faster
            series.seconds.add(us)
        if run_us:
            series.wasted_us[code] += run_us

    def totals(self) -> dict[tuple[str, int], Series]:
        """By (scenario, version), of all threads since the start."""
        totals: dict[tuple[str, int], Series] = {}
        for thread in list(self._threads.values()):
            for key, series in list(thread.items()):
                totals.setdefault(key, Series()).merge(series)
        return totals

    def _series(self, scenario: str, version: int) -> Series:
        mine = self._threads.get(get_ident())
        if mine is None:  # a thread that ended leaves its number, and so its counts, to a later one
            mine = self._threads.setdefault(get_ident(), {})
        series = mine.get((scenario, version))
        if series is None:
            if len(mine) >= SERIES_MAX:
                del mine[next(iter(mine))]
            series = mine[scenario, version] = Series()
        return series
