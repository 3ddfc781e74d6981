"""What share of lookups a RAM budget answers: the best possible, and that of plain LRU, which admits everything.

A tiered table keeps what is looked up often and admits a row only against a less popular one, so over a steady load it
comes to lie between the two.
"""

from __future__ import annotations

import numpy as np

from tools.ps.plan.popularity import Popularity

__all__ = ["lru", "lru_of_trace", "optimum", "rows_for"]


def optimum(popularity: Popularity, hot_rows: float) -> float:
    """The share of lookups answered when the `hot_rows` most popular rows are in RAM and stay there: no policy that
    knows a steady popularity does better."""
    before = np.cumsum(popularity.ranks) - popularity.ranks
    held = np.clip(hot_rows - before, 0.0, popularity.ranks)
    return min(1.0, float((held * popularity.share).sum()))


def lru(popularity: Popularity, hot_rows: float) -> float:
    """The hit rate of a least-recently-used cache of `hot_rows` rows under independent draws (Che's approximation:
    Che, Tung, Wang, "Hierarchical Web Caching Systems", 2002): a row is in while it was drawn within the last T draws,
    T such that `hot_rows` rows are in."""
    ranks, share = popularity.ranks, popularity.share
    if hot_rows >= ranks[share > 0].sum():
        return 1.0
    if hot_rows <= 0:
        return 0.0
    low, high = 0.0, 1.0
    while (ranks * -np.expm1(-share * high)).sum() < hot_rows:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        inside = (ranks * -np.expm1(-share * middle)).sum()
        low, high = (middle, high) if inside < hot_rows else (low, middle)
    return float((ranks * share * -np.expm1(-share * high)).sum())


def rows_for(popularity: Popularity, hit_rate: float) -> float:
    """How many of the most popular rows answer `hit_rate` (0 to 1) of the lookups: the inverse of `optimum`."""
    mass = popularity.ranks * popularity.share
    before = np.cumsum(mass) - mass
    group = int(np.searchsorted(np.cumsum(mass), min(hit_rate, mass.sum()), side="left"))
    group = min(group, mass.size - 1)
    inside = (hit_rate - before[group]) / max(popularity.share[group], 1e-300)
    return float(popularity.ranks[:group].sum() + np.clip(inside, 0, popularity.ranks[group]))


def lru_of_trace(ids: np.ndarray, hot_rows: np.ndarray) -> np.ndarray:
    """Exact LRU hit rates of a trace, int64[n] ids in their order, for each budget in hot_rows[b]; float64[b]. The
    first lookup of an id is a miss at every budget.

    A lookup hits when fewer than the budget's rows were looked up since its id's last turn (Mattson et al., 1970). That
    number of distinct ids comes from counting, for each lookup, the earlier ones whose own last turn was no later.
    """
    last = _last_turns(ids)
    again = last >= 0
    distance = (_earlier_and_not_above(last) - (last + 1))[again]
    if distance.size == 0:
        return np.zeros(len(hot_rows))
    distance.sort()
    return np.searchsorted(distance, np.asarray(hot_rows), side="left") / ids.size


def _last_turns(ids: np.ndarray) -> np.ndarray:
    """Where each id was looked up the time before, -1 for its first; int64[n]."""
    order = np.argsort(ids, kind="stable")
    same = ids[order][1:] == ids[order][:-1]
    last = np.full(ids.size, -1, np.int64)
    last[order[1:][same]] = order[:-1][same]
    return last


def _earlier_and_not_above(values: np.ndarray) -> np.ndarray:
    """For each i the number of j < i with values[j] <= values[i], by merging blocks of twice the width each time."""
    n = values.size
    counts = np.zeros(n, np.int64)
    place = np.arange(n)
    span = np.int64(n + 2)
    width = 1
    while width < n:
        block = place // width
        # Keys order by pair of blocks first; the left block's values are searched for the right block's.
        keys = (block // 2) * span + values + 1
        left = np.sort(keys[block % 2 == 0])
        right = np.flatnonzero(block % 2 == 1)
        found = np.searchsorted(left, keys[right], side="right")
        counts[right] += found - (block[right] // 2) * width  # less the left blocks of earlier pairs
        width *= 2
    return counts
