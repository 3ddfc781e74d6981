"""Baselines on data where the answer is known."""

import numpy as np
import pytest

from models.baselines import baseline_aucs, logistic_regression, past_means
from models.moments import Split, moments


def test_logistic_regression_finds_the_weights():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 2))
    p = 1 / (1 + np.exp(-(0.5 + 1.5 * x[:, 0] - 2 * x[:, 1])))
    weights = logistic_regression(x, rng.random(20_000) < p)
    assert weights == pytest.approx([0.5, 1.5, -2], abs=0.1)


def test_past_means_are_smoothed_and_strictly_earlier():
    users = np.zeros(3, np.int64)
    grouped = moments(users, np.array([1, 2, 3]), np.array([5, 1, 4], np.float32), np.array([10, 10, 20]))
    assert past_means(grouped, 4.0, 0.5) == pytest.approx([0.5, 0.5, (1 + 5) / 12])


def test_item_mean_wins_where_items_differ():
    rng = np.random.default_rng(1)
    items = rng.integers(0, 30, 4_000)
    liked = rng.random(4_000) < np.linspace(0.05, 0.95, 30)[items]
    split = Split(np.arange(3_000), np.arange(3_000, 4_000), 0)
    aucs = baseline_aucs(items, liked, rng.random(4_000), split)
    assert aucs["item_mean"] > 0.75 and aucs["logistic"] > 0.75 and abs(aucs["count"] - 0.5) < 0.1
