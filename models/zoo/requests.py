"""Random requests of a zoo model: raw feature values, ids drawn by popularity. No tensorflow here.

P(rank r) is proportional to (r + q)^-s, and a share of all ids is unknown. The defaults, s = 1.0 and q = 10, fit the
published reuse histograms of embedding tables (facebookresearch/dlrm_datasets, 2021).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import ConfigError
from .fields import Field, ids_of

__all__ = ["Popularity", "RandomRequest", "draw_request"]

_RANKS_MAX = 1 << 22
"""Ranks past this are drawn evenly: what is so rare is met about once."""


@dataclass(frozen=True)
class Popularity:
    """How ids are drawn. `s` and `q` as above; `unknown_share` of the ids are in no table; `full_share` of bags and
    histories are full, the others of any length."""

    s: float = 1.0
    q: float = 10.0
    unknown_share: float = 0.02
    full_share: float = 0.9

    def __post_init__(self) -> None:
        """Refuse what is no distribution, all problems at once."""
        problems = [f"{name} is {value}; expected 0 to 1" for name, value in
                    (("unknown_share", self.unknown_share), ("full_share", self.full_share)) if not 0 <= value <= 1]
        if not self.s >= 0 or not self.q > 0:
            problems.append(f"s is {self.s} and q is {self.q}; expected 0 or more, and more than 0")
        if problems:
            raise ConfigError("; ".join(problems))


@dataclass(frozen=True, eq=False)
class RandomRequest:
    """Raw feature values by name, as RankingClient.rank takes them: one each in `user` and `context`, n in `item`.

    Single values are numpy numbers (item: arrays [n]), vectors are arrays, bags and histories are lists of ids.
    """

    candidate_ids: np.ndarray
    user: dict[str, Any]
    context: dict[str, Any]
    item: dict[str, Any]

    def records(self, group: int) -> Iterator[dict[str, Any]]:
        """The request as golden records, one a candidate."""
        shared = {f"user:{name}": value for name, value in self.user.items()}
        shared |= {f"context:{name}": value for name, value in self.context.items()}
        for row in range(len(self.candidate_ids)):
            yield {"group": group, **shared, **{f"item:{name}": values[row] for name, values in self.item.items()}}


def draw_request(
    fields: Sequence[Field], candidates: int, rng: np.random.Generator, popularity: Popularity | None = None,
    empty: bool = False,
) -> RandomRequest:
    """A request of `candidates` items. With `empty`, its bags and histories hold nothing."""
    popularity = popularity or Popularity()
    sides: dict[str, dict[str, Any]] = {"user": {}, "context": {}, "item": {}}
    keys = np.zeros(candidates, np.int64)
    for field in fields:
        is_item = field.side == "item"
        values = _values(field, candidates if is_item else 1, rng, popularity, empty)
        sides[field.side][field.name] = values if is_item else values[0]
        keys = values if field.kind == "key" else keys
    return RandomRequest(keys, **sides)


def _values(field: Field, n: int, rng: np.random.Generator, popularity: Popularity, empty: bool):
    if field.kind == "bucket":
        return rng.integers(0, field.rows, n).astype(np.float32)
    if field.kind == "numbers":
        numbers = rng.exponential(2.0, (n, field.dim)).astype(np.float32)
        return numbers if field.dim > 1 else numbers[:, 0]
    if field.kind in ("key", "id"):
        return _ids(field, n, rng, popularity)
    counts = np.where(rng.random(n) < popularity.full_share, field.length, rng.integers(0, field.length + 1, n))
    ends = np.cumsum(np.zeros(n, np.int64) if empty else counts)
    return [ids.tolist() for ids in np.split(_ids(field, int(ends[-1]), rng, popularity), ends[:-1])]


def _ids(field: Field, count: int, rng: np.random.Generator, popularity: Popularity) -> np.ndarray:
    known = field.rows - 1
    shares = _shares(min(known, _RANKS_MAX), popularity.s, popularity.q)
    ranks = np.searchsorted(shares, rng.random(count), side="right")
    if known > _RANKS_MAX:
        ranks = np.where(ranks == _RANKS_MAX - 1, rng.integers(_RANKS_MAX - 1, known, count), ranks)
    ranks = np.where(rng.random(count) < popularity.unknown_share, known + ranks, ranks)
    return ids_of(field.source, ranks)


@lru_cache(maxsize=32)
def _shares(ranks: int, s: float, q: float) -> np.ndarray:
    """The cumulative shares of ranks 0 to `ranks` - 1, float64, without the last one, which is 1."""
    weights = np.cumsum((np.arange(ranks, dtype=np.float64) + q) ** -s)
    return weights[:-1] / weights[-1]
