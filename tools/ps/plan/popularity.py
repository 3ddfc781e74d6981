"""How often the ids of a table are looked up, by rank: from a Zipf law or from a trace of ids.

Tables of a billion rows are held as groups of ranks that share one probability, so that every sum over ranks is a sum
over some ten thousand groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["Popularity", "TraceError", "of_trace", "read_trace", "zipf"]

#: Ranks of a Zipf law that get a group of their own; behind them groups grow geometrically.
EXACT_RANKS = 65_536
TAIL_GROUPS = 4_096


class TraceError(Exception):
    """A trace that cannot be read; the message names the file, what is wrong and what was expected."""


@dataclass(frozen=True)
class Popularity:
    """Group g is `ranks[g]` ids (float64[g]) that each take the share `share[g]` (float64[g]) of all lookups of known
    ids, most popular first; shares times ranks add up to 1. `law` says where they come from."""

    ranks: np.ndarray
    share: np.ndarray
    law: str

    @property
    def rows(self) -> float:
        """Ids in all groups, those never looked up included."""
        return float(self.ranks.sum())


def zipf(rows: int, s: float, q: float = 0.0) -> Popularity:
    """P(rank r) proportional to (r + q)^-s for r = 1 .. rows. Raises ValueError unless rows >= 1, s >= 0 and q > -1.

    Behind the first 65,536 ranks a group's mass is the integral of the law over it from half a rank before to half a
    rank after (midpoint rule: the relative error is below 1e-9 there).
    """
    if rows < 1 or s < 0 or q <= -1:
        raise ValueError(f"a Zipf law needs rows >= 1, s >= 0 and q > -1, got rows={rows}, s={s}, q={q}")
    head = np.arange(1, min(rows, EXACT_RANKS) + 1, dtype=np.float64)
    ranks, mass = np.ones(head.size), (head + q) ** -s
    if rows > EXACT_RANKS:
        edges = np.unique(np.geomspace(EXACT_RANKS + 1, rows + 1, TAIL_GROUPS).round())
        ranks = np.concatenate([ranks, np.diff(edges)])
        mass = np.concatenate([mass, _integral(edges - 0.5 + q, s)])
    return Popularity(ranks, mass / mass.sum() / ranks, f"(r+{q:g})^-{s:g}")


def of_trace(ids: np.ndarray, rows: int | None = None) -> Popularity:
    """The shares of int64[n] ids by how often each occurs. `rows` is the table's size: ids that the trace never names
    take no share; None, or fewer than occur, means those that occur."""
    if ids.size == 0:
        raise ValueError("a trace needs at least one id")
    _, counts = np.unique(ids, return_counts=True)
    times, ranks = np.unique(counts, return_counts=True)
    ranks, share = ranks[::-1].astype(np.float64), times[::-1] / ids.size
    unseen = max(0, (rows or 0) - counts.size)
    if unseen:
        ranks, share = np.append(ranks, unseen), np.append(share, 0.0)
    return Popularity(ranks, share, f"trace of {ids.size:,} ids, {counts.size:,} distinct")


def read_trace(path: str | Path, column: str = "id") -> np.ndarray:
    """The ids of a trace in the order of its lookups, int64[n]: .npy (any integer array), .parquet (`column`, lists
    are flattened) or text with one id a line. Raises TraceError."""
    path = Path(path)
    try:
        if path.suffix == ".npy":
            ids = np.load(path, allow_pickle=False)
        elif path.suffix == ".parquet":
            ids = _parquet_column(path, column)
        else:
            ids = np.array([int(line) for line in path.read_text(encoding="ascii").split()])
    except (OSError, ValueError, KeyError, OverflowError) as error:
        raise TraceError(f"{path}: {error}; expected .npy, .parquet with column {column!r}, or an id a line") from error
    if not np.issubdtype(ids.dtype, np.integer) or ids.size == 0:
        raise TraceError(f"{path}: {ids.dtype} [{ids.size}]; expected at least one integer id")
    return ids.ravel().astype(np.uint64).view(np.int64) if ids.dtype == np.uint64 else ids.ravel().astype(np.int64)


def _integral(edges: np.ndarray, s: float) -> np.ndarray:
    primitive = np.log(edges) if s == 1 else edges ** (1 - s) / (1 - s)
    return np.diff(primitive)


def _parquet_column(path: Path, column: str) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = pq.read_table(path, columns=[column]).column(column).combine_chunks()
    while pa.types.is_list(values.type) or pa.types.is_large_list(values.type) or pa.types.is_fixed_size_list(
            values.type):
        values = values.flatten()
    return values.drop_null().to_numpy(zero_copy_only=False)
