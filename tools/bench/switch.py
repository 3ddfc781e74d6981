"""Model switches under steady load: failed requests, mixed answers, latency beside quiet windows, memory.

A server, a process of its own on one core, serves the demo's model to an open loop on the other, at 40% of the rate
that it reached in a closed one just before. Versions are published one after another, two models in turn; a switch
window lasts from the publication until the version before is let go of, and a quiet one as long follows. Every answer
is compared with what its version's model says: a mix of one's graph and the other's tables is a third model.
`p99_ratio` is of the pooled latencies of ten switches and their quiet windows, timed from the schedule; `memory_ratio`
is the resident memory after the last switch over that after the tenth. 200 switches; --quick makes 10, too few for it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np

from lambda_svc.proto import ranking_pb2 as pb
from lambda_svc.proto import ranking_pb2_grpc as pb_grpc
from models.package import manifest_bytes, read_manifest
from tools.bench.figures import Figure, figure
from tools.bench.switch_setup import SCENARIO

__all__ = ["run"]

CANDIDATES, REQUESTS = 256, 8
LOAD_SHARE = 0.4
GROUP = 10
CLOSED_S, CALLERS = 3.0, 4
PATIENCE_S = 120.0


def run(quick: bool) -> list[Figure]:
    """Measures."""
    with tempfile.TemporaryDirectory(prefix="lambda_svc-switch-") as name:
        folder = Path(name)
        made = subprocess.run([sys.executable, "-m", "tools.bench.switch_setup", name], capture_output=True, text=True)
        if made.returncode:
            raise RuntimeError(f"the models cannot be made: {made.stderr[-2000:]}")
        with _cores() as (mine, theirs):
            publish(folder, 1)
            with _server(folder, theirs) as (process, port):
                os.sched_setaffinity(0, {mine})
                return _measure(folder, process.pid, port, 10 if quick else 200)


def _measure(folder: Path, pid: int, port: int, switches: int) -> list[Figure]:
    load = Load(port, folder)
    load.learn(1)
    rate = LOAD_SHARE * load.closed_loop()
    groups: list[tuple[list[float], list[float]]] = []
    memory: list[float] = []
    taken: list[float] = []
    load.start(rate)
    _switch(folder, load, 2)
    load.learn(2)  # from here on each answer can be checked
    for count in range(1, switches + 1):
        start = time.perf_counter()
        if (count - 1) % GROUP == 0:
            groups.append(([], []))
        load.collect(groups[-1][0])
        _switch(folder, load, count + 2)
        taken.append(time.perf_counter() - start)
        load.collect(groups[-1][1])
        time.sleep(taken[-1])  # the quiet window: its length is what is measured
        if count % GROUP == 0:
            memory.append(_resident_bytes(pid))
    load.stop()
    ratios = [float(np.quantile(busy, 0.99) / np.quantile(quiet, 0.99)) for busy, quiet in groups]
    quiet = [float(np.quantile(quiet, 0.99)) for _, quiet in groups]
    found = [
        figure("switch.requests", [load.answered], "1"),
        figure("switch.failed", [len(load.failed)], "1", better="lower", target=0),
        figure("switch.mixed", [load.mixed], "1", better="lower", target=0),
        figure("switch.p99_ratio", ratios, "x", better="lower", of="switch.quiet_p99_ms", target=1.5),
        figure("switch.quiet_p99_ms", quiet, "ms", better="lower", scale=1e3),
        figure("switch.rate", [rate], "1/s"),
        figure("switch.seconds", taken, "s", better="lower"),
        figure("switch.memory_bytes", memory, "B", better="lower"),
    ]
    if len(memory) > 1:
        found.append(figure("switch.memory_ratio", [memory[-1] / memory[0]], "x", better="lower",
                            of="switch.memory_bytes", target=1.05))
    return found


def publish(folder: Path, version: int) -> None:
    """The model whose turn it is, under this version, there at once and whole."""
    made = folder / "made" / "AB"[(version - 1) % 2]
    [source] = made.glob("*/1")
    target = folder / "repository" / source.parent.name / str(version)
    staged = folder / "staged"
    shutil.copytree(source, staged)
    manifest = replace(read_manifest(source), version=version)
    (staged / "manifest.json").write_bytes(manifest_bytes(manifest))
    staged.rename(target)


def _switch(folder: Path, load: Load, version: int) -> None:
    """Publishes and waits until it serves and the one before is let go of; then the one before is removed."""
    publish(folder, version)
    [model] = (folder / "repository").glob("[!.]*")
    end = time.perf_counter() + PATIENCE_S
    before = folder / "run/packages" / model.name / str(version - 1)
    while load.newest < version or before.exists():
        if time.perf_counter() > end:
            raise RuntimeError(f"version {version} does not serve after {PATIENCE_S:.0f} s; last failures: "
                               f"{load.failed[-3:]}")
        time.sleep(0.01)
    shutil.rmtree(model / str(version - 1))


class Load:
    """An open loop, timed from its schedule, that checks what comes back."""

    def __init__(self, port: int, folder: Path) -> None:
        import pyarrow.parquet as pq

        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._stub = pb_grpc.RankingStub(self._channel)
        users = pq.read_table(folder / "features/users.parquet", columns=["id"])["id"].to_numpy()
        items = pq.read_table(folder / "features/items.parquet", columns=["id"])["id"].to_numpy()
        rng = np.random.default_rng(0)
        self._requests = [pb.RankRequest(scenario=SCENARIO, user_id=int(rng.choice(users)),
                                         candidate_ids=rng.choice(items, CANDIDATES).astype("<i8").tobytes())
                          for _ in range(REQUESTS)]
        self._expected: dict[tuple[int, int], np.ndarray] = {}
        self._samples: list[float] | None = None
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self.answered = self.mixed = self.newest = 0
        self.failed: list[str] = []

    def learn(self, version: int) -> None:
        """What this version answers to each request; another version of the same model must answer alike."""
        for i, request in enumerate(self._requests):
            answer = self._stub.Rank(request, timeout=60, wait_for_ready=True)
            if answer.plan.version != version:
                raise RuntimeError(f"version {answer.plan.version} answers; expected {version}")
            self._expected[version % 2, i] = _scores(answer)

    def closed_loop(self) -> float:
        """Requests a second with a few callers that ask one after another."""
        end, counts = time.perf_counter() + CLOSED_S, [0] * CALLERS

        def call(caller: int) -> None:
            while time.perf_counter() < end:
                self._stub.Rank(self._requests[counts[caller] % REQUESTS], timeout=60)
                counts[caller] += 1

        threads = [threading.Thread(target=call, args=(caller,)) for caller in range(CALLERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / CLOSED_S

    def start(self, rate: float) -> None:
        """Asks `rate` times a second from now on, whatever the answers do."""
        self._thread = threading.Thread(target=self._ask, args=(1 / rate,))
        self._thread.start()

    def collect(self, samples: list[float]) -> None:
        """Latencies of requests that are due from now on go there, in seconds."""
        self._samples = samples

    def stop(self) -> None:
        """Ends the loop and waits for its answers."""
        self._stopped.set()
        self._thread.join()
        self._channel.close()

    def _ask(self, gap_s: float) -> None:
        due, sent, pending = time.perf_counter(), 0, []
        while not self._stopped.is_set():
            time.sleep(max(0.0, due - time.perf_counter()))
            call = self._stub.Rank.future(self._requests[sent % REQUESTS], timeout=60)
            call.add_done_callback(self._take(sent % REQUESTS, due, self._samples))
            pending = [one for one in pending if not one.done()] + [call]
            due, sent = due + gap_s, sent + 1
        for call in pending:
            call.exception()

    def _take(self, request: int, due: float, samples: list[float] | None):
        def taken(call) -> None:
            seconds = time.perf_counter() - due
            error = call.exception()
            with self._lock:
                if error is not None:
                    self.failed.append(str(error.code()))
                    return
                self._check(request, call.result())
                if samples is not None:
                    samples.append(seconds)

        return taken

    def _check(self, request: int, answer: pb.RankResponse) -> None:
        self.answered += 1
        self.newest = max(self.newest, answer.plan.version)
        expected = self._expected.get((answer.plan.version % 2, request))
        if expected is not None and not np.allclose(_scores(answer), expected, atol=1e-6, rtol=0):
            self.mixed += 1


def _scores(answer: pb.RankResponse) -> np.ndarray:
    """float32 [heads, n], in the order of the request's candidates."""
    order = np.argsort(np.frombuffer(answer.positions, "<u4"))
    return np.array([np.frombuffer(head.scores, "<f4")[order] for head in answer.heads])


def _resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/status has no VmRSS")


@contextmanager
def _cores():
    """(the generator's core, the server's): one each where there are two."""
    before = os.sched_getaffinity(0)
    ordered = sorted(before)
    try:
        yield ordered[0], ordered[-1]
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _server(folder: Path, core: int):
    """(process, port) of a server pinned to a core, once it is ready."""
    log = folder / "server.log"
    command = [sys.executable, "-m", "tools.cli", "serve", str(folder / "service.yaml")]
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                   preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    try:
        end = time.perf_counter() + PATIENCE_S
        while "ready on" not in (text := log.read_text()):
            if process.poll() is not None or time.perf_counter() > end:
                raise RuntimeError(f"the server does not start: {text[-2000:]}")
            time.sleep(0.05)
        yield process, int(text.partition("ready on ")[2].split()[0].rpartition(":")[2])
    finally:
        process.terminate()
        process.wait(60)
