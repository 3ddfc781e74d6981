"""ReferenceTable: what Table does, in plain Python. It is the contract's other half, and a fake for users' tests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from paramserver import arrays, quantize
from paramserver.errors import BagError
from paramserver.status import RowStatus

__all__ = ["ReferenceTable"]


class ReferenceTable:
    """A dict of ids to rows with Table's arguments, results and errors. Slow, not thread-safe, no capsule."""

    def __init__(self, name: str, dim: int, *, dtype: str = "f32", rows_hint: int = 0,
                 default_row: np.ndarray | Sequence[float] | None = None, huge_pages: bool = True) -> None:
        arrays.check_options(dim, dtype, rows_hint)
        self.name = name
        self.dim = int(dim)
        self.dtype = dtype
        self._rows: dict[int, np.ndarray] = {}
        row = arrays.as_default_row(default_row, dim)
        row = np.zeros(dim, np.float32) if row is None else row
        self._default = quantize.store_rows(row[None], dtype, "default_row")[0]

    @property
    def default_row(self) -> np.ndarray:
        """The row of unknown ids, as stored: float32[dim], a copy."""
        return self._loaded(self._default)

    def __len__(self) -> int:
        return len(self._rows)

    def upsert(self, ids: np.ndarray | Sequence[int], rows: np.ndarray) -> int:
        """As Table.upsert."""
        ids = arrays.as_ids(ids)
        stored = quantize.store_rows(arrays.as_rows(rows, ids.size, self.dim), self.dtype)
        before = len(self)
        self._rows.update(zip(ids.tolist(), stored.copy(), strict=True))
        return len(self) - before

    def delete(self, ids: np.ndarray | Sequence[int]) -> int:
        """As Table.delete."""
        return sum(self._rows.pop(i, None) is not None for i in arrays.as_ids(ids).tolist())

    def lookup(self, ids: np.ndarray | Sequence[int], out: np.ndarray | None = None,
               status: np.ndarray | None = None) -> np.ndarray:
        """As Table.lookup."""
        ids = arrays.as_ids(ids)
        out = arrays.out_rows(out, ids.size, self.dim)
        status = arrays.out_status(status, ids.size)
        for i, row in enumerate(self._found(ids, status)):
            out[i] = row
        return out

    def lookup_pooled(self, ids: np.ndarray | Sequence[int], offsets: np.ndarray, mode: str = "mean",
                      weights: np.ndarray | None = None, out: np.ndarray | None = None,
                      status: np.ndarray | None = None) -> np.ndarray:
        """As Table.lookup_pooled."""
        ids = arrays.as_ids(ids)
        offsets = arrays.as_offsets(offsets)
        arrays.pooling(mode)
        weights = arrays.as_weights(weights, ids.size)
        out = arrays.out_rows(out, offsets.size - 1, self.dim)
        status = arrays.out_status(status, ids.size)
        if offsets[0] != 0 or np.any(offsets[1:] < offsets[:-1]) or offsets[-1] != ids.size:
            raise BagError(f"offsets {offsets.tolist()} do not cut {ids.size} ids into bags")
        rows = self._found(ids, status)
        for b in range(len(out)):
            first, end = int(offsets[b]), int(offsets[b + 1])
            out[b] = _pool(rows[first:end], None if weights is None else weights[first:end], mode, self.dim)
        return out

    def ids(self) -> np.ndarray:
        """As Table.ids."""
        return np.array(sorted(self._rows), np.int64)

    def save(self, path: str | Path) -> None:
        """As Table.save."""
        from paramserver import parquet

        parquet.save(self, path)

    @classmethod
    def load(cls, path: str | Path, name: str | None = None, dtype: str | None = None) -> Self:
        """As Table.load."""
        from paramserver import parquet

        return parquet.load(cls, path, name, dtype)

    def _found(self, ids: np.ndarray, status: np.ndarray | None) -> list[np.ndarray]:
        rows = [self._rows.get(i) for i in ids.tolist()]
        if status is not None:
            status[:] = [RowStatus.DEFAULT if row is None else RowStatus.HIT for row in rows]
        return [self._loaded(self._default if row is None else row) for row in rows]

    def _loaded(self, stored: np.ndarray) -> np.ndarray:
        return quantize.load_rows(stored[None], self.dtype, self.dim)[0]


def _pool(rows: list[np.ndarray], weights: np.ndarray | None, mode: str, dim: int) -> np.ndarray:
    total = np.zeros(dim, np.float32)
    divisor = np.float32(0)
    for i, row in enumerate(rows):
        weight = np.float32(1 if weights is None else weights[i])
        total = total + weight * row
        divisor = divisor + (weight * weight if mode == "sqrtn" else weight)
    if not rows or mode == "sum":
        return total
    divisor = np.sqrt(divisor) if mode == "sqrtn" else divisor
    return total / divisor if divisor != 0 else np.zeros(dim, np.float32)
