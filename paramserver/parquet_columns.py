"""Columns of Parquet files that hold tables: what they must be, as arrays, and errors naming file, column and row."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paramserver.arrays import DIM_MAX, DTYPES
from paramserver.errors import RowValueError, TableFileError, TableNullError, TableSchemaError, TableValueError
from paramserver.quantize import store_rows

__all__ = ["DEFAULT_ROW_KEY", "DTYPE_KEY", "Place", "check_schema", "default_row_error", "dim_and_default", "dtype_of",
           "file_errors", "fits", "ids_of", "schema_of", "table_of", "value_error", "values_of"]

DEFAULT_ROW_KEY = b"lambda_svc.default_row"
DTYPE_KEY = b"lambda_svc.dtype"

_ARROW = {"f32": pa.float32(), "f16": pa.float16(), "bf16": pa.float32(), "int8": pa.float32()}


@dataclass(frozen=True)
class Place:
    """Where in a file a batch is, for messages."""

    path: Path
    id_column: str
    row_column: str
    first: int  #: the number of the batch's first row in the file

    def of(self, column: str, i: int) -> str:
        """The place of row i of the batch, in words."""
        return f"{self.path}: column {column!r}, row {self.first + i}"


def check_schema(path: Path, schema: pa.Schema, id_column: str, row_column: str) -> None:
    """Raise TableSchemaError unless there is one integer id column and one column of lists of floats."""
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


def dim_and_default(path: Path, file: pq.ParquetFile, row_column: str,
                    dim: int | None = None) -> tuple[int, np.ndarray | None]:
    """Numbers in a row, and the default row float32[dim] that the metadata holds, or None. dim: what it must be, when
    known. Raises TableSchemaError."""
    schema = file.schema_arrow
    raw = (schema.metadata or {}).get(DEFAULT_ROW_KEY)
    default_row = None if raw is None or len(raw) % 4 else np.frombuffer(raw, "<f4")
    row_type = schema.field(row_column).type
    if pa.types.is_fixed_size_list(row_type):
        found = row_type.list_size
    else:
        found = dim or _first_length(path, file, row_column) or (0 if default_row is None else len(default_row))
    dim = found if dim is None else dim
    if found != dim:
        raise TableSchemaError(f"{path}: column {row_column!r} has {found} elements a row, expected {dim}")
    if dim < 1:
        raise TableSchemaError(f"{path}: column {row_column!r} is {row_type} without elements: the dim is unknown")
    if dim > DIM_MAX:
        raise TableSchemaError(f"{path}: column {row_column!r} has {dim} elements a row, expected at most {DIM_MAX}")
    if raw is not None and (default_row is None or len(default_row) != dim):
        raise TableSchemaError(f"{path}: metadata {DEFAULT_ROW_KEY.decode()} has {len(raw)} bytes, expected {4 * dim}")
    return dim, default_row


def _first_length(path: Path, file: pq.ParquetFile, row_column: str) -> int:
    for batch in file.iter_batches(batch_size=1, columns=[row_column]):
        return int(_row_lengths(Place(path, "", row_column, 0), batch.column(0))[0])
    return 0


def dtype_of(path: Path, schema: pa.Schema, row_column: str) -> str:
    """How rows are stored by what the metadata says, else f16 for halffloat and f32 for others."""
    said = (schema.metadata or {}).get(DTYPE_KEY)
    if said is None:
        return "f16" if pa.types.is_float16(schema.field(row_column).type.value_type) else "f32"
    dtype = said.decode(errors="replace")
    if dtype not in DTYPES:
        expected = ", ".join(DTYPES)
        raise TableSchemaError(f"{path}: metadata {DTYPE_KEY.decode()} is {said!r}, expected one of {expected}")
    return dtype


def ids_of(where: Place, column: pa.Array) -> np.ndarray:
    """The ids of a batch, int64[n] or uint64[n]. Raises TableNullError."""
    if column.null_count:
        i = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise TableNullError(f"{where.of(where.id_column, i)} is null: every row needs an id")
    ids = column.to_numpy(zero_copy_only=False)
    return ids if ids.dtype == np.uint64 else ids.astype(np.int64, copy=False)


def _row_lengths(where: Place, column: pa.Array) -> np.ndarray:
    if column.null_count:
        i = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise TableNullError(f"{where.of(where.row_column, i)} is null: leave the id out instead")
    return pc.list_value_length(column).to_numpy(zero_copy_only=False)


def values_of(where: Place, column: pa.Array, dim: int) -> np.ndarray:
    """The rows of a batch as the file has them, float16|float32|float64[n, dim], without a copy where that can be.
    Raises TableNullError, TableSchemaError for a row of another length."""
    lengths = _row_lengths(where, column)
    if np.any(lengths != dim):
        i = int(np.argmax(lengths != dim))
        raise TableSchemaError(f"{where.of(where.row_column, i)} has {lengths[i]} elements, expected {dim} as before")
    values = column.flatten()
    if values.null_count:
        i = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))) // dim
        raise TableNullError(f"{where.of(where.row_column, i)} has a null element")
    return values.to_numpy(zero_copy_only=False).reshape(len(column), dim)


def fits(row: np.ndarray, dtype: str) -> bool:
    """Whether a row float32[1, dim] can be stored."""
    try:
        store_rows(row, dtype)
    except RowValueError:
        return False
    return True


def value_error(where: Place, i: int, one: int, dtype: str) -> TableValueError:
    """The error for row i of a batch, the row of id `one`, which cannot be stored."""
    return TableValueError(f"{where.of(where.row_column, i)} (id {one}) holds NaN, infinity or a number too large for "
                           f"{dtype}")


def default_row_error(path: Path, error: RowValueError) -> TableValueError:
    """The error for a default row in the metadata that cannot be stored."""
    return TableValueError(f"{path}: metadata {DEFAULT_ROW_KEY.decode()}: {error}")


def schema_of(dtype: str, dim: int, default_row: np.ndarray) -> pa.Schema:
    """The schema of the files that this package writes."""
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("row", pa.list_(_ARROW[dtype], dim), nullable=False)]
    return pa.schema(fields, {DEFAULT_ROW_KEY: default_row.astype("<f4").tobytes(), DTYPE_KEY: dtype.encode()})


def table_of(schema: pa.Schema, ids: np.ndarray, rows: np.ndarray) -> pa.Table:
    """Ids int64[n] and rows float32[n, dim] (or float16 for f16) as a batch of such a file."""
    row_type = schema.field("row").type
    values = rows.astype(np.float16 if pa.types.is_float16(row_type.value_type) else np.float32, copy=False)
    row_array = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), type=row_type)
    return pa.Table.from_arrays([pa.array(ids), row_array], schema=schema)


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Raise TableFileError, naming the file, for what Arrow and the operating system say of it."""
    try:
        yield
    # pyarrow decodes the names of a damaged file's columns as UTF-8.
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TableFileError(f"{path}: {error}") from error
