"""How far scores are from those of the framework: in probability, in logit, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["Differences", "differences"]

_TOP = 10


@dataclass(frozen=True)
class Differences:
    """The worst head's: largest difference of a probability; 99th percentile of the logits'; how far the mean of the
    probabilities moved, relative; the share of the ten best that are still among the ten best."""

    probability: float
    logit_p99: float
    mean_shift: float
    top10: float


def differences(got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray]) -> Differences:
    """Of {head: float32 [n]} against the same of the plain graph in float32."""
    each = [_one(np.float64(got[head]), np.float64(scores)) for head, scores in want.items()]
    worst = [max(one[i] for one in each) for i in range(3)]
    return Differences(*worst, min(one[3] for one in each))


def _one(got: np.ndarray, want: np.ndarray) -> tuple[float, float, float, float]:
    logits = np.abs(_logit(got) - _logit(want))
    top = min(_TOP, len(want))
    kept = len(set(np.argsort(-got)[:top]) & set(np.argsort(-want)[:top])) / top
    return (float(np.max(np.abs(got - want))), float(np.quantile(logits, 0.99)),
            float(abs(got.mean() / want.mean() - 1)), kept)


def _logit(p: np.ndarray) -> np.ndarray:
    p = np.clip(p, 1e-7, 1 - 1e-7)
    return np.log(p) - np.log1p(-p)
