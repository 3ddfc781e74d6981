"""The stored features of one side, in native memory, found by id."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from feature_store import _core
from feature_store.arrow import NUMPY_DTYPES, CellProblem, Cells, arrow_type, read_cells
from feature_store.errors import CallerError, DataError
from feature_store.schema import Feature, Schema, Side, nearest


class FeatureCache:
    """All rows of one side's features, immutable: a reload builds a new cache and swaps it in.

    Build one with `from_arrow` or `from_parquet`. Thread-safe; lookups hold no lock and no GIL.

    Attributes:
        features: the features stored, in the schema's order.
        side: whose features they are.
    """

    def __init__(self, side: Side, features: tuple[Feature, ...], native: _core.Cache) -> None:
        """For `from_arrow` and the extractor; takes a native cache with one column a feature."""
        self.side, self.features, self._native = side, features, native

    @classmethod
    def empty(cls, schema: Schema, side: Side) -> FeatureCache:
        """A cache without rows: every key is unknown and gets the defaults."""
        features = schema.stored(side)
        columns = {feature.name: pa.nulls(0, arrow_type(feature)) for feature in features}
        return cls.from_arrow(schema, side, pa.table({"": pa.array([], pa.int64()), **columns}), key="")

    @classmethod
    def from_arrow(cls, schema: Schema, side: Side, table: pa.Table, key: str = "id",
                   request_only: Iterable[str] = ()) -> FeatureCache:
        """Copy a table into native memory.

        Args:
            schema: the model's schema.
            side: the features of this side are read.
            table: a column for each feature (see `arrow_type`), and the key; other columns are ignored. A null cell is
                a feature absent for that row: it answers with the default and is not counted as present.
            key: the column of ids, int64 or uint64 (the same 64 bits), without nulls, unique.
            request_only: features that the table need not have; they are absent in every row.

        Raises DataError naming the column, and the row and id where there is one; StorageError.
        """
        keys = read_keys(table, key)
        features = schema.stored(side)
        optional = _known_names(features, request_only)
        cells = [read_column(feature, table, keys, feature.name in optional) for feature in features]
        parts = [_native_cells(feature, part) for feature, part in zip(features, cells, strict=True)]
        return cls(side, features, _core.build_cache(keys, parts))

    @classmethod
    def from_parquet(cls, schema: Schema, side: Side, path: str | Path, key: str = "id",
                     request_only: Iterable[str] = ()) -> FeatureCache:
        """Read a Parquet file, only the columns needed; everything else as `from_arrow`."""
        return cls.from_arrow(schema, side, read_parquet(schema, side, path, key), key, request_only)

    def __len__(self) -> int:
        """How many rows are stored."""
        return self._native.rows

    @property
    def nbytes(self) -> int:
        """The size of the native memory block, in bytes."""
        return self._native.bytes

    def contains(self, keys: Any) -> np.ndarray:
        """bool [n]: which of these int64 or uint64 ids [n] are stored."""
        keys = as_keys(keys)
        found = np.empty(len(keys), np.uint32)
        self._native.find(keys, found)
        return found != self._native.rows


def as_keys(keys: Any) -> np.ndarray:
    """Ids as a contiguous int64 array [n]; uint64 is read as the same bits. Raises CallerError for anything else."""
    array = np.asarray(keys)
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype not in (np.int64, np.uint64):
        came = f"{array.dtype} of shape {list(array.shape)}"
        raise CallerError(f"keys: got {came}, expected int64 or uint64 of shape [n]")
    return np.ascontiguousarray(array).view(np.int64)


def read_keys(table: pa.Table, key: str) -> np.ndarray:
    """The key column as int64 [rows]. Raises DataError."""
    _require_column(table, key, "key")
    column = table.column(key)
    try:
        column.validate(full=True)
    except pa.ArrowException as error:
        raise DataError(f"key column {key!r}: is damaged: {error}") from error
    if column.type not in (pa.int64(), pa.uint64()):
        raise DataError(f"key column {key!r}: got type {column.type}, expected int64 or uint64")
    if column.null_count:
        row = int(np.argmax(np.asarray(column.is_null())))
        raise DataError(f"key column {key!r}: got a null in row {row}, expected an id in every row")
    return np.ascontiguousarray(column.to_numpy()).view(np.int64)


def read_column(feature: Feature, table: pa.Table, keys: np.ndarray, optional: bool) -> Cells:
    """One feature's cells from a table. Raises DataError naming the column, and the row and id where there is one."""
    if optional and feature.name not in table.column_names:
        return read_cells(feature, pa.nulls(len(table), arrow_type(feature)))
    _require_column(table, feature.name, "feature")
    column = table.column(feature.name)
    try:
        return read_cells(feature, column)
    except CellProblem as problem:
        where = "" if problem.row is None else f" in row {problem.row} (id {keys[problem.row]})"
        raise DataError(f"column {feature.name!r}: got {problem.came}{where}, expected {problem.expected}") from problem
    except pa.ArrowException as error:
        raise DataError(f"column {feature.name!r}: cannot be read as {arrow_type(feature)}: {error}") from error


def read_parquet(schema: Schema, side: Side, path: str | Path, key: str) -> pa.Table:
    """The columns of a Parquet file that the side needs. Raises DataError."""
    wanted = {key, *(feature.name for feature in schema.stored(side))}
    try:
        with pq.ParquetFile(path) as file:
            return file.read(columns=[name for name in file.schema_arrow.names if name in wanted])
    # pyarrow decodes the names of a damaged file's columns as UTF-8.
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"features of side {side!r}: cannot read {path}: {error}") from error


def _require_column(table: pa.Table, name: str, what: str) -> None:
    found = table.column_names.count(name)
    if found != 1:
        count = "is missing" if found == 0 else f"stands {found} times"
        hint = nearest(name, table.column_names).replace("declared: ", "columns: ") if found == 0 else ""
        raise DataError(f"{what} column {name!r}: {count} in the table{hint}")


def _known_names(features: tuple[Feature, ...], names: Iterable[str]) -> set[str]:
    declared = [feature.name for feature in features]
    for name in names:
        if name not in declared:
            raise DataError(f"request_only: feature {name!r} is not declared for this side{nearest(name, declared)}")
    return set(names)


def _native_cells(feature: Feature, cells: Cells) -> _core.CellArrays:
    defaults = feature.default_values
    if feature.dtype == "bytes":
        default_values = np.frombuffer(b"".join(defaults), np.uint8)
        default_offsets = np.cumsum([0, *map(len, defaults)], dtype=np.int64)
    else:
        default_values, default_offsets = np.array(defaults, NUMPY_DTYPES[feature.dtype]), None
    return _core.CellArrays(feature.dtype_code, feature.is_ragged, feature.width, cells.values, cells.row_offsets,
                            cells.byte_offsets, np.ascontiguousarray(cells.present).view(np.uint8), default_values,
                            default_offsets)


__all__ = ["FeatureCache", "as_keys", "read_column", "read_keys", "read_parquet"]
