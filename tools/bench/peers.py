"""Id to row to copy against FBGEMM, TFRA, tf.lookup, Boost's and Abseil's maps; in process, one thread, huge pages.

Each peer is a process of its own environment (tools/peers/install.sh; a missing one is reported as missing) with a
table of the same ids and rows; it and our table in this process look up the same batches of 100,000 uniform ids in
turn, and every batch's sums must agree. Times are CPU time of the process, which on one thread is the time on the clock
of a quiet host. A ratio is the peer's time over ours, round by round. 16 million rows of 32 float32; --quick takes half
a million, and leaves tf.lookup's slower table and TFRA to the full run, since TensorFlow takes its time to start.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from paramserver import Table
from tools.bench.figures import Figure, figure, interleave, missing
from tools.peers import Batches, Peer, PeerMissing
from tools.peers.protocol import Spec, filled, ids_of

__all__ = ["run"]

BATCH, DIM = 100_000, 32
PEERS = ("fbgemm", "boost_concurrent_flat_map", "boost_unordered_flat_map", "absl_flat_hash_map", "tf_lookup_dense",
         "tf_lookup_mutable", "tfra_cuckoo")
QUICK_PEERS = PEERS[:5]


def run(quick: bool) -> list[Figure]:
    """Measures every peer that is installed, one at a time."""
    rows, rounds = (500_000, 5) if quick else (16_000_000, 31)
    with tempfile.TemporaryDirectory() as folder:
        batches = Batches.drawn(Path(folder), rows, BATCH, rounds + 2)
        table = Table("bench_peers", DIM, rows_hint=rows)
        for numbers, values in filled(Spec(rows, DIM, BATCH, 1, "")):
            table.upsert(ids_of(numbers), values)
        figures = []
        for name in QUICK_PEERS if quick else PEERS:
            figures += _beside(name, table, batches, rounds, f"rows={rows / 1e6:g}M")
    return figures


def _beside(name: str, table: Table, batches: Batches, rounds: int, at: str) -> Iterator[Figure]:
    ratio, ours_ms = f"peers.times_ours/{name}/{at}", f"peers.ms/beside_{name}/{at}"
    try:
        with Peer(name, len(table), DIM, batches) as peer:
            ours, theirs = _variants(table, peer, batches)
            samples = interleave({"ours": ours, "peer": theirs}, rounds, warmup=2)
            huge = peer.memory["huge_bytes"] / max(1, peer.memory["bytes"])
    except PeerMissing as error:
        yield missing(ratio, "x", str(error), of=ours_ms)
        return
    yield figure(ratio, samples.ratios("peer", "ours"), "x", of=ours_ms)
    yield figure(f"peers.ms/{name}/{at}", samples.samples["peer"], "ms", better="lower", scale=1e3)
    yield figure(ours_ms, samples.samples["ours"], "ms", better="lower", scale=1e3)
    yield figure(f"peers.huge_pages_share/{name}/{at}", [huge], "of RSS")


def _variants(table: Table, peer: Peer, batches: Batches) -> tuple[Callable[[], float], Callable[[], float]]:
    out = np.zeros((BATCH, DIM), np.float32)
    turns = iter(range(len(batches.numbers)))
    state = {"turn": 0, "sum": 0.0}

    def ours() -> float:
        state["turn"] = next(turns)
        ids = ids_of(batches.numbers[state["turn"]])
        start = time.thread_time()
        table.lookup(ids, out)
        seconds = time.thread_time() - start
        state["sum"] = float(out[:, -1].astype(np.float64).sum())
        return seconds

    def theirs() -> float:
        answer = peer.run(state["turn"])
        if answer["sum"] != state["sum"]:
            raise PeerMissing(f"{peer.name} found other rows: their sum is {answer['sum']}, ours {state['sum']}")
        return answer["cpu_s"]

    return ours, theirs
