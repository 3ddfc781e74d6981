"""What changed between two states of a table, row by row: snapshots, epochs, or a table and a snapshot. Both are read
once, in the order of the mixing hash, a few MiB at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from paramserver import _core
from paramserver.arrays import DTYPES
from paramserver.errors import TableSchemaError
from paramserver.shard_map import mix
from paramserver.snapshot import Progress, rows_in_order, steps

__all__ = ["Diff", "DiffBatch", "DiffSummary", "diff"]


@dataclass(frozen=True)
class DiffBatch:
    """Some of the ids that differ, in the order of the mixing hash."""

    added: np.ndarray  #: ids that only the second state has, int64[n]
    removed: np.ndarray  #: ids that only the first has, int64[m]
    changed: np.ndarray  #: ids whose rows differ, int64[k]
    max_change: np.ndarray  #: the largest distance of an element of each changed row, float32[k]
    mean_change: np.ndarray  #: the mean distance of its elements, float32[k]


@dataclass(frozen=True)
class DiffSummary:
    """How two states of a table differ."""

    added: int  #: ids that only the second state has
    removed: int  #: ids that only the first has
    changed: int  #: ids whose rows differ
    same: int  #: ids whose rows are equal
    max_change: float  #: the largest distance of an element over the changed rows, 0 without any
    mean_change: float  #: the mean distance of an element over the changed rows, 0 without any
    default_row_changed: bool  #: the rows of unknown ids differ

    @property
    def equal(self) -> bool:
        """No row differs, the default row included."""
        return not (self.added or self.removed or self.changed or self.default_row_changed)


class Diff:
    """The difference of two states: iterate over it for DiffBatch after DiffBatch, once; `summary` is complete then,
    and finishes the iteration when it was not."""

    def __init__(self, first: Any, second: Any, progress: Progress | None) -> None:
        self._first, self._second, self._progress = first, second, progress
        self._added = self._removed = self._changed = self._same = 0
        self._max, self._sum = 0.0, 0.0
        self._batches = self._compare()

    def __iter__(self) -> Iterator[DiffBatch]:
        return self._batches

    @property
    def summary(self) -> DiffSummary:
        """Counts and sizes of all that differs."""
        for _ in self._batches:
            pass
        default_rows = [side.default_row for side in (self._first, self._second)]
        return DiffSummary(self._added, self._removed, self._changed, self._same, self._max,
                           self._sum / self._changed if self._changed else 0.0,
                           not np.array_equal(*default_rows))

    def _compare(self) -> Iterator[DiffBatch]:
        rows = len(self._first.ids) + len(self._second.ids)
        at, other_at = 0, 0
        while at < len(self._first.ids) or other_at < len(self._second.ids):
            end, other_end = _stretch(self._first.ids, self._second.ids, at, other_at, self._first.dim)
            batch = self._compare_stretch((at, end), (other_at, other_end))
            at, other_at = end, other_end
            if len(batch.added) or len(batch.removed) or len(batch.changed):
                yield batch
            if self._progress is not None:
                self._progress(at + other_at, rows)

    def _compare_stretch(self, mine: tuple[int, int], others: tuple[int, int]) -> DiffBatch:
        (ids, stored), (other_ids, other_stored) = self._first.batch(*mine), self._second.batch(*others)
        _, here, there = np.intersect1d(ids, other_ids, assume_unique=True, return_indices=True)
        here, there = np.sort(here), np.sort(there)
        changed, max_change, mean_change = self._changes(stored[here], other_stored[there])
        batch = DiffBatch(np.delete(other_ids, there), np.delete(ids, here), ids[here[changed]], max_change,
                          mean_change)
        self._added += len(batch.added)
        self._removed += len(batch.removed)
        self._changed += len(changed)
        self._same += len(here) - len(changed)
        self._max = max(self._max, float(max_change.max(initial=0)))
        self._sum += float(mean_change.sum(dtype=np.float64))
        return batch

    def _changes(self, stored: np.ndarray, other_stored: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which rows of ids that both have differ, and by how much."""
        if self._first.dtype == self._second.dtype:
            candidates = np.flatnonzero((stored != other_stored).any(axis=1))
        else:
            candidates = np.arange(len(stored))
        rows = _loaded(stored[candidates], self._first)
        other_rows = _loaded(other_stored[candidates], self._second)
        differ = (rows != other_rows).any(axis=1)
        with np.errstate(over="ignore"):
            distance = np.abs(rows[differ] - other_rows[differ])
        return candidates[differ], distance.max(axis=1, initial=0), distance.mean(axis=1, dtype=np.float32)


def diff(first: Any, second: Any, *, first_epoch: int = 0, second_epoch: int = 0,
         progress: Progress | None = None) -> Diff:
    """Compare two states of a table row by row. first, second: Snapshot, Table or ReferenceTable, each as of its epoch
    (0: the newest); the same Table twice for two of its epochs. Rows of different stored types are compared as lookups
    give them. Raises TableSchemaError when the dims differ, EpochError for an epoch that is not held."""
    sides = rows_in_order(first, first_epoch), rows_in_order(second, second_epoch)
    if sides[0].dim != sides[1].dim:
        raise TableSchemaError(f"dim is {sides[0].dim} in the first and {sides[1].dim} in the second: two tables")
    return Diff(*sides, progress)


def _stretch(ids: np.ndarray, others: np.ndarray, at: int, other_at: int, dim: int) -> tuple[int, int]:
    """The ends of the next stretches, which hold the same range of hashes."""
    step = next(steps(2**62, dim))[1]
    end, other_end = min(len(ids), at + step), min(len(others), other_at + step)
    lasts = [int(mix(side[stop - 1 : stop])[0]) for side, start, stop in ((ids, at, end), (others, other_at, other_end))
             if start < stop]
    complete = end == len(ids) and other_end == len(others)
    bound = np.uint64(max(lasts) if complete else min(lasts))
    end = at + int(np.searchsorted(mix(ids[at:end]), bound, side="right"))
    other_end = other_at + int(np.searchsorted(mix(others[other_at:other_end]), bound, side="right"))
    return end, other_end


def _loaded(stored: np.ndarray, side: Any) -> np.ndarray:
    rows = np.empty((len(stored), side.dim), np.float32)
    _core.load_rows(DTYPES.index(side.dtype), np.ascontiguousarray(stored), rows)
    return rows
