"""Who asked when, and what was known then: ratings grouped by (user, timestamp), each with the user's earlier ratings.

Half of MovieLens' ratings share user and second with another, so "earlier" means a strictly smaller timestamp:
otherwise the label of one row would be in the history of its neighbour.
"""

from dataclasses import dataclass

import numpy as np

from .errors import DatasetError

__all__ = ["HISTORY_LENGTH", "Moments", "Split", "latest_histories", "moments", "split_by_time"]

HISTORY_LENGTH = 50


@dataclass(frozen=True)
class Split:
    """Row numbers of the training and the test part, and the Unix second from which on rows are test rows."""

    train: np.ndarray
    test: np.ndarray
    cutoff_s: int


@dataclass(frozen=True)
class Moments:
    """`m` (user, timestamp) pairs, ascending by user, then time.

    Attributes:
        user_ids: int64 [m].
        timestamps: int64 [m], Unix seconds.
        of_row: int64 [n]: the moment of each rating row.
        offsets: int32 [m + 1] into history_items and history_ratings.
        history_items: int64, the most recent first, at most HISTORY_LENGTH a moment.
        history_ratings: float32, beside them.
    """

    user_ids: np.ndarray
    timestamps: np.ndarray
    of_row: np.ndarray
    offsets: np.ndarray
    history_items: np.ndarray
    history_ratings: np.ndarray

    def take(self, which: np.ndarray) -> "Moments":
        """Only the moments numbered in `which`, in that order; `of_row` is empty then."""
        starts, lengths = self.offsets[which], np.diff(self.offsets)[which]
        flat, offsets = _spans(starts, lengths, step=1)
        return Moments(self.user_ids[which], self.timestamps[which], np.empty(0, np.int64), offsets,
                       self.history_items[flat], self.history_ratings[flat])


def split_by_time(timestamps: np.ndarray, test_share: float = 0.2) -> Split:
    """The last `test_share` by time is test; rows of one timestamp stay on one side. timestamps int64 [n], any
    order."""
    if not 0 < test_share < 1 or len(timestamps) < 2:
        raise DatasetError(f"cannot split {len(timestamps)} rows with a test share of {test_share}")
    cutoff = np.sort(timestamps)[int(len(timestamps) * (1 - test_share))]
    is_test = timestamps >= cutoff
    return Split(np.flatnonzero(~is_test), np.flatnonzero(is_test), int(cutoff))


def moments(user_ids: np.ndarray, item_ids: np.ndarray, ratings: np.ndarray, timestamps: np.ndarray) -> Moments:
    """Groups rating rows (four arrays [n]) into moments with the histories of that moment."""
    order = np.lexsort((item_ids, timestamps, user_ids))
    users, times = user_ids[order], timestamps[order]
    new_user = np.r_[True, users[1:] != users[:-1]]
    new_moment = new_user | np.r_[True, times[1:] != times[:-1]]
    firsts = np.flatnonzero(new_moment)
    user_start = np.maximum.accumulate(np.where(new_user, np.arange(len(order)), 0))[firsts]
    of_row = np.empty(len(order), np.int64)
    of_row[order] = np.cumsum(new_moment) - 1
    flat, offsets = _spans(firsts - 1, np.minimum(firsts - user_start, HISTORY_LENGTH), step=-1)
    rows = order[flat]
    return Moments(users[firsts], times[firsts], of_row, offsets, item_ids[rows], ratings[rows].astype(np.float32))


def latest_histories(
    user_ids: np.ndarray, item_ids: np.ndarray, ratings: np.ndarray, timestamps: np.ndarray
) -> Moments:
    """One moment per user, after all of his ratings; `timestamps` holds his last one."""
    order = np.lexsort((item_ids, timestamps, user_ids))
    users = user_ids[order]
    ends = np.flatnonzero(np.r_[users[1:] != users[:-1], True])
    counts = np.diff(np.r_[-1, ends])
    flat, offsets = _spans(ends, np.minimum(counts, HISTORY_LENGTH), step=-1)
    rows = order[flat]
    return Moments(users[ends], timestamps[order][ends], np.empty(0, np.int64), offsets, item_ids[rows],
                   ratings[rows].astype(np.float32))


def _spans(starts: np.ndarray, lengths: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices starts[i], starts[i] + step, ... (lengths[i] of them) for all i in a row, and their int32 offsets."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    return np.repeat(starts, lengths) + step * within, offsets
