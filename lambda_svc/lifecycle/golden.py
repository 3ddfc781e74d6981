"""Golden check: before a version may serve, its own golden rows go through the whole plan and must give their scores.

Each group of golden rows is one request (one user and context, several candidates) that brings all its features along,
so transforms, lookups, graph and slices are checked together, unknown ids included.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from feature_store import Column, FeatureError
from lambda_svc.errors import EngineError, PackageRejected
from lambda_svc.plan import ScenarioPlan
from lambda_svc.request import SIDES, NativeColumn

__all__ = ["check_golden", "golden_request"]

TIME_LIMIT_S = 120
TRIED_ROWS = 64

log = logging.getLogger(__name__)


def check_golden(folder: Path, plan: ScenarioPlan) -> dict[str, float]:
    """Re-scores golden.arrow; returns the largest difference per head. Raises PackageRejected beyond the tolerance.

    A SavedModel as it came has no golden rows: that it runs at all is tried, and nothing is returned.
    """
    golden = plan.model.manifest.golden
    if golden is None:
        _try_once(plan)
        return {}
    try:
        with pa.memory_map(str(folder / golden.file)) as source:
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=True)
        if table.num_rows != golden.rows:
            raise PackageRejected(f"{golden.file}: has {table.num_rows} rows, the manifest says {golden.rows}")
        worst = {head: 0.0 for head in plan.heads}
        for group in _groups(table):
            for head, difference in _differences(group, plan).items():
                worst[head] = float(np.maximum(worst[head], difference))  # max() would let a NaN pass
    except (pa.ArrowException, KeyError, TypeError, OSError, FeatureError) as error:
        raise PackageRejected(f"{golden.file}: golden rows cannot be replayed: {error}") from error
    tolerance = golden.tolerance_in(plan.wire.precision)
    if not tolerance:
        raise PackageRejected(f"{golden.file}: the manifest has no tolerance for {plan.wire.precision}, so the package "
                              "is not for it; set engine.precision to f32")
    for head, difference in worst.items():
        if difference <= tolerance[head]:
            continue
        problem = (f"{golden.file}: head {head!r} differs from its golden scores by {difference:.3g}, "
                   f"the manifest allows {tolerance[head]:.3g} in {plan.wire.precision}")
        if not plan.model.remote or not np.isfinite(difference):
            raise PackageRejected(problem)
        # The golden scores are of the rows as exported, and deltas change rows on the shards.
        log.warning("%s; rows of %s come from shards and may be newer", problem, ", ".join(sorted(plan.model.remote)))
    return worst


def _try_once(plan: ScenarioPlan) -> None:
    """Ranks candidates of default features. Raises PackageRejected when the graph cannot."""
    rows = min(TRIED_ROWS, plan.config.candidates_max)
    try:
        plan.pipeline.rank(user_id=0, candidate_ids=np.zeros(rows, np.int64), top_k=0,
                           formula_inputs=[np.ones(rows, np.float32) for _ in plan.config.formula_inputs],
                           deadline_ns=time.monotonic_ns() + TIME_LIMIT_S * 10**9)
    except EngineError as error:
        raise PackageRejected(f"{plan.wire.model} version {plan.wire.version} does not run on default features: "
                              f"{error}") from error


def golden_request(folder: Path, plan: ScenarioPlan, candidates: int) -> dict:
    """Arguments for Pipeline.rank: the first golden group with its candidates repeated. Raises PackageRejected."""
    golden = plan.model.manifest.golden
    try:
        with pa.memory_map(str(folder / golden.file)) as source:
            group = next(_groups(pa.ipc.open_file(source).read_all()))
        rows = min(candidates, plan.config.candidates_max)
        group = pa.concat_tables([group] * -(-rows // group.num_rows)).slice(0, rows).combine_chunks()
        return _request(group, plan)
    except (pa.ArrowException, KeyError, TypeError, OSError, FeatureError, StopIteration) as error:
        raise PackageRejected(f"{golden.file}: golden rows cannot be replayed: {error}") from error


def _groups(table: pa.Table) -> Iterator[pa.Table]:
    group = table.column("group").to_numpy()
    starts = np.flatnonzero(np.diff(group, prepend=group[:1] - 1))
    for start, end in zip(starts, [*starts[1:], len(group)]):
        yield table.slice(start, end - start)


def _differences(group: pa.Table, plan: ScenarioPlan) -> dict[str, float]:
    result = plan.pipeline.rank(**_request(group, plan))
    differences = {}
    for head, scores in zip(plan.heads, result.heads):
        expected = group.column(f"score:{head}").to_numpy()[result.positions]
        differences[head] = float(np.max(np.abs(scores - expected), initial=0.0))
    return differences


def _request(group: pa.Table, plan: ScenarioPlan) -> dict:
    rows = group.num_rows
    return dict(
        user_id=0,
        candidate_ids=np.zeros(rows, np.int64),
        columns=list(_columns(group, plan)),
        formula_inputs=[np.ones(rows, np.float32) for _ in plan.config.formula_inputs],
        top_k=0,
        deadline_ns=time.monotonic_ns() + TIME_LIMIT_S * 10**9,
    )


def _columns(group: pa.Table, plan: ScenarioPlan) -> Iterator[NativeColumn]:
    for side_index, side in enumerate(SIDES):
        part = group if side == "item" else group.slice(0, 1)
        for name, (index, feature) in plan.spec.features[side_index].items():
            column = Column.of(feature, part.column(f"{side}:{name}"))
            yield (side_index, index, column.values, column.row_offsets, column.byte_offsets)
