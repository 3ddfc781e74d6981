"""Warm-up: before a version may serve, every size of run that its requests will need has been run once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lambda_svc.lifecycle.golden import TIME_LIMIT_S, golden_request
from lambda_svc.plan import ScenarioPlan

__all__ = ["buckets", "warm"]


def buckets(plan: ScenarioPlan) -> Iterator[int]:
    """Numbers of candidates: powers of two up to a slice, since a longer request is run slice by slice, then the most
    that the scenario allows, for which the arena grows."""
    slice_rows, most = plan.config.slice_rows, plan.config.candidates_max
    n = 1
    while n < min(slice_rows, most):
        yield n
        n *= 2
    if slice_rows < most:
        yield slice_rows
    yield most


def warm(folder: Path, plan: ScenarioPlan) -> None:
    """Ranks golden candidates in every bucket. Raises PackageRejected, EngineError."""
    for n in buckets(plan):
        plan.pipeline.rank(**_request(folder, plan, n))


def _request(folder: Path, plan: ScenarioPlan, n: int) -> dict:
    if plan.model.manifest.golden is not None:
        return golden_request(folder, plan, n)
    return dict(user_id=0, candidate_ids=np.zeros(n, np.int64), top_k=0,
                formula_inputs=[np.ones(n, np.float32) for _ in plan.config.formula_inputs],
                deadline_ns=time.monotonic_ns() + TIME_LIMIT_S * 10**9)
