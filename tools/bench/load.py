"""Tables out of files: rows per second from Parquet, and how long a table from a cold snapshot takes to be at its pace.

20 million rows of 32 f16 in row groups of a million (2 million with --quick), in the folder for temporary files, which
must be on a disk and have room for about 4 GB (0.4 GB). Three ways in: Parquet to a snapshot in bounded memory, Parquet
straight into a table in RAM, and a snapshot into a table in RAM with every checksum compared.

For the last, the snapshot's pages are dropped from the page cache first, and it is asked of the system (RWF_NOWAIT)
whether they are gone. The clock then runs from before the file is opened until lookups of 1,000 uniform ids have
reached the pace that they keep: the p99 of a window of 200 lookups, and of the two windows after it, is within 1.2
times the steady one, which is the median p99 of the last ten windows of the same table.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paramserver import Table
from paramserver.convert import convert_parquet
from paramserver.snapshot import load_table
from tools.bench.figures import Figure, figure, missing

__all__ = ["run"]

DIM = 32
GROUP = 1_000_000
LOOKUP_IDS = 1000
WINDOW = 200
WINDOWS, STEADY_WINDOWS, IN_A_ROW = 40, 10, 3
WITHIN = 1.2
CACHED_MAX = 0.02
PROBES = 256
_ODD = np.int64(0x1E3779B97F4A7C15)


def run(quick: bool) -> list[Figure]:
    """Measures the three ways in, on files that it writes first; --quick takes 2M rows, not 20M."""
    rows, rounds = (2_000_000, 2) if quick else (20_000_000, 3)
    at = f"rows={rows // 1_000_000}M"
    with tempfile.TemporaryDirectory(prefix="lambda-svc-bench-") as name:
        folder = Path(name)
        _write(folder / "t.parquet", rows)
        return [*_from_parquet(folder, rows, rounds, at), *_from_snapshot(folder / "t.snap", rows, rounds, at)]


def _from_parquet(folder: Path, rows: int, rounds: int, at: str) -> list[Figure]:
    rates: dict[str, list[float]] = {"snapshot": [], "table": []}
    for _ in range(rounds):
        for name, call in (("snapshot", lambda: convert_parquet(folder / "t.parquet", folder / "t.snap")),
                           ("table", lambda: Table.load(folder / "t.parquet"))):
            start = time.perf_counter()
            call()
            rates[name].append(rows / (time.perf_counter() - start))
    return [figure(f"load.rows_per_s/parquet_to_{name}/{at}", found, "rows/s") for name, found in rates.items()]


def _from_snapshot(path: Path, rows: int, rounds: int, at: str) -> list[Figure]:
    loads, paces, steady_ms = [], [], []
    for _ in range(rounds):
        if not _evicted(path):
            return [missing(f"load.cold_snapshot_to_pace_s/{at}", "s", f"the pages of {path.parent} do not leave the "
                            "page cache: point TMPDIR at a folder on a disk", better="lower")]
        start = time.perf_counter()
        table = load_table(path)
        loads.append(time.perf_counter() - start)
        pace, steady = _pace(table, rows, start)
        paces.append(pace)
        steady_ms.append(steady * 1e3)
        del table
    return [figure(f"load.rows_per_s/cold_snapshot_to_table/{at}", [rows / seconds for seconds in loads], "rows/s"),
            figure(f"load.cold_snapshot_to_pace_s/{at}", paces, "s", better="lower"),
            figure(f"load.of_that_before_the_first_lookup_s/{at}", loads, "s", better="lower"),
            figure(f"load.steady_p99_ms/ids={LOOKUP_IDS}/{at}", steady_ms, "ms", better="lower")]


def _pace(table: Table, rows: int, start: float) -> tuple[float, float]:
    """Seconds from `start` to the end of the first window at the steady p99, and that p99 in seconds."""
    rng = np.random.default_rng(9)
    out = np.empty((LOOKUP_IDS, DIM), np.float32)
    p99s, ends = [], []
    for _ in range(WINDOWS):
        taken = []
        for ids in _ids_of(rng.integers(0, rows, (WINDOW, LOOKUP_IDS))):
            before = time.perf_counter()
            table.lookup(ids, out)
            taken.append(time.perf_counter() - before)
        p99s.append(float(np.percentile(taken, 99)))
        ends.append(time.perf_counter() - start)
    steady = statistics.median(p99s[-STEADY_WINDOWS:])
    within = [p99 <= WITHIN * steady for p99 in p99s]
    first = next((k for k in range(WINDOWS - IN_A_ROW) if all(within[k : k + IN_A_ROW])), WINDOWS - 1)
    return ends[first], steady


def _evicted(path: Path) -> bool:
    """Drops a file's pages from the page cache; False when they are still there."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        size = os.fstat(descriptor).st_size
        places = np.random.default_rng(3).integers(0, size // 4096, PROBES) * 4096
        return sum(_is_cached(descriptor, place) for place in places.tolist()) <= CACHED_MAX * PROBES
    finally:
        os.close(descriptor)


def _is_cached(descriptor: int, place: int) -> bool:
    try:
        return os.preadv(descriptor, [bytearray(1)], place, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False


def _write(path: Path, rows: int) -> None:
    """A Parquet file of random halves, a row group at a time, ids scattered over all 64 bits."""
    rng = np.random.default_rng(2)
    row_type = pa.list_(pa.float16(), DIM)
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("row", row_type)])
    with pq.ParquetWriter(path, schema, use_dictionary=False) as writer:
        for first in range(0, rows, GROUP):
            ids = _ids_of(np.arange(first, min(rows, first + GROUP)))
            values = rng.standard_normal(len(ids) * DIM, np.float32).astype(np.float16)
            row_array = pa.FixedSizeListArray.from_arrays(pa.array(values), type=row_type)
            writer.write_table(pa.Table.from_arrays([pa.array(ids), row_array], schema=schema))


def _ids_of(numbers: np.ndarray) -> np.ndarray:
    """Row numbers to distinct ids over all 64 bits: multiplying by an odd number is a bijection."""
    return numbers.astype(np.int64) * _ODD
