"""What is counted of one version's requests: a few sums and histograms, whatever their number."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

__all__ = ["Arm", "HeadSums", "quantile_ms"]

_BUCKETS, _PER_DOUBLING = 256, 8
_SCORE_BINS = np.linspace(0.0, 1.0, 21)[1:-1]


@dataclass
class HeadSums:
    """Of one head: the means of requests summed, and scores counted by twentieths of [0, 1]."""

    total: float = 0.0
    squares: float = 0.0
    bins: np.ndarray = field(default_factory=lambda: np.zeros(20))


class Arm:
    """One version on one side of a comparison. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests = self.errors = 0
        self.latency = np.zeros(_BUCKETS, np.int64)
        self.heads: dict[str, HeadSums] = {}

    @property
    def answered(self) -> int:
        """Requests that were scored."""
        return self.requests - self.errors

    def failed(self) -> None:
        """Counts a request that ended in an error of ours."""
        with self._lock:
            self.requests += 1
            self.errors += 1

    def scored(self, ms: float, heads: Mapping[str, np.ndarray]) -> None:
        """Counts a request: its milliseconds, and its scores by head, float32 [n]."""
        bucket = int(np.clip(_PER_DOUBLING * np.log2(max(ms, 1e-6)) + _BUCKETS // 2, 0, _BUCKETS - 1))
        counted = {head: (float(np.mean(s, dtype=np.float64)), np.bincount(np.digitize(s, _SCORE_BINS), minlength=20))
                   for head, s in heads.items() if len(s)}
        with self._lock:
            self.requests += 1
            self.latency[bucket] += 1
            for head, (mean, bins) in counted.items():
                sums = self.heads.setdefault(head, HeadSums())
                sums.total += mean
                sums.squares += mean * mean
                sums.bins += bins


def quantile_ms(latency: np.ndarray, q: float) -> float:
    """A quantile of counted milliseconds, within a twelfth."""
    below = np.cumsum(latency)
    if not below[-1]:
        return 0.0
    bucket = int(np.searchsorted(below, q * below[-1]))
    return float(2.0 ** ((bucket + 0.5 - _BUCKETS // 2) / _PER_DOUBLING))
