"""How far scores are from the original's, over many requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tools.engines.scores import differences

__all__ = ["Comparison", "Deviation"]

_TOP = 10


@dataclass(frozen=True)
class Deviation:
    """Of `requests` requests.

    Attributes:
        largest: the largest difference of a score.
        scaled: the same, those of scores above 1 relative to the score: what a tolerance is about.
        where: record and head of the largest scaled difference.
        logit_p99: 99th percentile of the logits' differences, None when no head is a probability.
        mean_shift: how far the mean of the probabilities moved, relative; None likewise.
        top10: the share of a request's ten best that the original has among its ten best, or as good as the tenth;
            mean over requests of more than ten rows, the worst head; None when there are none.
    """

    requests: int
    largest: float
    scaled: float
    where: str
    logit_p99: float | None
    mean_shift: float | None
    top10: float | None


class Comparison:
    """Takes requests one by one. NaN is equal to NaN; anything else is infinitely far from it."""

    def __init__(self) -> None:
        self._got: dict[str, list[np.ndarray]] = {}
        self._want: dict[str, list[np.ndarray]] = {}
        self._kept: dict[str, list[float]] = {}
        self._worst = (0.0, 0.0, "")
        self._requests = 0

    def add(self, record: int, got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray]) -> None:
        """{head: float [n]} of one request, and the same of the original. Raises ValueError for other shapes."""
        self._requests += 1
        for head, expected in want.items():
            came, expected = np.float64(got[head]).reshape(-1), np.float64(expected).reshape(-1)
            if came.shape != expected.shape:
                raise ValueError(f"{head}: {came.size} scores came, expected {expected.size}")
            far = np.where((came == expected) | (np.isnan(came) & np.isnan(expected)), 0.0, np.abs(came - expected))
            far = np.where(np.isnan(far), np.inf, far)
            scaled = float(np.max(far / np.maximum(1.0, np.nan_to_num(np.abs(expected))), initial=0.0))
            largest, worst, where = self._worst
            where = f"record {record}, {head}" if scaled > worst else where
            self._worst = max(largest, float(np.max(far, initial=0.0))), max(worst, scaled), where
            self._got.setdefault(head, []).append(came)
            self._want.setdefault(head, []).append(expected)
            if len(expected) > _TOP:
                came, expected = (np.where(np.isnan(scores), -np.inf, scores) for scores in (came, expected))
                best, least = expected[np.argsort(-came, kind="stable")[:_TOP]], np.sort(expected)[-_TOP]
                self._kept.setdefault(head, []).append(float(np.mean(best >= least)))

    def result(self) -> Deviation:
        """Of all that was added."""
        want = {head: np.concatenate(parts) for head, parts in self._want.items()}
        probable = [h for h, v in want.items() if v.size and bool(((v >= 0) & (v <= 1)).all()) and v.mean() > 0]
        found = differences({h: np.concatenate(self._got[h]) for h in probable}, {h: want[h] for h in probable}
                            ) if probable else None
        largest, scaled, where = self._worst
        return Deviation(self._requests, largest, scaled, where, found and found.logit_p99, found and found.mean_shift,
                         min((float(np.mean(kept)) for kept in self._kept.values()), default=None))
