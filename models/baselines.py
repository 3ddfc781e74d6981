"""What a model must beat, on the same split: three baselines in numpy.

* count: an item's number of training ratings.
* item_mean: its share of liked training ratings, smoothed towards the overall share.
* logistic: logistic regression on the item's smoothed mean and the user's smoothed mean of strictly earlier ratings.
"""

import numpy as np

from .metrics import auc
from .moments import Moments, Split

__all__ = ["baseline_aucs", "logistic_regression"]

SMOOTHING = 10.0
_NEWTON_STEPS = 25


def baseline_aucs(
    item_ids: np.ndarray, liked: np.ndarray, past_means: np.ndarray, split: Split
) -> dict[str, float]:
    """Test AUC of each baseline. item_ids int64 [n], liked bool [n], past_means float [n] (see `past_means`)."""
    train, test = split.train, split.test
    _, item_rows = np.unique(item_ids, return_inverse=True)
    items = item_rows.max() + 1
    counts = np.bincount(item_rows[train], minlength=items).astype(np.float64)
    likes = np.bincount(item_rows[train], weights=liked[train], minlength=items)
    overall = liked[train].mean()
    means = (likes + SMOOTHING * overall) / (counts + SMOOTHING)
    # A training row must not see its own label in its item's mean.
    own = liked[train].astype(np.float64)
    held_out = (likes[item_rows[train]] - own + SMOOTHING * overall) / (counts[item_rows[train]] - 1 + SMOOTHING)
    weights = logistic_regression(np.column_stack([held_out, past_means[train]]), own)
    logits = np.column_stack([np.ones(len(test)), means[item_rows[test]], past_means[test]]) @ weights
    scores = {"count": counts[item_rows[test]], "item_mean": means[item_rows[test]], "logistic": logits}
    return {name: auc(liked[test], score) for name, score in scores.items()}


def past_means(moments: Moments, threshold: float, prior: float) -> np.ndarray:
    """Per rating row [n]: the user's share of strictly earlier ratings >= threshold, smoothed towards `prior`."""
    hits = np.concatenate([[0.0], np.cumsum(moments.history_ratings >= threshold)])
    sums = hits[moments.offsets[1:]] - hits[moments.offsets[:-1]]
    share = (sums + SMOOTHING * prior) / (np.diff(moments.offsets) + SMOOTHING)
    return share[moments.of_row]


def logistic_regression(features: np.ndarray, labels: np.ndarray, ridge: float = 1e-3) -> np.ndarray:
    """Weights [1 + f], the constant first, by Newton's method. features [n, f], labels [n] of 0/1."""
    x = np.column_stack([np.ones(len(features)), features])
    weights = np.zeros(x.shape[1])
    for _ in range(_NEWTON_STEPS):
        p = 1 / (1 + np.exp(-(x @ weights)))
        hessian = (x * (p * (1 - p))[:, None]).T @ x + ridge * np.eye(x.shape[1])
        step = np.linalg.solve(hessian, x.T @ (labels - p) - ridge * weights)
        weights += step
        if np.abs(step).max() < 1e-9:
            break
    return weights
