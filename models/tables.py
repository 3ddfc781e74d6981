"""Embedding tables on their way out of a model: Parquet, written in batches, keyed by raw ids.

Columns `id` int64 and `row` fixed_size_list<float>[dim]; the default row and the dtype ride in the schema's metadata.
"""

from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .errors import DatasetError

__all__ = ["DEFAULT_ROW_KEY", "DTYPE_KEY", "RowReader", "write_table"]

DEFAULT_ROW_KEY = b"lambda_svc.default_row"
DTYPE_KEY = b"lambda_svc.dtype"


class RowReader(Protocol):
    """Rows of a trained table: shape (rows, dim); read(start, stop) -> float32 [stop - start, dim]."""

    shape: tuple[int, ...]

    def read(self, start: int, stop: int) -> np.ndarray:
        """The rows start to stop (exclusive)."""
        ...


def write_table(path: Path, table: RowReader, ids: np.ndarray, default_row: int, batch_rows: int = 65_536) -> None:
    """Writes row i of `table` under ids[i], and row number `default_row` as the default row.

    ids int64 [v], v <= rows. At most `batch_rows` rows are in memory at a time. Equal tables give equal bytes. Raises
    DatasetError when the ids do not fit the table.
    """
    rows, dim = table.shape
    if ids.dtype != np.int64 or len(ids) > rows or not 0 <= default_row < rows:
        came = f"{ids.dtype} ids [{len(ids)}] and default row {default_row}"
        raise DatasetError(f"{came} do not fit a table of {rows} rows")
    default = np.ascontiguousarray(table.read(default_row, default_row + 1)[0], dtype="<f4")
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("row", pa.list_(pa.float32(), dim), nullable=False)],
        metadata={DEFAULT_ROW_KEY: default.tobytes(), DTYPE_KEY: b"f32"},
    )
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False, write_statistics=["id"]) as writer:
        for start in range(0, len(ids), batch_rows):
            stop = min(start + batch_rows, len(ids))
            values = np.ascontiguousarray(table.read(start, stop), dtype=np.float32)
            row = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), type=schema.field("row").type)
            writer.write_batch(pa.record_batch([pa.array(ids[start:stop]), row], schema=schema))
