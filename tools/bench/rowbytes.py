"""Bytes per row beyond the payload: of a table that knew its size, of one that grew, and the peak while growing.

10 million rows of 32 f16 (2 million with --quick), upserted in batches of 65,536. Each table is built in a new process
whose resident memory is read before, after and at its peak (VmHWM, reset before the first row), so that what the
allocator keeps, pages touched for nothing and an old index beside a new one all count. The payload is 64 bytes a row.
"""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paramserver import Table
from tools.bench.figures import Figure, figure

__all__ = ["run"]

DIM, PAYLOAD_BYTES = 32, 64
BATCH = 1 << 16
STEADY_BYTES_MAX = 24
_ODD = np.int64(0x1E3779B97F4A7C15)


@dataclass(frozen=True)
class _Memory:
    steady: float  # bytes a row beyond the payload, once the table is built
    peak: float  # the same at its highest while building
    counted: float  # the same by the table's own stats


def run(quick: bool) -> list[Figure]:
    """Builds a table with and one without rows_hint, each in a process of its own; --quick takes 2M rows, not 10M."""
    rows = 2_000_000 if quick else 10_000_000
    at, rounds = f"rows={rows // 1_000_000}M", 1 if quick else 3
    figures = []
    for kind, hint in (("hinted", rows), ("grown", 0)):
        found = [_in_a_process(rows, hint) for _ in range(rounds)]
        figures += [
            figure(f"rowbytes.beyond_payload/steady/{kind}/{at}", [one.steady for one in found], "B/row",
                   better="lower", target=STEADY_BYTES_MAX),
            figure(f"rowbytes.beyond_payload/peak/{kind}/{at}", [one.peak for one in found], "B/row", better="lower"),
            figure(f"rowbytes.beyond_payload/by_stats/{kind}/{at}", [one.counted for one in found], "B/row",
                   better="lower"),
        ]
    return figures


def _in_a_process(rows: int, hint: int) -> _Memory:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_build, (rows, hint))


def _build(rows: int, hint: int) -> _Memory:
    values = np.ones((BATCH, DIM), np.float32)
    numbers = np.arange(BATCH)
    # One batch through a table that is thrown away: what the first call of its kind costs is no table's.
    Table("before", DIM, dtype="f16").upsert(numbers, values)
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    table = Table("rowbytes", DIM, dtype="f16", rows_hint=hint)
    for first in range(0, rows, BATCH):
        n = min(BATCH, rows - first)
        table.upsert((first + numbers[:n]) * _ODD, values[:n])
    payload = rows * PAYLOAD_BYTES
    return _Memory((_resident("VmRSS") - before - payload) / rows, (_resident("VmHWM") - before - payload) / rows,
                   (table.stats().bytes - payload) / rows)


def _resident(name: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0
