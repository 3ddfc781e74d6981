"""Served ranking requests against the bare executable, the stock path, and a busy interpreter.

The model is the demo's DIN MMoE on MovieLens features. Per round and candidate count, in turn:

* served: one Rank RPC over loopback, features and rows looked up by the server;
* bare: the executable alone, in this process, on the same ready-made feeds, in the server's slices (for this model
  faster than one run over all candidates, so the stricter baseline);
* stock: a Predict message with user features tiled by the client, parsed into arrays, Python session, uncut model;
  the message is serialized beforehand, so building it costs nothing here.

* bare_rpc: the bare executable behind an RPC that brings nothing and returns nothing: what gRPC in Python costs around
  the same run, waking up of threads included.

`overhead_ms` is served minus bare in the same round, `own_ms` is served minus bare_rpc: what is ours of it.
`outside_engine_ms` is the client's time minus the server's own `run` stage: the overhead without the model's noise.

`busy_p99_ratio` is the p99 beside one thread that only computes in Python in the server, over the p99 without, in turn:
with the engine on one core (threads=1), so that the busy thread takes the interpreter and not the engine's cores, and
on all of them.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path

import grpc
import numpy as np

from lambda_svc.client import RankingClient
from lambda_svc.config import load
from models.package import read_manifest
from tools.bench.figures import Figure, Interleaved, figure, interleave
from tools.bench.rank_feeds import in_slices, load_bare, package_of, ready_feeds
from tools.bench.rank_setup import CONTEXT, COUNTS, SCENARIO

__all__ = ["run"]

BASE_MS, PER_CANDIDATE_MS = 0.6, 0.0002
BUSY_RATIO = 1.5
STOCK_METHOD = "/lambda_svc.bench.Stock/Predict"
BARE_METHOD = "/lambda_svc.bench.Bare/Run"


class Child:
    """A helper process that says `ready on port N` and obeys lines on its standard input."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._module = module
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._log, text=True,
        )

    @cached_property
    def target(self) -> str:
        """HOST:PORT, once the process is ready; until they are asked, several start at once. Raises RuntimeError."""
        first = self._process.stdout.readline()
        if not first.startswith("ready on port "):
            self._process.wait(60)
            self._log.seek(0)
            raise RuntimeError(f"{self._module} did not start:\n{self._log.read()[-2000:]}")
        return f"127.0.0.1:{first.split()[-1]}"

    def tell(self, word: str) -> None:
        """Sends a word and waits until it holds."""
        print(word, file=self._process.stdin, flush=True)
        self._process.stdout.readline()

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait(60)
        self._log.close()


@contextmanager
def child(module: str, *arguments: str) -> Iterator[Child]:
    """A Child that ends with the block."""
    process = Child(module, *arguments)
    try:
        yield process
    finally:
        process.close()


