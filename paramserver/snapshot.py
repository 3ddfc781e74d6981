"""Snapshots: the rows of one table at one moment in a file `NAME.snap` that opens at once (csrc/snapshot_format.h draws
its bytes). Ids ascend by the mixing hash, so that an index is built in one pass, and the slots are those of a tiered
table's base. Equal tables give equal bytes; a file appears by rename, whole or not at all.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from paramserver import _core
from paramserver.arrays import DTYPES
from paramserver.errors import EpochError, OptionError
from paramserver.status import RowStatus
from paramserver.table import Table
from paramserver.tier import Tier

__all__ = ["BATCH_BYTES", "MEMORY_BYTES_MAX", "Progress", "Snapshot", "SnapshotHeader", "check_numbers", "load_table",
           "rows_in_order", "steps", "write_snapshot"]

#: Called now and then with (rows done, rows in all).
Progress = Callable[[int, int], None]

_SUFFIX = ".snap"
_NUMBERS = ("base_sequence", "package_version", "time_s")
#: Bytes of float32 rows handled at a time.
BATCH_BYTES = 8 << 20
#: Rows kept in memory while a snapshot of rows in any order is sorted.
MEMORY_BYTES_MAX = 256 << 20
# Blocks of 1 MiB, and ids, that one thread verifies at a time.
_VERIFY_BLOCKS = 16
_VERIFY_IDS = 1 << 20
# Steps of about 1 MiB that are loaded at a time; as many more are read ahead.
_LOAD_STEPS = 32


@dataclass(frozen=True)
class SnapshotHeader:
    """What a snapshot says of itself."""

    dtype: str  #: how rows are stored: one of DTYPES
    dim: int  #: numbers in a row
    has_times: bool  #: every row has the time of the delta that wrote it
    rows: int
    base_sequence: int  #: sequence of the newest delta within
    package_version: int  #: version of the model package that the rows belong to
    time_s: int  #: time of the newest delta within, seconds since 1970
    row_bytes: int  #: bytes of a stored row
    slot_bytes: int  #: distance of slots in a page, or whole pages


class Snapshot:
    """A snapshot, open to read. Header and ids are mapped, rows are read; the file must not be cut meanwhile.

    Make it with Snapshot.open. Any thread may use it. Opening checks the header, the file's size and the list of
    checksums; what else lies in the file is checked by verify().
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _core.SnapshotFile(os.fspath(path))
        stored, *rest = self._file.header()
        self.header = SnapshotHeader(DTYPES[stored], *rest)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open the file at `path`. Raises TableFileError (cannot be read), TableSchemaError (no snapshot, or of another
        format), StoreDamaged (cut, or the header is not what was written)."""
        return cls(Path(path))

    @property
    def name(self) -> str:
        """The file's name without `.snap`."""
        return self.path.name.removesuffix(_SUFFIX)

    @property
    def dtype(self) -> str:
        """How rows are stored."""
        return self.header.dtype

    @property
    def dim(self) -> int:
        """Numbers in a row."""
        return self.header.dim

    @property
    def native(self) -> Any:
        """The native file (csrc/snapshot_file.h), for tables that read from it."""
        return self._file

    @property
    def ids(self) -> np.ndarray:
        """The ids, int64[rows], ascending by the mixing hash: a read-only view of the file."""
        return self._file.ids()

    @property
    def times(self) -> np.ndarray | None:
        """Seconds since 1970 of the delta that wrote each row, uint32[rows] in the order of ids; None without."""
        return self._file.times() if self.header.has_times else None

    @property
    def has_times(self) -> bool:
        """Every row has the time of the delta that wrote it."""
        return self.header.has_times

    @property
    def stored_default_row(self) -> np.ndarray:
        """The row of unknown ids as stored, uint8[row_bytes]."""
        return self._file.default_row()

    @property
    def default_row(self) -> np.ndarray:
        """The row of unknown ids, float32[dim], a copy."""
        return _loaded(self.stored_default_row[None], self.dtype, self.dim)[0]

    def __len__(self) -> int:
        return self.header.rows

    def __repr__(self) -> str:
        return f"Snapshot({str(self.path)!r}, dim={self.header.dim}, dtype={self.header.dtype!r}, rows={len(self)})"

    def stored_rows(self, first: int, end: int) -> np.ndarray:
        """Rows [first, end) as stored, in the order of ids: uint8[end - first, row_bytes], a copy. Raises OptionError
        for a range outside of the file, TableFileError, StoreDamaged."""
        if not 0 <= first <= end <= len(self):
            raise OptionError(f"rows {first} to {end}, expected 0 <= first <= end <= {len(self)}")
        out = np.empty((end - first, self.header.row_bytes), np.uint8)
        self._file.read_rows(first, end, out)
        return out

    def batch(self, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """The ids int64[n] and rows uint8[n, row_bytes] as stored of [first, end). Raises as stored_rows."""
        return self.ids[first:end], self.stored_rows(first, end)

    def rows(self, first: int, end: int) -> np.ndarray:
        """The same as a lookup gives them: float32[end - first, dim]."""
        return _loaded(self.stored_rows(first, end), self.dtype, self.dim)

    def verify(self, progress: Progress | None = None, threads: int | None = None) -> None:
        """Read the whole file and check every checksum, and that ids ascend by the mixing hash and none is there twice.
        threads: as many as there are CPUs when None. Raises StoreDamaged naming the first place found, TableFileError.
        """
        _verify(self._file, self._file.blocks, len(self), threads, progress)


def write_snapshot(path: str | Path, source: Any, epoch: int = 0, *, base_sequence: int | None = None,
                   package_version: int | None = None, time_s: int | None = None,
                   progress: Progress | None = None) -> SnapshotHeader:
    """Write the rows of a Table, ReferenceTable or Snapshot as of `epoch` (0: the newest) to `path`, in bounded memory
    beyond 8 bytes an id.

    base_sequence, package_version, time_s: what the header says of the rows; when None, what a source that is a
    Snapshot says, else 0. Returns the header. Raises StoreFull and TableFileError, then nothing is left; EpochError
    when rows of a table without deltas vanish while they are written.
    """
    rows = rows_in_order(source, epoch)
    said = source.header if isinstance(source, Snapshot) else None
    numbers = [getattr(said, name, 0) if value is None else value
               for name, value in zip(_NUMBERS, (base_sequence, package_version, time_s), strict=True)]
    check_numbers(*numbers)
    header = (DTYPES.index(rows.dtype), rows.dim, rows.has_times, len(rows.ids), *numbers,
              rows.stored_default_row[None])
    if rows.has_times and source is not rows:
        _write_aging(path, rows, header, progress)
        return Snapshot.open(path).header
    writer = _core.SnapshotWriter(os.fspath(path), *header)
    try:
        for first, end in steps(len(rows.ids), rows.dim):
            writer.append(*rows.batch(first, end), rows.times[first:end] if rows.has_times else None)
            if progress is not None:
                progress(end, len(rows.ids))
        writer.finish()
    finally:
        writer.abandon()
    return Snapshot.open(path).header


def _write_aging(path: str | Path, rows: Any, header: tuple, progress: Progress | None) -> None:
    """Write rows of which some may expire meanwhile, so that how many they are is known at the end only."""
    builder = _core.SnapshotBuilder(os.fspath(path), *header, MEMORY_BYTES_MAX)
    try:
        for first, end in steps(len(rows.ids), rows.dim):
            ids, stored = rows.batch(first, end)
            builder.add(ids, stored, rows.times_of(ids))
            if progress is not None:
                progress((end + 1) // 2, len(rows.ids))
        while builder.write_partition():
            pass
        builder.finish()
    finally:
        builder.abandon()
    if progress is not None:
        progress(len(rows.ids), len(rows.ids))


def check_numbers(base_sequence: int, package_version: int, time_s: int) -> None:
    """Raise OptionError unless each of the numbers that a header says of its rows is an integer from 0 to 2**63 - 1."""
    for name, value in zip(_NUMBERS, (base_sequence, package_version, time_s), strict=True):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= value < 2**63:
            raise OptionError(f"{name} is {value!r}, expected an integer from 0 to 2**63 - 1")


def steps(rows: int, dim: int) -> Iterator[tuple[int, int]]:
    """Cut [0, rows) into stretches (first, end) of a few MiB."""
    step = max(1, BATCH_BYTES // (4 * dim))
    for first in range(0, rows, step):
        yield first, min(rows, first + step)


class _TableRows:
    """A Table's or ReferenceTable's rows as of one epoch, with the face that a Snapshot has."""

    def __init__(self, table: Any, epoch: int) -> None:
        self._table, self._epoch = table, epoch
        # Rows of a table with a time to live may expire while they are read.
        self.has_times = table.row_times([], epoch) is not None
        self.dtype, self.dim, self.default_row = table.dtype, table.dim, table.default_row
        ids = table.ids(epoch)
        self.stored_default_row = table.lookup_stored(_unused(ids), epoch)[0]
        self.ids = np.array(ids)
        _core.sort_by_mix(self.ids)

    def batch(self, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        ids = self.ids[first:end]
        status = np.empty(len(ids), np.uint8)
        rows = self._table.lookup_stored(ids, self._epoch, status)
        gone = status > RowStatus.COLD
        if not gone.any():
            return ids, rows
        if not self.has_times:
            i = int(np.argmax(gone))
            raise EpochError(f"table {self._table.name}: id {ids[i]} is {RowStatus(status[i]).name} while its row is "
                             "written: publish an epoch, and write that")
        return ids[~gone], rows[~gone]

    def times_of(self, ids: np.ndarray) -> np.ndarray:
        return self._table.row_times(ids, self._epoch)


def _unused(ids: np.ndarray) -> np.ndarray:
    """An id that is not among n ids: of 0 to n, one is not."""
    used = np.zeros(len(ids) + 1, bool)
    used[ids[(ids >= 0) & (ids <= len(ids))]] = True
    return np.argmin(used)[None]


def rows_in_order(source: Any, epoch: int = 0) -> Any:
    """A Snapshot itself, or the rows of a Table or ReferenceTable as of `epoch` with the same face: `ids` int64[n] in
    the order of snapshots, `batch` of (first, end), `stored_default_row`, `default_row`, `has_times`, `dtype` and
    `dim`."""
    if isinstance(source, Snapshot):
        if epoch:
            raise EpochError(f"epoch is {epoch}, expected 0: {source!r} has one state")
        return source
    return _TableRows(source, epoch)


def load_table(path: str | Path, name: str | None = None, *, progress: Progress | None = None, verify: bool = True,
               threads: int | None = None, tier: Tier | None = None, **options: Any) -> Table:
    """A Table with the rows of the snapshot at `path`, byte for byte, read in file order by several threads.

    name: the file's without `.snap` when None. verify: check every checksum and the order of ids on the way. threads:
    as many as there are CPUs when None. tier: only the ids are read (and, with verify, the rest once); rows stay in
    the file, which must not be changed or cut while the table lives. options: as Table's, without dim and dtype;
    base_sequence and base_time_s are the snapshot's unless given. Raises as Snapshot.open, Snapshot.verify and Table.
    """
    snapshot = Snapshot.open(path)
    header, file = snapshot.header, snapshot.native
    threads = threads or len(os.sched_getaffinity(0))
    said = {"rows_hint": header.rows, "base_sequence": header.base_sequence}
    if header.time_s:
        said["base_time_s"] = header.time_s
    if tier is not None:
        tier = replace(tier, base_path=path, base_offset_bytes=file.slots_offset)
    table = Table(snapshot.name if name is None else name, header.dim, dtype=header.dtype,
                  default_row=snapshot.default_row, tier=tier, **{**said, **options})
    if verify:
        _verify(file, file.slots_block if tier is None else file.blocks, len(snapshot), threads, None)
    file.load_default_row(table.native)
    done = 0
    if tier is not None:
        for first, done in steps(len(snapshot), header.dim):
            times = None if snapshot.times is None else snapshot.times[first:done]
            table.add_base(snapshot.ids[first:done], first, times)
            if progress is not None:
                progress(done, len(snapshot))
        return table
    for first in range(0, file.load_steps, _LOAD_STEPS):
        done += file.load_rows(table.native, first, first + _LOAD_STEPS, _LOAD_STEPS, threads, verify)
        if progress is not None:
            progress(done, len(snapshot))
    return table


def _verify(file: Any, blocks: int, rows: int, threads: int | None, progress: Progress | None) -> None:
    """Check the first blocks of a file, and the order of all ids."""
    with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as pool:
        checks = [pool.submit(file.verify_blocks, first, min(blocks, first + _VERIFY_BLOCKS))
                  for first in range(0, blocks, _VERIFY_BLOCKS)]
        order = [pool.submit(file.check_order, first, first + _VERIFY_IDS) for first in range(0, rows, _VERIFY_IDS)]
        try:
            for done, check in enumerate(checks, 1):
                check.result()
                if progress is not None:
                    progress(rows * min(blocks, done * _VERIFY_BLOCKS) // blocks, rows)
            for check in order:
                check.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _loaded(stored: np.ndarray, dtype: str, dim: int) -> np.ndarray:
    out = np.empty((len(stored), dim), np.float32)
    _core.load_rows(DTYPES.index(dtype), np.ascontiguousarray(stored), out)
    return out
