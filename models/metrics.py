"""How good a ranking is: AUC, NDCG@k per user, and a bootstrap interval over users. numpy only."""

from collections.abc import Callable

import numpy as np

__all__ = ["auc", "bootstrap_interval", "ndcg"]


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve: the chance that a positive outscores a negative, a tie counting one half.

    labels [n] of 0/1, scores [n]. NaN when one class is absent, or when a score is NaN, which ranks nowhere. By ranks
    (Mann-Whitney U), ties at their mean rank.
    """
    labels, scores = np.asarray(labels).astype(bool), np.asarray(scores, np.float64)
    positives, negatives = int(labels.sum()), int((~labels).sum())
    if not positives or not negatives or np.isnan(scores).any():
        return float("nan")
    _, group, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(sizes) - (sizes - 1) / 2
    rank_sum = mean_rank[group][labels].sum()
    return float((rank_sum - positives * (positives + 1) / 2) / (positives * negatives))


def ndcg(labels: np.ndarray, scores: np.ndarray, groups: np.ndarray, k: int = 10) -> float:
    """Mean NDCG@k over the groups (users) that have both a positive and a negative; gain is the label.

    labels [n] >= 0, scores [n] (NaN ranks last), groups [n]. Ties keep the order in which rows came. NaN when no group
    qualifies.
    """
    labels, scores, groups = np.asarray(labels), np.asarray(scores, np.float64), np.asarray(groups)
    discounts = 1 / np.log2(np.arange(2, k + 2))
    found = []
    for rows in _rows_by_group(groups):
        gains = labels[rows].astype(np.float64)
        if gains.max() == gains.min():
            continue
        ranked = gains[np.argsort(-scores[rows], kind="stable")][:k]
        best = np.sort(gains)[::-1][:k]
        found.append((ranked * discounts[:len(ranked)]).sum() / (best * discounts[:len(best)]).sum())
    return float(np.mean(found)) if found else float("nan")


def bootstrap_interval(
    metric: Callable[[np.ndarray], float], groups: np.ndarray, rounds: int = 200, seed: int = 0, level: float = 0.95,
) -> tuple[float, float]:
    """Interval of `metric(row_indices)` when whole groups (users) are drawn with replacement: their rows depend on one
    another, so drawing rows would claim too much certainty. groups [n]."""
    rng = np.random.default_rng(seed)
    members = _rows_by_group(np.asarray(groups))
    values = []
    for _ in range(rounds):
        drawn = rng.integers(0, len(members), len(members))
        values.append(metric(np.concatenate([members[i] for i in drawn])))
    low, high = np.nanquantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _rows_by_group(groups: np.ndarray) -> list[np.ndarray]:
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order])) + 1
    return np.split(order, starts)
