"""Tables in Parquet files, read and written batch by batch, so that memory stays at the table plus one batch.

A table's file: column `id` int64, column `row` fixed_size_list<float|halffloat>[dim], ids ascending; the schema's
metadata holds `lambda_svc.default_row` (float32, little-endian) and `lambda_svc.dtype` ("f32", "f16", "bf16", "int8").
bf16 and int8 rows are written as float32: bf16 comes back as it was, int8 to within the rounding of its scale (a
snapshot keeps the bytes). Files of other writers are read too: any integer id column, any list of floats, no metadata.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from paramserver import durable, parquet_columns
from paramserver.arrays import ROWS_MAX
from paramserver.errors import DuplicateIdError, RowValueError
from paramserver.parquet_columns import DEFAULT_ROW_KEY, DTYPE_KEY, Place
from paramserver.quantize import ErrorMeter
from paramserver.status import RowStatus

__all__ = ["BATCH_BYTES", "DEFAULT_ROW_KEY", "DTYPE_KEY", "load", "save"]

#: Row bytes read or written at a time; also the size of a row group that save writes.
BATCH_BYTES = 8 << 20


def save(table: Any, path: str | Path) -> None:
    """Write a Table or ReferenceTable to `path`, ids ascending, so that equal tables give equal files.

    The file appears by rename, whole or not at all. Rows are those of the moment their batch is read: a writer that
    works meanwhile may be seen in part, row by row. Raises TableFileError."""
    path = Path(path)
    schema = parquet_columns.schema_of(table.dtype, table.dim, table.default_row)
    with parquet_columns.file_errors(path), durable.replacing(path) as temporary, \
            pq.ParquetWriter(temporary, schema) as writer:
        for ids, rows in _batches_of(table):
            writer.write_table(parquet_columns.table_of(schema, ids, rows))


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
    with parquet_columns.file_errors(path), pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        parquet_columns.check_schema(path, schema, id_column, row_column)
        dim, default_row = parquet_columns.dim_and_default(path, file, row_column)
        dtype = parquet_columns.dtype_of(path, schema, row_column) if dtype is None else dtype
        rows_hint = min(max(file.metadata.num_rows, 0), ROWS_MAX)
        try:
            table = table_class(path.stem if name is None else name, dim, rows_hint=rows_hint, dtype=dtype,
                                default_row=default_row)
        except RowValueError as error:
            raise parquet_columns.default_row_error(path, error) from error
        first = 0
        batch_rows = max(1, BATCH_BYTES // (4 * dim))
        for batch in file.iter_batches(batch_size=batch_rows, columns=[id_column, row_column]):
            where = Place(path, id_column, row_column, first)
            ids = parquet_columns.ids_of(where, batch.column(id_column))
            values = parquet_columns.values_of(where, batch.column(row_column), dim)
            with np.errstate(over="ignore"):
                rows = values.astype(np.float32, copy=False)
            _insert(table, where, ids, rows)
            if meter is not None:
                meter.add(rows)
            first += len(batch)
    return table


def _batches_of(table: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    ids = table.ids()
    rows_max = max(1, BATCH_BYTES // (4 * table.dim))
    for first in range(0, len(ids), rows_max):
        part = ids[first : first + rows_max]
        rows = np.empty((len(part), table.dim), np.float16 if table.dtype == "f16" else np.float32)
        status = np.empty(len(part), np.uint8)
        table.lookup(part, out=rows, status=status)
        # An id deleted since ids() was taken is gone, not a default row.
        here = status <= RowStatus.COLD
        yield (part, rows) if here.all() else (part[here], rows[here])


def _insert(table: Any, where: Place, ids: np.ndarray, rows: np.ndarray) -> None:
    try:
        added = table.upsert(ids, rows)
    except RowValueError as error:
        i = next(i for i in range(len(rows)) if not parquet_columns.fits(rows[i : i + 1], table.dtype))
        raise parquet_columns.value_error(where, i, ids[i], table.dtype) from error
    if added != len(ids):
        raise _duplicate(where, ids)


def _duplicate(where: Place, ids: np.ndarray) -> DuplicateIdError:
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
