"""The runner's side of a peer that has a Python API: run in the peer's environment, it imports numpy and the standard
library only.

Row r of every table holds the number (r % 1021) in all its places, so that a sum tells whether the right rows came.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

__all__ = ["Spec", "filled", "ids_of", "serve"]

FILL_ROWS = 1 << 18
_ODD = np.int64(0x1E3779B97F4A7C15)


@dataclass(frozen=True)
class Spec:
    """What to build and look up: `batches` is a file of row numbers int64[turns, batch], `bag` ids are pooled at a
    time (1: no pooling)."""

    rows: int
    dim: int
    batch: int
    bag: int
    batches: str
    variant: str = ""


def ids_of(numbers: np.ndarray) -> np.ndarray:
    """Row numbers to distinct ids over all 64 bits: multiplying by an odd number is a bijection."""
    return numbers.astype(np.int64) * _ODD


def filled(spec: Spec):
    """Yields (numbers int64[n], rows float32[n, dim]) until the whole table has come."""
    for first in range(0, spec.rows, FILL_ROWS):
        numbers = np.arange(first, min(spec.rows, first + FILL_ROWS))
        rows = np.repeat((numbers % 1021).astype(np.float32)[:, None], spec.dim, axis=1)
        yield numbers, np.ascontiguousarray(rows)


def serve(prepare: Callable[[Spec], tuple[Callable, Callable, str]]) -> None:
    """Runs a peer: `prepare(spec)` builds its table and returns (ready, look_up, note): `ready(numbers)` turns row
    numbers into the peer's own input, untimed, and `look_up(input)` returns float32[n, dim] and is timed."""
    spec = Spec(**json.loads(sys.argv[1]))
    ready, look_up, note = prepare(spec)
    turns = np.memmap(spec.batches, np.int64, "r").reshape(-1, spec.batch)
    _say({"ready": True, "note": note, **_memory()})
    for line in sys.stdin:
        given = ready(np.array(turns[int(line) % len(turns)]))
        cpu, wall = time.process_time(), time.perf_counter()
        rows = look_up(given)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        _say({"cpu_s": cpu, "wall_s": wall, "sum": float(np.asarray(rows)[:, -1].astype(np.float64).sum())})


def _say(answer: dict) -> None:
    print(json.dumps(answer), flush=True)


def _memory() -> dict:
    """Bytes of this process, and those of them that lie in huge pages."""
    found = {}
    with open("/proc/self/smaps_rollup", encoding="ascii") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name in ("Rss", "AnonHugePages"):
                found[name] = int(value.split()[0]) * 1024
    return {"bytes": found.get("Rss", 0), "huge_bytes": found.get("AnonHugePages", 0)}
