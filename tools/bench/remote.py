"""Lookups over loopback beside a bare Flight copy and Redis MGET, and, a table of its own, the same in process.

A server process holds a table of 2 million rows of 32 f16 (300,000 with --quick); the native client looks up 1, 1,000,
10,000 and 100,000 uniform ids, rows as f16 on the wire, in turn with a bare copy: a Flight server that answers as many
ids with as many bytes from one block of memory, looked up nowhere. Redis 7 (tools/peers/install.sh redis; reported as
missing otherwise) answers MGET of the same 100,000 ids to its C client, in turn with the same lookup. Times are of the
clock, client and servers share the cores. A bare copy and its client are driven from Python, which costs them some 0.1
ms a message: read the ratios at 10,000 ids and more.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from paramserver import Table
from paramserver.remote import Cluster
from tools.bench.bare_flight import BareCopy
from tools.bench.figures import Figure, figure, interleave, missing
from tools.bench.one_shard import one_shard
from tools.peers import Batches, Peer, PeerMissing
from tools.peers.protocol import Spec, filled, ids_of

__all__ = ["run"]

DIM, ROW_BYTES = 32, 64
SIZES = (1, 1_000, 10_000, 100_000)
TIMES_BARE_MAX = 1.5
Lookup = Callable[[np.ndarray, np.ndarray], object]


def run(quick: bool) -> list[Figure]:
    """Measures in process, then over loopback; --quick takes a smaller table and fewer rounds."""
    rows, rounds = (300_000, 15) if quick else (2_000_000, 101)
    table = Table("bench", DIM, dtype="f16", rows_hint=rows)
    for numbers, values in filled(Spec(rows, DIM, 1, 1, "")):
        table.upsert(ids_of(numbers), values)
    figures = [one for size in SIZES for one in _in_process(table, size, rounds)]
    with tempfile.TemporaryDirectory() as name, one_shard(Path(name), table) as directory:
        with Cluster(directory, wire="f16", deadline_ms=60_000) as cluster:
            remote = cluster.table("bench")
            with BareCopy(ROW_BYTES, max(SIZES)) as bare:
                for size in SIZES:
                    figures += _beside_bare(remote.lookup, table, bare, size, rounds)
            figures += _beside_redis(remote.lookup, Path(name), rows, rounds)
    return figures


def _in_process(table: Table, size: int, rounds: int) -> Iterator[Figure]:
    out, draw = np.zeros((size, DIM), np.float16), _draw(len(table), size)
    samples = interleave({"call": lambda: _seconds(table.lookup, ids_of(draw()), out)}, rounds, warmup=3).samples
    yield figure(f"remote.in_process_ms/ids={size}", samples["call"], "ms", better="lower", scale=1e3)


def _beside_bare(lookup: Lookup, table: Table, bare: BareCopy, size: int, rounds: int) -> Iterator[Figure]:
    out, draw = np.zeros((size, DIM), np.float16), _draw(len(table), size)
    copied = np.zeros((size, ROW_BYTES), np.uint8)
    ids = ids_of(draw())
    lookup(ids, out)
    if not np.array_equal(out, table.lookup(ids, np.zeros_like(out))):
        raise RuntimeError(f"a remote lookup of {size} ids gave other rows than the table")
    found = interleave({"remote": lambda: _seconds(lookup, ids_of(draw()), out),
                        "bare": lambda: _seconds(bare.copy, ids_of(draw()), copied)}, rounds, warmup=3)
    bare_ms = f"remote.bare_copy_ms/ids={size}"
    yield figure(f"remote.loopback_ms/ids={size}", found.samples["remote"], "ms", better="lower", scale=1e3)
    yield figure(f"remote.loopback_p99_ms/ids={size}", [float(np.percentile(found.samples["remote"], 99))], "ms",
                 better="lower", scale=1e3)
    yield figure(bare_ms, found.samples["bare"], "ms", better="lower", scale=1e3)
    yield figure(f"remote.times_bare/ids={size}", found.ratios("remote", "bare"), "x", better="lower", of=bare_ms,
                 target=TIMES_BARE_MAX if size == max(SIZES) else None)


def _beside_redis(lookup: Lookup, folder: Path, rows: int, rounds: int) -> Iterator[Figure]:
    size = max(SIZES)
    name, of = f"remote.redis_times_ours/ids={size}", f"remote.loopback_ms/beside_redis/ids={size}"
    rounds = min(rounds, 31)
    batches = Batches.drawn(folder, rows, size, rounds + 2)
    out, turn = np.zeros((size, DIM), np.float16), iter(range(2 * len(batches.numbers)))

    def ours() -> float:
        return _seconds(lookup, ids_of(batches.numbers[next(turn) % len(batches.numbers)]), out)

    try:
        with Peer("redis_mget", rows, DIM, batches, row_bytes=ROW_BYTES) as peer:
            redis_turn = iter(range(len(batches.numbers)))
            found = interleave({"ours": ours, "redis": lambda: peer.run(next(redis_turn))["wall_s"]}, rounds, warmup=2)
    except PeerMissing as error:
        yield missing(name, "x", str(error), of=of)
        return
    yield figure(name, found.ratios("redis", "ours"), "x", of=of)
    yield figure(of, found.samples["ours"], "ms", better="lower", scale=1e3)
    yield figure(f"remote.redis_mget_ms/ids={size}", found.samples["redis"], "ms", better="lower", scale=1e3)


def _draw(rows: int, size: int) -> Callable[[], np.ndarray]:
    rng = np.random.default_rng(size)
    return lambda: rng.integers(0, rows, size)


def _seconds(call: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start
