"""Metrics against the plain definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.metrics import auc, bootstrap_interval, ndcg


def slow_auc(labels, scores):
    wins = [(p > n) + 0.5 * (p == n) for p in scores[labels] for n in scores[~labels]]
    return float(np.mean(wins))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), min_size=2, max_size=40))
def test_auc_counts_ties_half(pairs):
    labels, scores = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs], float)
    if labels.all() or not labels.any():
        assert np.isnan(auc(labels, scores))
    else:
        assert auc(labels, scores) == pytest.approx(slow_auc(labels, scores))


def test_ndcg_by_hand():
    labels, scores = np.array([1, 0, 1, 1, 0]), np.array([0.1, 0.9, 0.5, 1, 0])
    groups = np.array([7, 7, 7, 8, 9])
    # Group 7 ranks 0, 1, 1; groups 8 and 9 have one class only and do not count.
    dcg, best = 1 / np.log2(3) + 1 / np.log2(4), 1 + 1 / np.log2(3)
    assert ndcg(labels, scores, groups) == pytest.approx(dcg / best)
    assert ndcg(labels, scores, groups, k=1) == 0
    assert np.isnan(ndcg(labels[3:], scores[3:], groups[3:]))


def test_scores_that_are_no_numbers_earn_nothing():
    labels = np.array([1, 0, 1, 0])
    assert np.isnan(auc(labels, np.array([np.nan, 0.1, 0.9, 0.2])))
    assert ndcg(labels, np.array([np.nan, 3, np.nan, 2]), np.zeros(4), k=2) == 0
    # Unsigned scores must not wrap when they are turned round.
    assert ndcg(labels, np.array([2, 0, 3, 1], np.uint8), np.zeros(4)) == 1


def test_bootstrap_draws_whole_groups():
    rng = np.random.default_rng(0)
    user_mean = rng.normal(size=40)
    groups = np.repeat(np.arange(40), 25)
    values = user_mean[groups]
    low, high = bootstrap_interval(lambda at: values[at].mean(), groups, rounds=400)
    assert low < values.mean() < high
    # Forty independent users, not a thousand independent rows.
    assert high - low == pytest.approx(2 * 1.96 * user_mean.std() / np.sqrt(40), rel=0.3)
    assert bootstrap_interval(lambda at: values[at].mean(), groups, rounds=400) == (low, high)
