"""What each pass and engine does to one model: nodes, FLOPs, bytes, times, score differences.

Imports tensorflow.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from lambda_svc.errors import EngineError, EngineUnavailable
from models.errors import GraphError
from models.passes import PASSES, Cost, DenseGraph, apply, cost
from models.rewritten import run as framework_scores
from tools.bench.figures import host_line, interleave

from .request import DenseRequest, Lane, lanes
from .scores import Differences, differences

__all__ = ["PLAIN", "ROUNDS", "EngineReport", "Step", "measure_report"]

PLAIN, ROUNDS = "plain", 7


@dataclass(frozen=True)
class Step:
    """The graph after a pass, on top of those before: its cost, and by lane (ms, differences) or why it was skipped."""

    name: str
    cost: Cost
    lanes: Mapping[Lane, tuple[float, Differences] | str]


@dataclass(frozen=True)
class EngineReport:
    """All steps of a model at a number of candidates, "plain" first; `stopped` is the pass that ended the chain, with
    its reason."""

    model: str
    candidates: int
    host: str
    steps: tuple[Step, ...]
    stopped: tuple[str, str] | None = None


def measure_report(model: str, plain: DenseGraph, feeds: Mapping[str, np.ndarray], candidates: int,
                   told: Callable[[str], None] = lambda _: None) -> EngineReport:
    """Applies pass after pass and runs each step in each engine, in turn; `told` hears what is going on. A pass that
    cannot read the graph ends the chain and is named."""
    want = framework_scores(plain, feeds)
    graphs, stopped = _chain(plain, told)
    requests: dict[tuple[str, Lane], DenseRequest] = {}
    found: dict[str, dict] = {name: {} for name in graphs}
    for name, dense in graphs.items():
        for lane in lanes():
            told(f"loading {name} in {lane.kind} {lane.precision}")
            try:
                requests[name, lane] = DenseRequest(dense, feeds, lane)
            except (EngineError, EngineUnavailable, GraphError) as error:
                found[name][lane] = str(error)
    told("measuring")
    samples = interleave({key: _timed(request) for key, request in requests.items()}, ROUNDS, warmup=2)
    for (name, lane), request in requests.items():
        taken = statistics.median(samples.samples[name, lane]) * 1e3
        found[name][lane] = taken, differences(request.run(), want)
    steps = tuple(Step(name, cost(dense, candidates), found[name]) for name, dense in graphs.items())
    return EngineReport(model, candidates, host_line(), steps, stopped)


def _chain(plain: DenseGraph, told: Callable[[str], None]) -> tuple[dict[str, DenseGraph], tuple[str, str] | None]:
    graphs = {PLAIN: plain}
    for count, name in enumerate(PASSES, 1):
        told(f"pass {name}")
        try:
            graphs[name] = apply(plain, list(PASSES)[:count])
        except GraphError as error:
            return graphs, (name, str(error))
    return graphs, None


def _timed(request: DenseRequest) -> Callable[[], None]:
    def once() -> None:
        request.run()

    return once
