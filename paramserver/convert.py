"""Parquet into snapshots and back: files of any size in bounded memory, checked on the way, decoded on all CPUs."""

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from paramserver import _core, arrays, durable, parquet_columns
from paramserver.errors import DuplicateIdError, OptionError, RowValueError, TableFileError, TableSchemaError
from paramserver.parquet_columns import Place
from paramserver.quantize import QuantizationError, stored_row_bytes
from paramserver.shard_map import SHARDS_MAX, shard_of
from paramserver.snapshot import MEMORY_BYTES_MAX, Progress, check_numbers, rows_in_order, steps

__all__ = ["Conversion", "convert_parquet", "export_parquet", "shard_folder"]

# How often progress is told while threads work.
_PROGRESS_S = 0.2


@dataclass(frozen=True)
class Conversion:
    """What convert_parquet made."""

    paths: tuple[Path, ...]  #: the snapshot, or one for each shard
    dtype: str  #: how rows are stored
    dim: int  #: numbers in a row
    rows: int  #: rows of all files
    spilled_bytes: int  #: bytes that did not fit in memory and went over the disk
    error: QuantizationError | None  #: how far int8 rows are from those that were read; None for other types


def shard_folder(folder: str | Path, shard: int) -> Path:
    """Where the snapshots of one shard lie in a folder of all shards."""
    return Path(folder) / f"shard-{shard:05d}"


