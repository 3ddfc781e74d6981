"""Tables in Parquet files, read and written batch by batch, so that memory stays at the table plus one batch.

A table's file: column `id` int64, column `row` fixed_size_list<float|halffloat>[dim], ids ascending; the schema's
metadata holds `lambda_svc.default_row` (float32, little-endian) and `lambda_svc.dtype` ("f32", "f16", "bf16", "int8").
bf16 and int8 rows are written as float32: bf16 comes back as it was, int8 to within the rounding of its scale (a
snapshot keeps the bytes). Files of other writers are read too: any integer id column, any list of floats, no metadata.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paramserver.arrays import DIM_MAX, DTYPES, ROWS_MAX
from paramserver.errors import (
    DuplicateIdError,
    RowValueError,
    TableFileError,
    TableNullError,
    TableSchemaError,
    TableValueError,
)
from paramserver.quantize import ErrorMeter, store_rows

__all__ = ["BATCH_BYTES", "DEFAULT_ROW_KEY", "DTYPE_KEY", "load", "save"]

DEFAULT_ROW_KEY = b"lambda_svc.default_row"
DTYPE_KEY = b"lambda_svc.dtype"
#: Row bytes read or written at a time; also the size of a row group that save writes.
BATCH_BYTES = 8 << 20

_ARROW = {"f32": pa.float32(), "f16": pa.float16(), "bf16": pa.float32(), "int8": pa.float32()}


def save(table: Any, path: str | Path) -> None:
    """Write a Table or ReferenceTable to `path`, ids ascending, so that equal tables give equal files.

    The file appears by rename, whole or not at all. Rows are those of the moment their batch is read: a writer that
    works meanwhile may be seen in part, row by row. Raises TableFileError."""
    path = Path(path)
    row_type = pa.list_(_ARROW[table.dtype], table.dim)
    metadata = {DEFAULT_ROW_KEY: table.default_row.astype("<f4").tobytes(), DTYPE_KEY: table.dtype.encode()}
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("row", row_type, nullable=False)]
    schema = pa.schema(fields, metadata)
    with _file_errors(path), _replacing(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for ids, rows in _batches_of(table):
            row_array = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), type=row_type)
            writer.write_table(pa.Table.from_arrays([pa.array(ids), row_array], schema=schema))


def load(table_class: type, path: str | Path, name: str | None = None, dtype: str | None = None, *,
         id_column: str = "id", row_column: str = "row", meter: ErrorMeter | None = None) -> Any:
    """A new `table_class` (Table or ReferenceTable) with the rows of the Parquet file at `path`.

    name: the file's stem when None. dtype: as Table's; when None, the file's metadata, else f16 for halffloat rows
    and f32 for others. id_column: any integer type; uint64 is taken by its bits. row_column: list, large_list or
    fixed_size_list of halffloat, float or double, all of one length. meter: is given every row, so that its `error` is
    the table's when this returns.

    Raises TableFileError when the file cannot be read, TableSchemaError for a missing column, a wrong type or rows of
    unequal length, TableNullError, TableValueError (NaN, infinity, too large for dtype) and DuplicateIdError, all
    naming the column and the row (counted from 0).
    """
    path = Path(path)
    with _file_errors(path), pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        _check_schema(path, schema, id_column, row_column)
        dim, default_row = _dim_and_default(path, file, row_column)
        dtype = _dtype_of(path, schema, row_column) if dtype is None else dtype
        rows_hint = min(max(file.metadata.num_rows, 0), ROWS_MAX)
        try:
            table = table_class(path.stem if name is None else name, dim, rows_hint=rows_hint, dtype=dtype,
                                default_row=default_row)
        except RowValueError as error:
            raise TableValueError(f"{path}: metadata {DEFAULT_ROW_KEY.decode()}: {error}") from error
        first = 0
        batch_rows = max(1, BATCH_BYTES // (4 * dim))
        for batch in file.iter_batches(batch_size=batch_rows, columns=[id_column, row_column]):
            where = _Place(path, id_column, row_column, first)
            ids = _ids_of(where, batch.column(id_column))
            rows = _rows_of(where, batch.column(row_column), dim)
            _insert(table, where, ids, rows)
            if meter is not None:
                meter.add(rows)
            first += len(batch)
    return table


class _Place:
    """Where in a file a batch is, for messages."""

    def __init__(self, path: Path, id_column: str, row_column: str, first: int) -> None:
        self.path, self.id_column, self.row_column, self.first = path, id_column, row_column, first

    def of(self, column: str, i: int) -> str:
        return f"{self.path}: column {column!r}, row {self.first + i}"


def _batches_of(table: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    ids = table.ids()
    rows_max = max(1, BATCH_BYTES // (4 * table.dim))
    for first in range(0, len(ids), rows_max):
        part = ids[first : first + rows_max]
        rows = np.empty((len(part), table.dim), np.float16 if table.dtype == "f16" else np.float32)
        status = np.empty(len(part), np.uint8)
        table.lookup(part, out=rows, status=status)
        # An id deleted since ids() was taken is gone, not a default row.
        here = status == 0
        yield (part, rows) if here.all() else (part[here], rows[here])


def _check_schema(path: Path, schema: pa.Schema, id_column: str, row_column: str) -> None:
    for column in (id_column, row_column):
        if schema.names.count(column) != 1:
            raise TableSchemaError(f"{path}: expected one column {column!r}, found columns {schema.names}")
    id_type = schema.field(id_column).type
    if not pa.types.is_integer(id_type):
        raise TableSchemaError(f"{path}: column {id_column!r} is {id_type}, expected an integer type such as int64")
    row_type = schema.field(row_column).type
    is_list = pa.types.is_list(row_type) or pa.types.is_large_list(row_type) or pa.types.is_fixed_size_list(row_type)
    if not is_list or not pa.types.is_floating(row_type.value_type):
        raise TableSchemaError(f"{path}: column {row_column!r} is {row_type}, expected a list of float")


def _dim_and_default(path: Path, file: pq.ParquetFile, row_column: str) -> tuple[int, np.ndarray | None]:
    schema = file.schema_arrow
    raw = (schema.metadata or {}).get(DEFAULT_ROW_KEY)
    default_row = None if raw is None or len(raw) % 4 else np.frombuffer(raw, "<f4")
    row_type = schema.field(row_column).type
    if pa.types.is_fixed_size_list(row_type):
        dim = row_type.list_size
    else:
        dim = _first_length(path, file, row_column) or (0 if default_row is None else len(default_row))
    if dim == 0:
        raise TableSchemaError(f"{path}: column {row_column!r} is {row_type} without elements: the dim is unknown")
    if dim > DIM_MAX:
        raise TableSchemaError(f"{path}: column {row_column!r} has {dim} elements a row, expected at most {DIM_MAX}")
    if raw is not None and (default_row is None or len(default_row) != dim):
        raise TableSchemaError(f"{path}: metadata {DEFAULT_ROW_KEY.decode()} has {len(raw)} bytes, expected {4 * dim}")
    return dim, default_row


def _first_length(path: Path, file: pq.ParquetFile, row_column: str) -> int:
    for batch in file.iter_batches(batch_size=1, columns=[row_column]):
        return int(_row_lengths(_Place(path, "", row_column, 0), batch.column(0))[0])
    return 0


def _dtype_of(path: Path, schema: pa.Schema, row_column: str) -> str:
    said = (schema.metadata or {}).get(DTYPE_KEY)
    if said is None:
        return "f16" if pa.types.is_float16(schema.field(row_column).type.value_type) else "f32"
    dtype = said.decode(errors="replace")
    if dtype not in DTYPES:
        expected = ", ".join(DTYPES)
        raise TableSchemaError(f"{path}: metadata {DTYPE_KEY.decode()} is {said!r}, expected one of {expected}")
    return dtype


def _ids_of(where: _Place, column: pa.Array) -> np.ndarray:
    if column.null_count:
        i = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise TableNullError(f"{where.of(where.id_column, i)} is null: every row needs an id")
    ids = column.to_numpy(zero_copy_only=False)
    return ids if ids.dtype == np.uint64 else ids.astype(np.int64, copy=False)


def _row_lengths(where: _Place, column: pa.Array) -> np.ndarray:
    if column.null_count:
        i = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise TableNullError(f"{where.of(where.row_column, i)} is null: leave the id out instead")
    return pc.list_value_length(column).to_numpy(zero_copy_only=False)


def _rows_of(where: _Place, column: pa.Array, dim: int) -> np.ndarray:
    lengths = _row_lengths(where, column)
    if np.any(lengths != dim):
        i = int(np.argmax(lengths != dim))
        raise TableSchemaError(f"{where.of(where.row_column, i)} has {lengths[i]} elements, expected {dim} as before")
    values = column.flatten()
    if values.null_count:
        i = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))) // dim
        raise TableNullError(f"{where.of(where.row_column, i)} has a null element")
    with np.errstate(over="ignore"):
        return values.to_numpy(zero_copy_only=False).astype(np.float32, copy=False).reshape(-1, dim)


def _insert(table: Any, where: _Place, ids: np.ndarray, rows: np.ndarray) -> None:
    try:
        added = table.upsert(ids, rows)
    except RowValueError as error:
        i = next(i for i in range(len(rows)) if not _fits(rows[i : i + 1], table.dtype))
        raise TableValueError(
            f"{where.of(where.row_column, i)} (id {ids[i]}) holds NaN, infinity or a number too large for {table.dtype}"
        ) from error
    if added != len(ids):
        raise _duplicate(where, ids)


def _fits(row: np.ndarray, dtype: str) -> bool:
    try:
        store_rows(row, dtype)
    except RowValueError:
        return False
    return True


def _duplicate(where: _Place, ids: np.ndarray) -> DuplicateIdError:
    """Finds the first repeated id of a batch by reading the ids again: slow, but only ever once."""
    seen = set(ids.tolist()) if where.first else set()
    earlier: set[int] = set()
    with pq.ParquetFile(where.path) as file:
        left = where.first
        for batch in file.iter_batches(columns=[where.id_column]):
            part = batch.column(0).slice(0, max(0, left)).to_pylist()
            earlier.update(seen.intersection(part))
            left -= len(batch)
            if left <= 0:
                break
    for i, one in enumerate(ids.tolist()):
        if one in earlier:
            return DuplicateIdError(f"{where.of(where.id_column, i)} repeats id {one}: keep one row for each id")
        earlier.add(one)
    return DuplicateIdError(f"{where.of(where.id_column, 0)}: an id from here on is not unique")


@contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    try:
        yield
    # pyarrow decodes the names of a damaged file's columns as UTF-8.
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TableFileError(f"{path}: {error}") from error


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` that takes its place, synced to disk, when the block ends well, and vanishes otherwise."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
