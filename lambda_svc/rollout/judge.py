"""The judge: whether a version on trial differs from stable by more than it may, and more than chance explains."""

from __future__ import annotations

import math

import numpy as np

from lambda_svc.rollout.arm import Arm, quantile_ms
from lambda_svc.rollout.document import Limits

__all__ = ["verdict"]

Z_MIN = 4.0
"""Standard errors that a difference must have: one rollout in tens of thousands ends by chance."""
_LATENCY_REQUESTS_MIN = 400
"""A 95th percentile of fewer requests rests on a handful."""


def verdict(stable: Arm, trial: Arm, limits: Limits) -> str | None:
    """Why the version on trial must go, in words with both figures; None while there is no reason to."""
    if min(stable.requests, trial.requests) < limits.requests_min:
        return None
    return _errors(stable, trial, limits) or _latency(stable, trial, limits) or _scores(stable, trial, limits)


def _errors(stable: Arm, trial: Arm, limits: Limits) -> str | None:
    a, b = stable.errors / stable.requests, trial.errors / trial.requests
    pooled = (stable.errors + trial.errors) / (stable.requests + trial.requests)
    spread = math.sqrt(pooled * (1 - pooled) * (1 / stable.requests + 1 / trial.requests))
    if b - a <= limits.error_rate or b - a <= Z_MIN * spread:
        return None
    return f"error rate {b:.2%} against stable's {a:.2%}; {limits.error_rate:.2%} more is allowed"


def _latency(stable: Arm, trial: Arm, limits: Limits) -> str | None:
    if min(stable.answered, trial.answered) < _LATENCY_REQUESTS_MIN:
        return None
    a, b = (quantile_ms(arm.latency, 0.95) for arm in (stable, trial))
    # The 95th percentile's neighbours, two standard errors of a rank apart: is even the trial's lower one too slow?
    rank = 0.95 - Z_MIN * math.sqrt(0.95 * 0.05 / trial.answered)
    if b <= limits.latency_ratio * a or quantile_ms(trial.latency, rank) <= limits.latency_ratio * a:
        return None
    return f"p95 of {b:.2f} ms against stable's {a:.2f} ms; {limits.latency_ratio:g} times is allowed"


def _scores(stable: Arm, trial: Arm, limits: Limits) -> str | None:
    for head in sorted(set(stable.heads) & set(trial.heads)):
        a, b = stable.heads[head], trial.heads[head]
        mean_a, mean_b = a.total / max(1, stable.answered), b.total / max(1, trial.answered)
        if not math.isfinite(mean_b):
            return f"head {head!r}: scores that are not a number"
        shift = mean_b / mean_a - 1 if mean_a else math.inf
        spread = math.sqrt(_variance(a.total, a.squares, stable.answered) / max(1, stable.answered) +
                           _variance(b.total, b.squares, trial.answered) / max(1, trial.answered))
        if abs(shift) > limits.calibration and abs(mean_b - mean_a) > Z_MIN * spread:
            return (f"head {head!r}: mean predicted {mean_b:.4g} against stable's {mean_a:.4g} ({shift:+.1%}); "
                    f"{limits.calibration:.1%} is allowed")
        index = _stability(a.bins, b.bins)
        if index > limits.drift:
            return f"head {head!r}: its scores have moved, stability index {index:.2f}; {limits.drift:g} is allowed"
    return None


def _variance(total: float, squares: float, n: int) -> float:
    return max(0.0, squares / max(1, n) - (total / max(1, n)) ** 2)


def _stability(a: np.ndarray, b: np.ndarray) -> float:
    """The population stability index of two histograms; a bin that is empty counts half a score."""
    p, q = (np.maximum(bins, 0.5) / np.maximum(bins, 0.5).sum() for bins in (a, b))
    return float(np.sum((q - p) * np.log(q / p)))