def convert_parquet(sources: str | Path | Sequence[str | Path], destination: str | Path, *, dtype: str | None = None,
                    id_column: str = "id", row_column: str = "row", dim: int | None = None,
                    default_row: Any = None, shards: int | None = None, name: str | None = None,
                    base_sequence: int = 0, package_version: int = 0, time_s: int = 0,
                    memory_bytes_max: int = MEMORY_BYTES_MAX, threads: int | None = None,
                    progress: Progress | None = None) -> Conversion:
    """Make a snapshot of Parquet files: a file, a folder of `*.parquet`, or several of either.

    destination: the snapshot; with `shards`, a folder with one folder for each shard (shard_folder) and in it
    `name.snap`. id_column: any integer type, uint64 by its bits. row_column: list, large_list or fixed_size_list of
    halffloat, float or double. dtype: how rows are stored; when None, what the files' metadata says, else f16 for
    halffloat and f32 for others. dim: numbers in a row; None: as the files have them. default_row: float[dim]; None:
    the files' metadata, else zeros. memory_bytes_max: rows kept in memory for sorting, the rest goes to a nameless file
    in the destination's folder; about half as much is used beside. threads: that decode; None: one for each CPU.

    Raises OptionError, ArrayError, TableFileError (cannot be read or written), TableSchemaError (columns, types,
    widths, or files that disagree), TableNullError, TableValueError (NaN, infinity, too large for dtype) and
    DuplicateIdError, naming file, column and row (counted from 0), and StoreFull. Nothing is published then.
    """
    check_numbers(base_sequence, package_version, time_s)
    files = _opened(sources, id_column, row_column)
    shape = _Shape.of(files, row_column, dtype, dim, default_row)
    paths = _destinations(destination, shards, name)
    header = (arrays.DTYPES.index(shape.dtype), shape.dim, False, sum(file.rows for file in files) // len(paths),
              base_sequence, package_version, time_s, shape.default_row)
    builders = [_core.SnapshotBuilder(os.fspath(path), *header, memory_bytes_max // len(paths)) for path in paths]
    work = _Work(files, shape, id_column, row_column, builders)
    try:
        work.read(threads or len(os.sched_getaffinity(0)), progress)
        work.write(progress)
    finally:
        for builder in builders:
            builder.abandon()
    return Conversion(paths, shape.dtype, shape.dim, sum(builder.rows for builder in builders),
                      sum(builder.spilled_bytes for builder in builders), work.error())


@dataclass(frozen=True)
class _Source:
    path: Path
    metadata: pq.FileMetaData

    @property
    def rows(self) -> int:
        return min(max(self.metadata.num_rows, 0), arrays.ROWS_MAX)


@dataclass(frozen=True)
class _Shape:
    """What all files have in common."""

    dtype: str
    dim: int
    default_row: np.ndarray  # as stored, uint8[1, row_bytes]

    @classmethod
    def of(cls, files: list[_Source], row_column: str, dtype: str | None, dim: int | None,
           default_row: Any) -> "_Shape":
        said = []
        for file in files:
            with parquet_columns.file_errors(file.path), pq.ParquetFile(file.path, metadata=file.metadata) as opened:
                found_dim, found_row = parquet_columns.dim_and_default(file.path, opened, row_column, dim)
                found_dtype = parquet_columns.dtype_of(file.path, opened.schema_arrow, row_column)
            said.append((found_dim, found_dtype if dtype is None else dtype,
                         None if found_row is None else found_row.tobytes()))
            for what, mine, first in zip(("dim", "dtype", "default row"), said[-1], said[0], strict=True):
                if mine != first and not (what == "default row" and default_row is not None):
                    raise TableSchemaError(f"{file.path}: {what} is not that of {files[0].path}: convert files of one "
                                           "table, or say which it is")
        found_dim, found_dtype, found_row = said[0]
        arrays.check_options(found_dim, found_dtype, 0)
        row = arrays.as_default_row(default_row, found_dim)
        if row is None:
            row = np.zeros(found_dim, np.float32) if found_row is None else np.frombuffer(found_row, "<f4")
        try:
            return cls(found_dtype, found_dim, _stored(row[None], found_dtype))
        except RowValueError as error:
            if default_row is not None:
                raise
            raise parquet_columns.default_row_error(files[0].path, error) from error


class _Work:
    """One conversion: row groups are decoded by threads and dealt to the builders, which then write."""

    def __init__(self, files: list[_Source], shape: _Shape, id_column: str, row_column: str, builders: list) -> None:
        self._files, self._shape, self._builders = files, shape, builders
        self._id_column, self._row_column = id_column, row_column
        self._all_rows = sum(file.rows for file in files)
        self._lock = threading.Lock()
        self._stopped = False
        self._read_rows = 0
        self._error = np.zeros(4)  # largest, sum, squares, squares of the signal

    def read(self, threads: int, progress: Progress | None) -> None:
        """Decode and deal out every row group. Raises the error of the first file and row group that has one."""
        with ThreadPoolExecutor(threads) as pool:
            tasks = [pool.submit(self._read_group, file, group, first) for file, group, first in _groups(self._files)]
            try:
                for task in tasks:
                    self._wait(task, progress)
            except BaseException:
                self._stopped = True
                pool.shutdown(cancel_futures=True)
                raise

    def write(self, progress: Progress | None) -> None:
        """Sort and write what was dealt out; the files appear when all are written."""
        for builder in self._builders:
            try:
                while builder.write_partition():
                    self._tell(progress)
            except DuplicateIdError as error:
                raise self._repeated(builder.last_id) from error
        for builder in self._builders:
            builder.finish()

    def error(self) -> QuantizationError | None:
        """The error of all rows, for int8."""
        if self._shape.dtype != "int8":
            return None
        largest, total, squares, signal = self._error.tolist()
        elements = max(1, self._read_rows * self._shape.dim)
        return QuantizationError("int8", self._read_rows, largest, total / elements,
                                 (squares / signal) ** 0.5 if signal else 0.0)

    def _wait(self, task: Future, progress: Progress | None) -> None:
        while not wait([task], timeout=_PROGRESS_S).done:
            self._tell(progress)
        task.result()
        self._tell(progress)

    def _tell(self, progress: Progress | None) -> None:
        if progress is not None:
            written = sum(builder.rows_written for builder in self._builders)
            # Reading and writing take about as long.
            progress(min(self._all_rows, (self._read_rows + written + 1) // 2), self._all_rows)

    def _read_group(self, file: _Source, group: int, first: int) -> None:
        rows_max = next(steps(2**62, self._shape.dim))[1]
        columns = [self._id_column, self._row_column]
        with parquet_columns.file_errors(file.path), pq.ParquetFile(file.path, metadata=file.metadata) as opened:
            for batch in opened.iter_batches(rows_max, row_groups=[group], columns=columns, use_threads=False):
                if self._stopped:
                    return
                where = Place(file.path, self._id_column, self._row_column, first)
                ids = arrays.as_ids(parquet_columns.ids_of(where, batch.column(self._id_column)))
                values = parquet_columns.values_of(where, batch.column(self._row_column), self._shape.dim)
                self._deal(ids, self._encoded(where, ids, values))
                first += len(batch)

    def _encoded(self, where: Place, ids: np.ndarray, values: np.ndarray) -> np.ndarray:
        dtype, dim = self._shape.dtype, self._shape.dim
        number = arrays.DTYPES.index(dtype)
        if (dtype, values.dtype) in (("f32", np.float32), ("f16", np.float16)):
            stored = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), stored_row_bytes(dtype, dim))
            bad = _core.first_unfit(number, dim, stored)
        else:
            with np.errstate(over="ignore"):
                rows = np.ascontiguousarray(values, np.float32)
            try:
                stored, bad = _stored(rows, dtype), len(rows)
            except RowValueError:
                bad = next(i for i in range(len(rows)) if not parquet_columns.fits(rows[i : i + 1], dtype))
            else:
                self._measure(number, rows, stored)
        if bad < len(values):
            raise parquet_columns.value_error(where, bad, ids[bad], dtype)
        return stored

    def _measure(self, number: int, rows: np.ndarray, stored: np.ndarray) -> None:
        if self._shape.dtype == "int8":
            largest, *sums = _core.row_error(number, rows, stored)
            with self._lock:
                self._error[0] = max(self._error[0], largest)
                self._error[1:] += sums

    def _deal(self, ids: np.ndarray, stored: np.ndarray) -> None:
        shards = len(self._builders)
        if shards == 1:
            self._builders[0].add(ids, stored, None)
        else:
            places = shard_of(ids, shards)
            order = np.argsort(places, kind="stable")
            ends = np.cumsum(np.bincount(places, minlength=shards)).tolist()
            for builder, first, end in zip(self._builders, [0, *ends], ends, strict=False):
                part = order[first:end]
                builder.add(ids[part], stored[part], None)
        with self._lock:
            self._read_rows += len(ids)

    def _repeated(self, one: int) -> DuplicateIdError:
        """Finds where an id is for the second time by reading the ids again: slow, but only ever once."""
        places = []
        for file, group, first in _groups(self._files):
            with pq.ParquetFile(file.path, metadata=file.metadata) as opened:
                column = opened.read_row_group(group, columns=[self._id_column]).column(0)
            where = Place(file.path, self._id_column, self._row_column, first)
            ids = arrays.as_ids(parquet_columns.ids_of(where, column.combine_chunks()))
            places += [where.of(self._id_column, i) for i in np.flatnonzero(ids == one).tolist()]
            if len(places) > 1:
                break
        return DuplicateIdError(f"{places[-1]} repeats id {one} of {places[0]}: keep one row for each id")


def export_parquet(source: Any, path: str | Path, epoch: int = 0, *, progress: Progress | None = None) -> int:
    """Write the rows of a Snapshot, Table or ReferenceTable as of `epoch` (0: the newest) to a Parquet file, as
    paramserver.parquet does but in the order of snapshots, batch by batch. Returns the number of rows. Raises
    TableFileError, and EpochError as write_snapshot does."""
    rows = rows_in_order(source, epoch)
    path, written = Path(path), 0
    schema = parquet_columns.schema_of(rows.dtype, rows.dim, rows.default_row)
    with parquet_columns.file_errors(path), durable.replacing(path) as temporary, \
            pq.ParquetWriter(temporary, schema) as writer:
        for first, end in steps(len(rows.ids), rows.dim):
            ids, stored = rows.batch(first, end)
            values = np.empty((len(ids), rows.dim), np.float32)
            _core.load_rows(arrays.DTYPES.index(rows.dtype), stored, values)
            writer.write_table(parquet_columns.table_of(schema, ids, values))
            written += len(ids)
            if progress is not None:
                progress(end, len(rows.ids))
    return written


def _opened(sources: str | Path | Sequence[str | Path], id_column: str, row_column: str) -> list[_Source]:
    files = []
    for source in [sources] if isinstance(sources, str | os.PathLike) else sources:
        path = Path(source)
        files += sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise TableFileError(f"{sources}: no Parquet files there")
    opened = []
    for path in files:
        with parquet_columns.file_errors(path), pq.ParquetFile(path) as file:
            parquet_columns.check_schema(path, file.schema_arrow, id_column, row_column)
            opened.append(_Source(path, file.metadata))
    return opened


def _destinations(destination: str | Path, shards: int | None, name: str | None) -> tuple[Path, ...]:
    if shards is None:
        return (Path(destination),)
    if name is None or not 1 <= shards <= SHARDS_MAX:
        raise OptionError(f"shards is {shards} and name is {name!r}, expected 1 to {SHARDS_MAX} shards and the table's "
                          "name, which names its files")
    folders = [shard_folder(destination, shard) for shard in range(shards)]
    for folder in folders:
        with parquet_columns.file_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
    return tuple(folder / f"{name}.snap" for folder in folders)


def _groups(files: list[_Source]) -> Iterator[tuple[_Source, int, int]]:
    for file in files:
        first = 0
        for group in range(file.metadata.num_row_groups):
            yield file, group, first
            first += file.metadata.row_group(group).num_rows


def _stored(rows: np.ndarray, dtype: str) -> np.ndarray:
    out = np.empty((len(rows), stored_row_bytes(dtype, rows.shape[1])), np.uint8)
    _core.store_rows(arrays.DTYPES.index(dtype), rows, out)
    return out