def run(quick: bool) -> list[Figure]:
    """All figures; quick: fewer rounds, a model trained on less, the busy thread beside one engine thread only."""
    rounds, calls = (3, 6) if quick else (7, 30)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lambda-svc-bench-")))
        setup = [sys.executable, "-m", "tools.bench.rank_setup", str(folder), "quick" if quick else "full"]
        subprocess.run(setup, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        model, requests = str(folder / "saved_model"), str(folder / "stock")
        stock = stack.enter_context(child("tools.bench.stock_server", model, requests))
        server = stack.enter_context(child("tools.bench.rank_server", str(folder / "service.yaml")))
        bare = stack.enter_context(child("tools.bench.bare_server", str(folder)))
        alone = stack.enter_context(child("tools.bench.rank_server", str(folder / "one_thread.yaml")))
        client = stack.enter_context(RankingClient(server.target))
        options = [("grpc.max_send_message_length", 256 << 20)]
        channel = stack.enter_context(grpc.insecure_channel(stock.target, options))
        bare_channel = stack.enter_context(grpc.insecure_channel(bare.target))
        bench = RankBench(folder, client, channel.unary_unary(STOCK_METHOD), bare_channel.unary_unary(BARE_METHOD))
        figures = [item for count in COUNTS for item in bench.figures(count, rounds, calls)]
        rounds, requests = (3, 20) if quick else (10, 150)
        if not quick:
            figures += busy_figures(bench, server, rounds, requests, "all")
        bench.use(stack.enter_context(RankingClient(alone.target)))
        return figures + busy_figures(bench, alone, rounds, requests, "1")


class RankBench:
    """The three variants over one set-up."""

    def __init__(self, folder: Path, client: RankingClient, stock: Callable[[bytes], bytes],
                 bare_rpc: Callable[[bytes], bytes]) -> None:
        self._folder, self._client, self._stock, self._bare_rpc = folder, client, stock, bare_rpc
        self._package = package_of(folder)
        self._manifest = read_manifest(self._package)
        self._bare = load_bare(self._package, self._manifest).executable
        self._slice_rows = load(folder / "service.yaml").scenarios[SCENARIO].slice_rows
        self._user_id, self._items = 1, np.arange(1, max(COUNTS) + 1)

    def use(self, client: RankingClient) -> None:
        """Ranks through another server from here on."""
        self._client = client

    def rank(self, count: int):
        """One served request of the first `count` films."""
        return self._client.rank(SCENARIO, self._user_id, self._items[:count], context=CONTEXT, timeout_s=60)

    def figures(self, count: int, rounds: int, calls: int) -> list[Figure]:
        """Figures of one candidate count."""
        feeds = ready_feeds(self._package, self._manifest, self._folder, self._user_id, self._items[:count])
        slices = in_slices(self._manifest, feeds, count, self._slice_rows)
        message = (self._folder / f"stock/{count}.predict").read_bytes()
        outside: list[float] = []

        def served() -> float:
            started = time.perf_counter()
            answer = self.rank(count)
            wall = 1e3 * (time.perf_counter() - started)
            outside.append(wall - answer.message.times.run_us / 1e3)
            return wall

        variants = {
            "served": lambda: statistics.median(served() for _ in range(calls)),
            "bare": lambda: _median_ms(lambda: [self._bare.run(part, rows) for part, rows in slices], calls),
            "stock": lambda: _median_ms(lambda: self._stock(message), calls),
            "bare_rpc": lambda: _median_ms(lambda: self._bare_rpc(count.to_bytes(4, "little")), calls),
        }
        return _figures(interleave(variants, rounds), outside[calls:], count, calls)

    def p99_ms(self, requests: int) -> float:
        """p99 over `requests` served requests of all films."""
        walls = []
        for _ in range(requests):
            started = time.perf_counter()
            self.rank(max(COUNTS))
            walls.append(1e3 * (time.perf_counter() - started))
        return float(np.quantile(walls, 0.99))


def _figures(samples: Interleaved, outside: list[float], count: int, calls: int) -> list[Figure]:
    at, target = f"n={count}", BASE_MS + PER_CANDIDATE_MS * count
    overhead = [a - b for a, b in zip(samples.samples["served"], samples.samples["bare"], strict=True)]
    own = [a - b for a, b in zip(samples.samples["served"], samples.samples["bare_rpc"], strict=True)]
    per_round = [statistics.median(outside[i : i + calls]) for i in range(0, len(outside), calls)]
    return [
        figure(f"rank.served_ms/{at}", samples.samples["served"], "ms", better="lower"),
        figure(f"rank.bare_ms/{at}", samples.samples["bare"], "ms", better="lower"),
        figure(f"rank.stock_ms/{at}", samples.samples["stock"], "ms", better="lower"),
        figure(f"rank.bare_rpc_ms/{at}", samples.samples["bare_rpc"], "ms", better="lower"),
        figure(f"rank.overhead_ms/{at}", overhead, "ms", better="lower", of="bare", target=target),
        figure(f"rank.own_ms/{at}", own, "ms", better="lower", of="bare_rpc"),
        figure(f"rank.outside_engine_ms/{at}", per_round, "ms", better="lower", target=target),
        figure(f"rank.stock_over_served/{at}", samples.ratios("stock", "served"), "x", of="served"),
    ]


def busy_figures(bench: RankBench, server: Child, rounds: int, requests: int, threads: str) -> list[Figure]:
    """p99 with a busy Python thread in the server over p99 without, in turn; `threads` of the engine."""

    def measured(word: str) -> float:
        server.tell(word)
        return bench.p99_ms(requests)

    samples = interleave({"quiet": lambda: measured("quiet"), "busy": lambda: measured("busy")}, rounds)
    server.tell("quiet")
    at = f"n={max(COUNTS)},threads={threads}"
    return [
        figure(f"rank.p99_ms/{at},beside=quiet", samples.samples["quiet"], "ms", better="lower"),
        figure(f"rank.p99_ms/{at},beside=busy", samples.samples["busy"], "ms", better="lower"),
        figure(f"rank.busy_p99_ratio/{at}", samples.ratios("busy", "quiet"), "x", better="lower", of="quiet",
               target=BUSY_RATIO),
    ]


def _median_ms(call: Callable[[], object], calls: int) -> float:
    walls = []
    for _ in range(calls):
        started = time.perf_counter()
        call()
        walls.append(1e3 * (time.perf_counter() - started))
    return statistics.median(walls)
