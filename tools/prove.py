"""`make prove`: everything that takes too long for a merge, step by step, resumable.

Each step is a command; its output goes to build/prove/STEP.log, and once it has succeeded build/prove/STEP.done holds
the commit it ran on and how long it took. A step that is done for the current commit is not run again. Steps do not
stop each other; the exit code is 1 when one failed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

__all__ = ["STEPS", "Step", "main", "run_steps"]

CHECKOUT = Path(__file__).resolve().parent.parent
FOLDER = CHECKOUT / "build" / "prove"
_SHOWN_LINES = 12


@dataclass(frozen=True)
class Step:
    """One thing to prove: `command` runs in the checkout with $PROVE set to the folder of logs."""

    name: str
    summary: str
    command: str


STEPS = (
    Step("seeds", "AUC of the demo's model over three training seeds", "python -m tools.prove_seeds 1 2 3"),
    Step("slow-tests", "tests marked slow: the wheel in an environment of its own, a large export",
         "LAMBDA_SVC_PROVE=1 python -m pytest -q -m slow"),
    Step("lookup", "bench lookup at full size", 'lambda-svc bench lookup --json "$PROVE/lookup.json"'),
    Step("rank", "bench rank at full size", 'lambda-svc bench rank --json "$PROVE/rank.json"'),
    Step("peers-install", "peers in environments of their own; what cannot be had is named", "tools/peers/install.sh"),
    Step("peers", "id to row to copy beside FBGEMM, TFRA, tf.lookup, Boost and Abseil, 16M rows",
         'lambda-svc bench peers --json "$PROVE/peers.json"'),
    Step("pooled-int8", "sums of int8 rows beside FBGEMM, 8M rows",
         'lambda-svc bench pooled_int8 --json "$PROVE/pooled_int8.json"'),
    Step("rowbytes", "bytes a row beyond the payload, 10M rows",
         'lambda-svc bench rowbytes --json "$PROVE/rowbytes.json"'),
    Step("deltas", "lookup p99 under deltas of 1M rows, torn rows",
         'lambda-svc bench deltas --json "$PROVE/deltas.json"'),
    Step("remote", "loopback lookups beside a bare Flight copy and Redis MGET",
         'lambda-svc bench remote --json "$PROVE/remote.json"'),
    Step("tiered", "tables four times their RAM: hit rates, batch latency, cold reads beside plain ones",
         'lambda-svc bench tiered --json "$PROVE/tiered.json"'),
    Step("load", "rows per second from Parquet, and a cold snapshot until lookups keep their pace, 20M rows",
         'lambda-svc bench load --json "$PROVE/load.json"'),
    Step("engines", "passes and engines on every zoo model against the floor, and the trained model's scores",
         'lambda-svc bench engines --json "$PROVE/engines.json"'),
    Step("switch", "200 model switches under load: failed requests, mixed answers, latency, memory",
         'lambda-svc bench switch --json "$PROVE/switch.json"'),
    Step("gpu", "rewritten zoo models on a GPU, where an engine here can use one",
         'lambda-svc bench gpu --json "$PROVE/gpu.json"'),
    Step("durability", "a hundred kills at random system calls, torn logs, full disks, and builds that must fail",
         "LAMBDA_SVC_PROVE=1 python -m pytest -q tests/paramserver/store"),
    Step("chaos", "3 shards x 2 replicas under load: any one process killed, stopped or stalled, both, publishers",
         "LAMBDA_SVC_PROVE=1 python -m pytest -q tests/paramserver/remote"),
    Step("sanitize", "C++ tests under ASan + UBSan, then under TSan", "make sanitize"),
    Step("old-cpus", "C++ tests on emulated CPUs without AVX-512, without AVX2, without AVX", "tools/old_cpus.sh"),
    Step("clean-clone", "make demo and make test on a fresh clone, nothing but /usr/bin", "tools/clean_clone.sh"),
)


def run_steps(steps: Sequence[Step], folder: Path, commit: str, *, again: bool = False) -> list[tuple[Step, str]]:
    """Runs what is not done for `commit`; returns each step with `passed in N s`, `done before in N s` or `failed`."""
    folder.mkdir(parents=True, exist_ok=True)
    console, outcomes = Console(), []
    for step in steps:
        done = _done(folder, step)
        if not again and done.get("commit") == commit:
            outcomes.append((step, f"done before in {done['seconds']:.0f} s"))
            continue
        console.print(f"[bold]{step.name}[/]: {step.summary}", highlight=False)
        seconds, code = _run(step, folder)
        console.print(_tail(folder / f"{step.name}.log"), highlight=False, markup=False)
        if code == 0:
            text = json.dumps({"commit": commit, "seconds": seconds})
            (folder / f"{step.name}.done").write_text(text + "\n", encoding="utf-8")
        outcome = "passed in" if code == 0 else f"failed with {code} after"
        outcomes.append((step, f"{outcome} {seconds:.0f} s"))
    return outcomes


def main(arguments: Sequence[str]) -> int:
    """Runs the steps named, or all; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make prove PROVE=...", description="What takes too long for a merge.")
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(step.name for step in STEPS))
    parser.add_argument("--again", action="store_true", help="run steps that are done already")
    options = parser.parse_args(arguments)
    known = {step.name: step for step in STEPS}
    if set(options.steps) - set(known):
        parser.error(f"no such step; there are: {', '.join(known)}")
    steps = [known[name] for name in options.steps] or STEPS
    outcomes = run_steps(steps, FOLDER, _commit(), again=options.again)
    table = Table("step", "outcome", "log", title="prove", title_justify="left")
    for step, outcome in outcomes:
        table.add_row(step.name, outcome, f"build/prove/{step.name}.log")
    Console().print(table)
    return 1 if any(outcome.startswith("failed") for _, outcome in outcomes) else 0


def _run(step: Step, folder: Path) -> tuple[float, int]:
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '/usr/bin:/bin')}"
    environment = {**os.environ, "PATH": path, "PROVE": str(folder)}
    start = time.monotonic()
    with open(folder / f"{step.name}.log", "wb") as log:
        result = subprocess.run(["bash", "-euo", "pipefail", "-c", step.command], cwd=CHECKOUT, env=environment,
                                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    return time.monotonic() - start, result.returncode


def _done(folder: Path, step: Step) -> dict:
    path = folder / f"{step.name}.done"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-_SHOWN_LINES:])


def _commit() -> str:
    """The commit, and a mark when files differ from it, so that a changed tree is proved again."""
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.strip()
    changes = git("status", "--porcelain")
    return git("rev-parse", "HEAD") + (f"+{_digest(git('diff', 'HEAD') + changes)}" if changes else "")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
