"""Histograms of durations: cheap to add to, and quantiles read back from their buckets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

__all__ = ["BOUNDS_US", "Histogram", "buckets", "quantile_us"]

#: Upper bounds of the buckets, microseconds; one more bucket holds what is beyond.
BOUNDS_US = (10, 25, 50, 100, 250, 500, 1_000, 2_000, 3_000, 5_000, 7_500, 10_000, 15_000, 20_000, 30_000, 50_000,
             75_000, 100_000, 200_000, 500_000, 1_000_000, 3_000_000, 10_000_000)


class Histogram:
    """Counts by bucket, [len(BOUNDS_US) + 1], and the sum. One thread adds; any may read."""

    __slots__ = ("counts", "sum_us")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_US) + 1)
        self.sum_us = 0

    def add(self, us: int) -> None:
        """One more duration."""
        self.counts[bisect_left(BOUNDS_US, us)] += 1
        self.sum_us += us

    def merge(self, other: Histogram) -> None:
        """Everything that the other one counted, too."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.sum_us += other.sum_us


def buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """(upper bound in seconds, how many are at most that), as Prometheus wants them."""
    total, found = 0, []
    for bound, count in zip([*(str(us / 1e6) for us in BOUNDS_US), "+Inf"], histogram.counts, strict=True):
        total += count
        found.append((bound, float(total)))
    return found


def quantile_us(counts: Sequence[int], share: float) -> float | None:
    """The duration that `share` of all are within, taken as spread evenly in their bucket, as Prometheus does; None of
    none. What lies beyond the last bound counts as that bound."""
    rank, below = share * sum(counts), 0
    if not rank:
        return None
    for index, count in enumerate(counts[:-1]):
        if count and below + count >= rank:
            low = BOUNDS_US[index - 1] if index else 0
            return low + (BOUNDS_US[index] - low) * (rank - below) / count
        below += count
    return float(BOUNDS_US[-1])
