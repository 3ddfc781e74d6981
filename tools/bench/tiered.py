"""Tables four times their RAM budget: hit rate, batch latency, and cold reads against what the device gives.

Rows of 32 float32 in a snapshot, 4 million (400,000 with --quick), and RAM for a quarter of them. Batches of 100,000
ids drawn with P(rank r) proportional to (r + q)^-s, 2% of them unknown. Some batches run first, so that what is popular
moves into RAM; then each is timed, with the keeper moving rows beside it. The hit rate is of known ids, and is held
against the share that the most popular quarter gets: the most that any fixed choice of rows can reach.

Cold reads: lookups of ids drawn uniformly, none in RAM, against plain threads that read the very same pages, each once
and in the order of the file, in the same rounds. Both read past the page cache (O_DIRECT): it must not serve either,
and where the file system refuses direct reads the figure is missing. What lies below this machine's disk may still
cache.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from paramserver import RowStatus, Table, Tier
from paramserver.ceiling import plain_parallel_read
from paramserver.snapshot import Snapshot, load_table, write_snapshot
from tools.bench.figures import Figure, figure, interleave, missing

__all__ = ["run"]

DIM = 32
ROW_BYTES = 4 * DIM
SLOTS_PER_PAGE = 4096 // ROW_BYTES
TIER_BYTES = 41  # what a tier keeps for each row in RAM, which counts under its budget
BATCH = 100_000
COLD_IDS = 20_000
UNKNOWN = 0.02
POPULARITIES = {"s=1.0,q=10": (1.0, 10.0), "s=1.49": (1.49, 1.0)}
PLAIN_THREADS = (16, 32, 64)
READ_TARGET = 0.8


def run(quick: bool) -> list[Figure]:
    """Measures both popularities and the cold reads; --quick takes 400,000 rows, not 4 million."""
    rows = 400_000 if quick else 4_000_000
    at = f"rows={rows / 1e6:g}M"
    with tempfile.TemporaryDirectory(prefix="lambda-svc-bench-") as directory:
        path = Path(directory) / "bench.snap"
        _write(path, rows)
        figures = _cold_figures(path, at, 5 if quick else 21)
        for name, (s, q) in POPULARITIES.items():
            figures += _popular_figures(path, f"{at}/{name}", s, q, (12, 11) if quick else (40, 41))
    return figures


def _write(path: Path, rows: int) -> None:
    table = Table("bench", DIM, rows_hint=rows)
    for first in range(0, rows, 1 << 17):
        numbers = np.arange(first, min(rows, first + (1 << 17)))
        table.upsert(_ids_of(numbers), np.repeat(numbers[:, None].astype(np.float32), DIM, 1))
    write_snapshot(path, table)


def _tier(path: Path, ram_rows: int, **options: object) -> Tier:
    return Tier(ram_bytes_max=ram_rows * (ROW_BYTES + TIER_BYTES), directory=path.parent, **options)


def _popular_figures(path: Path, at: str, s: float, q: float, batches: tuple[int, int]) -> list[Figure]:
    table = load_table(path, tier=_tier(path, len(Snapshot.open(path)) // 4, proposals_max=1 << 17), verify=False)
    draws = _Popularity(len(table), s, q)
    out, status = np.empty((BATCH, DIM), np.float32), np.empty(BATCH, np.uint8)
    hit_rates, seconds, served = [], [], []
    for turn in range(-batches[0], batches[1]):
        ids = draws.ids(BATCH)
        start = time.perf_counter()
        table.lookup(ids, out, status)
        elapsed = time.perf_counter() - start
        if turn < 0:
            table.maintain()
            continue
        counts = np.bincount(status, minlength=len(RowStatus))
        hit_rates.append(counts[RowStatus.HIT] / (counts[RowStatus.HIT] + counts[RowStatus.COLD]))
        served.append((counts[RowStatus.HIT] + counts[RowStatus.COLD]) / (BATCH - counts[RowStatus.DEFAULT]))
        seconds.append(elapsed)
    best = draws.share_of_first(len(table) // 4)
    return [
        figure(f"tiered.hit_rate/{at}", hit_rates, "share"),
        figure(f"tiered.hit_rate_best_fixed/{at}", [best], "share"),
        figure(f"tiered.hit_rate_ratio/{at}", [rate / best for rate in hit_rates], "x",
               of=f"tiered.hit_rate_best_fixed/{at}"),
        figure(f"tiered.batch_ms_p50/{at}", [float(np.percentile(seconds, 50))], "ms", better="lower", scale=1e3),
        figure(f"tiered.batch_ms_p99/{at}", [float(np.percentile(seconds, 99))], "ms", better="lower", scale=1e3),
        figure(f"tiered.known_ids_served/{at}", served, "share", target=1.0),
    ]


def _cold_figures(path: Path, at: str, rounds: int) -> list[Figure]:
    # RAM for a row, and no keeper: whatever is asked for stays cold.
    table = load_table(path, tier=_tier(path, 1, keeper=False), verify=False)
    name, plain = f"tiered.cold_read_ratio/{at}", f"tiered.plain_read_ms/{at}"
    if not table.tier_stats().base_direct:
        return [missing(name, "x", f"{path.parent} has no direct reads: set TMPDIR to a directory on a disk", of=plain)]
    snapshot = Snapshot.open(path)
    in_file, offset = np.array(snapshot.ids), snapshot.native.slots_offset
    rng = np.random.default_rng(3)
    out = np.empty((COLD_IDS, DIM), np.float32)
    drawn = np.empty(0, np.int64)

    def lookup() -> None:
        nonlocal drawn
        drawn = rng.integers(0, len(in_file), COLD_IDS)
        table.lookup(in_file[drawn], out)

    def read(threads: int) -> float:
        pages = np.unique(drawn // SLOTS_PER_PAGE).astype(np.uint64)
        return plain_parallel_read(str(path), pages * np.uint64(4096) + np.uint64(offset), 4096, threads)

    variants = {f"plain{threads}": lambda threads=threads: read(threads) for threads in PLAIN_THREADS}
    samples = interleave({"lookup": lookup, **variants}, rounds)
    fastest = min(variants, key=samples.median)
    stats = table.tier_stats()
    return [
        figure(name, samples.ratios(fastest, "lookup"), "x", of=plain, target=READ_TARGET),
        figure(plain, samples.samples[fastest], "ms", better="lower", scale=1e3),
        figure(f"tiered.cold_lookup_ms/{at}", samples.samples["lookup"], "ms", better="lower", scale=1e3),
        figure(f"tiered.cold_rows_per_read/{at}", [stats.rows_cold_read / max(1, stats.reads)], "x"),
    ]


class _Popularity:
    """Ids drawn with P(rank r) proportional to (r + q)^-s, r from 0, ranks scattered over the ids."""

    def __init__(self, rows: int, s: float, q: float) -> None:
        self._below = np.cumsum((np.arange(rows) + q) ** -s)
        self._below /= self._below[-1]
        self._rng = np.random.default_rng(5)
        self._row_of_rank = self._rng.permutation(rows)

    def ids(self, n: int) -> np.ndarray:
        ranks = np.minimum(np.searchsorted(self._below, self._rng.random(n)), len(self._below) - 1)
        ids = _ids_of(self._row_of_rank[ranks])
        unknown = self._rng.random(n) < UNKNOWN
        ids[unknown] = _ids_of(len(self._below) + self._rng.integers(0, 1 << 40, int(unknown.sum())))
        return ids

    def share_of_first(self, ranks: int) -> float:
        return float(self._below[ranks - 1])


def _ids_of(numbers: np.ndarray) -> np.ndarray:
    """Row numbers to distinct ids over all 64 bits: multiplying by an odd number is a bijection."""
    return numbers.astype(np.int64) * np.int64(0x1E3779B97F4A7C15)
