"""Histories never hold a rating of the same second, and the split keeps seconds whole."""

import numpy as np
import pytest

from models.errors import DatasetError
from models.moments import HISTORY_LENGTH, latest_histories, moments, split_by_time


@pytest.fixture(scope="module")
def columns():
    rng = np.random.default_rng(5)
    n = 900
    users, items = rng.integers(1, 6, n), rng.permutation(n)
    times = rng.integers(0, 300, n)
    return users, items.astype(np.int64), rng.integers(1, 6, n).astype(np.float32), times


def test_histories_are_strictly_earlier_most_recent_first(columns):
    users, items, ratings, times = columns
    grouped = moments(*columns)
    for row in range(len(users)):
        moment = grouped.of_row[row]
        assert grouped.user_ids[moment] == users[row] and grouped.timestamps[moment] == times[row]
        earlier = np.flatnonzero((users == users[row]) & (times < times[row]))
        expected = earlier[np.lexsort((-items[earlier], -times[earlier]))][:HISTORY_LENGTH]
        span = slice(grouped.offsets[moment], grouped.offsets[moment + 1])
        np.testing.assert_array_equal(grouped.history_items[span], items[expected])
        np.testing.assert_array_equal(grouped.history_ratings[span], ratings[expected])
    assert np.diff(grouped.offsets).max() == HISTORY_LENGTH and np.diff(grouped.offsets).min() == 0


def test_latest_history_is_after_everything(columns):
    users, items, _, times = columns
    latest = latest_histories(*columns)
    assert latest.user_ids.tolist() == sorted(set(users))
    for place, user in enumerate(latest.user_ids):
        own = np.flatnonzero(users == user)
        expected = own[np.lexsort((-items[own], -times[own]))][:HISTORY_LENGTH]
        span = slice(latest.offsets[place], latest.offsets[place + 1])
        np.testing.assert_array_equal(latest.history_items[span], items[expected])


def test_take_keeps_histories(columns):
    grouped = moments(*columns)
    which = np.array([7, 2, 2, 0])
    taken = grouped.take(which)
    for place, moment in enumerate(which):
        np.testing.assert_array_equal(taken.history_items[taken.offsets[place]:taken.offsets[place + 1]],
                                      grouped.history_items[grouped.offsets[moment]:grouped.offsets[moment + 1]])


def test_split_keeps_ties_on_one_side():
    times = np.array([5, 1, 2, 3, 4, 4, 4, 4, 9, 9])
    split = split_by_time(times, 0.4)
    assert split.cutoff_s == 4
    assert times[split.train].max() < times[split.test].min()
    assert sorted([*split.train, *split.test]) == list(range(10))
    with pytest.raises(DatasetError):
        split_by_time(times, 1.0)
