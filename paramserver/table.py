"""The embedding table: a thin shell that checks its arguments and hands them to the native core (csrc/table.h)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from paramserver import _core, arrays

__all__ = ["Table", "TableStats"]


@dataclass(frozen=True)
class TableStats:
    """A table's size at one moment."""

    rows: int  #: live ids
    rows_retired: int  #: superseded rows waiting until no reader can hold them
    bytes: int  #: memory of index and rows, as far as ever used
    huge_pages: bool  #: the kernel accepted the advice to use 2 MiB pages for index and rows
    instruction_set: str  #: "scalar", "avx2" or "avx512"


class Table:
    """Rows of `dim` numbers by 64-bit id, in RAM. Any thread may read beside a writer; a reader sees each row whole,
    old or new, and never waits. Writers take turns. Calls release the GIL.

    name: how the table is called in plans and messages. dim: 1 to 4096. dtype: how rows are stored, "f32", "f16",
    "bf16", or "int8" with a scale and a bias in each row.
    rows_hint: rows to make room for at once, so that a bulk load never grows the index. default_row: float32[dim], the
    row of unknown ids, zeros when None; it is rounded to the table's dtype. huge_pages: ask the kernel for 2 MiB pages.
    instruction_set: "scalar", "avx2" or "avx512"; None takes the environment's PARAMSERVER_ISA, else the CPU's widest:
    results are the same bits with each.
    Raises OptionError, ArrayError, RowValueError, MemoryExhausted, InstructionSetError.
    """

    def __init__(self, name: str, dim: int, *, dtype: str = "f32", rows_hint: int = 0,
                 default_row: np.ndarray | Sequence[float] | None = None, huge_pages: bool = True,
                 instruction_set: str | None = None) -> None:
        arrays.check_options(dim, dtype, rows_hint)
        self._name = name
        self._dim = int(dim)
        self._dtype = dtype
        row = arrays.as_default_row(default_row, dim)
        stored = arrays.DTYPES.index(dtype)
        self._core = _core.Table(self._dim, stored, int(rows_hint), row, huge_pages, instruction_set)

    @property
    def name(self) -> str:
        """How the table is called in plans and messages."""
        return self._name

    @property
    def dim(self) -> int:
        """Numbers in a row."""
        return self._dim

    @property
    def dtype(self) -> str:
        """How rows are stored: "f32", "f16", "bf16" or "int8"."""
        return self._dtype

    @property
    def default_row(self) -> np.ndarray:
        """The row of unknown ids, as stored: float32[dim], a copy."""
        row = np.empty(self._dim, np.float32)
        self._core.default_row(row)
        return row

    @property
    def capsule(self) -> Any:
        """A new PyCapsule "paramserver.RowSource.2" (csrc/row_source.h), which keeps the table alive."""
        return self._core.capsule()

    def __len__(self) -> int:
        return len(self._core)

    def __repr__(self) -> str:
        return f"Table({self._name!r}, dim={self._dim}, dtype={self._dtype!r}, rows={len(self)})"

    def upsert(self, ids: np.ndarray | Sequence[int], rows: np.ndarray) -> int:
        """Insert or replace rows float32[n, dim] of ids int64|uint64[n], each row at once for every reader; the last of
        equal ids wins. Returns how many ids were new. Raises IdError, ArrayError, RowValueError (NaN, infinity, too
        large for the dtype) before anything is written, and MemoryExhausted with a part written."""
        ids = arrays.as_ids(ids)
        return self._core.upsert(ids, arrays.as_rows(rows, ids.size, self._dim))

    def delete(self, ids: np.ndarray | Sequence[int]) -> int:
        """Forget ids int64|uint64[n]; their memory is used again. Returns how many were here. Raises IdError."""
        return self._core.delete(arrays.as_ids(ids))

    def lookup(self, ids: np.ndarray | Sequence[int], out: np.ndarray | None = None,
               status: np.ndarray | None = None) -> np.ndarray:
        """Rows of ids int64|uint64[n] into out[n, dim], float32 (a new one when None), float16 or bfloat16. An unknown
        id gets the default row. `status` uint8[n] receives RowStatus values. Returns out. Raises IdError,
        ArrayError."""
        ids = arrays.as_ids(ids)
        out = arrays.out_rows(out, ids.size, self._dim)
        status = arrays.out_status(status, ids.size)
        self._core.lookup(ids, arrays.out_kind(out), out.view(np.uint8), status)
        return out

    def lookup_pooled(self, ids: np.ndarray | Sequence[int], offsets: np.ndarray, mode: str = "mean",
                      weights: np.ndarray | None = None, out: np.ndarray | None = None,
                      status: np.ndarray | None = None) -> np.ndarray:
        """Pool the rows of bag b, ids[offsets[b]:offsets[b + 1]], into out[b]: out is [bags, dim], as in lookup.

        offsets: int32[bags + 1]. mode: "sum", "mean" or "sqrtn". weights: float32[n] multiply the rows; mean divides by
        their sum, sqrtn by the root of the sum of their squares (without weights: by n and by the root of n). Sums run
        in float32, in the order of the ids, the same on every CPU. An empty bag, or one whose divisor is 0, gives 0; an
        unknown id pools the default row. Raises IdError, ArrayError, OptionError, BagError.
        """
        ids = arrays.as_ids(ids)
        offsets = arrays.as_offsets(offsets)
        kind = arrays.pooling(mode)
        weights = arrays.as_weights(weights, ids.size)
        out = arrays.out_rows(out, offsets.size - 1, self._dim)
        status = arrays.out_status(status, ids.size)
        self._core.lookup_pooled(ids, offsets, kind, weights, arrays.out_kind(out), out.view(np.uint8), status)
        return out

    def ids(self) -> np.ndarray:
        """The live ids, int64[len], ascending: a copy of one moment."""
        return self._core.ids()

    def stats(self) -> TableStats:
        """The table's size now."""
        return TableStats(*self._core.stats())

    def save(self, path: str | Path) -> None:
        """Write the table to a Parquet file (see paramserver.parquet.save), which appears whole or not at all."""
        from paramserver import parquet

        parquet.save(self, path)

    @classmethod
    def load(cls, path: str | Path, name: str | None = None, dtype: str | None = None) -> Self:
        """Read a table from a Parquet file (see paramserver.parquet.load). name: the file's stem when None; dtype: what
        the file says when None."""
        from paramserver import parquet

        return parquet.load(cls, path, name, dtype)
