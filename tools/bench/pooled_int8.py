"""int8 rows of 64 numbers, pooled by sums of 20: ids to bags in one call, against FBGEMM; one thread.

FBGEMM (in an environment of its own, tools/peers/install.sh) takes two calls for what is one here: PrunedMapCPU from
ids (31 bits) to row numbers, and the table batched embedding on int8 rows with float32 sums. `fbgemm_rows` is the
latter alone, on row numbers that need no looking up: what is left when ids cost nothing. Both look up the same batches
of 100,000 uniform ids in turn with ours, with huge pages; CPU time of the process. 8 million rows, 1 million with
--quick. The other figures are ours by row type on the same ids.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from paramserver import Table
from tools.bench.figures import Figure, figure, interleave, missing
from tools.peers import Batches, Peer, PeerMissing
from tools.peers.protocol import Spec, filled, ids_of

__all__ = ["run"]

BATCH, DIM, BAG = 100_000, 64, 20
PEERS = {"fbgemm": "fbgemm_int8", "fbgemm_rows": "fbgemm_int8_rows"}
SPEED_MIN = 1.0


def run(quick: bool) -> list[Figure]:
    """Measures our pooled int8 lookups beside FBGEMM's, then int8 beside f16 and f32; --quick takes 1M rows, not 8M."""
    rows, rounds = (1_000_000, 7) if quick else (8_000_000, 31)
    with tempfile.TemporaryDirectory() as folder:
        batches = Batches.drawn(Path(folder), rows, BATCH, rounds + 2)
        table = _table("int8", rows)
        figures = [one for name in PEERS for one in _beside(name, table, batches, rounds)]
        return [*figures, *_by_dtype(table, batches, rounds)]


def _beside(name: str, table: Table, batches: Batches, rounds: int) -> Iterator[Figure]:
    at = f"rows={len(table) / 1e6:g}M"
    ratio, ours_ms = f"pooled_int8.times_ours/{name}/{at}", f"pooled_int8.ms/beside_{name}/{at}"
    target = SPEED_MIN if name == "fbgemm" else None
    try:
        with Peer(PEERS[name], len(table), DIM, batches, bag=BAG) as peer:
            pool = _Pool(table, batches)
            samples = interleave({"ours": pool.run, "peer": lambda: _theirs(peer, pool)}, rounds, warmup=2)
    except PeerMissing as error:
        yield missing(ratio, "x", str(error), of=ours_ms)
        return
    yield figure(ratio, samples.ratios("peer", "ours"), "x", of=ours_ms, target=target)
    yield figure(f"pooled_int8.ms/{name}/{at}", samples.samples["peer"], "ms", better="lower", scale=1e3)
    yield figure(ours_ms, samples.samples["ours"], "ms", better="lower", scale=1e3)


def _by_dtype(int8: Table, batches: Batches, rounds: int) -> Iterator[Figure]:
    rows = len(int8)
    pools = {"int8": _Pool(int8, batches)} | {name: _Pool(_table(name, rows), batches) for name in ("f16", "f32")}
    samples = interleave({name: pool.run for name, pool in pools.items()}, rounds, warmup=2)
    for name in pools:
        yield figure(f"pooled_int8.ms/by_dtype/{name}/rows={rows / 1e6:g}M", samples.samples[name], "ms",
                     better="lower", scale=1e3)


class _Pool:
    """Our pooled lookups of a table, batch after batch."""

    def __init__(self, table: Table, batches: Batches) -> None:
        self.table, self.batches = table, batches
        self.turn = -1
        self.offsets = np.arange(0, BATCH + 1, BAG, dtype=np.int32)
        self.out = np.zeros((BATCH // BAG, DIM), np.float32)

    def run(self) -> float:
        """Seconds of this thread for the next batch."""
        self.turn += 1
        ids = ids_of(self.batches.numbers[self.turn % len(self.batches.numbers)])
        start = time.thread_time()
        self.table.lookup_pooled(ids, self.offsets, "sum", None, self.out)
        return time.thread_time() - start


def _theirs(peer: Peer, pool: _Pool) -> float:
    answer = peer.run(pool.turn)
    ours = float(pool.out[:, -1].astype(np.float64).sum())
    if abs(answer["sum"] - ours) > 1e-3 * abs(ours):
        raise PeerMissing(f"{peer.name} pooled other rows: their sum is {answer['sum']}, ours {ours}")
    return answer["cpu_s"]


def _table(dtype: str, rows: int) -> Table:
    table = Table(f"bench_pooled_{dtype}", DIM, dtype=dtype, rows_hint=rows)
    for numbers, values in filled(Spec(rows, DIM, BATCH, BAG, "")):
        table.upsert(ids_of(numbers), values)
    return table
