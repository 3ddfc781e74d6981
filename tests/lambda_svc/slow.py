"""The world's plan with a graph that is a Python function: tests say what a run of the model takes, and see each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from lambda_svc._core import PythonExecutable
from lambda_svc.lifecycle.load import signature_of
from lambda_svc.plan import LoadedGraphs, ScenarioPlan, compile_plan
from lambda_svc.session.engine import LoadedGraph
from lambda_svc.session.streams import Streams

__all__ = ["plan_that_calls"]


def plan_that_calls(plan: ScenarioPlan, before_run: Callable[[int], None], streams: int = 1, **config) -> ScenarioPlan:
    """`plan` with a graph whose heads are (price + its number): `before_run(rows)` is called at each run. It has
    streams of its own. `config` replaces fields of the scenario's configuration."""
    signature = signature_of(plan.model.manifest)
    names = [entry.name for entry in signature.inputs]

    def run(feeds):
        price = np.array(feeds[names.index("price:0")]).reshape(-1)
        before_run(len(price))
        return [price + np.float32(head) for head in range(len(signature.outputs))]

    executable = PythonExecutable(run, [(s.name, s.dtype, list(s.shape)) for s in signature.inputs],
                                  signature.fetches())
    graphs = LoadedGraphs(LoadedGraph(executable, signature, "python", "f32", callback=True))
    changed = plan.config.model_copy(update=config)
    model = dataclasses.replace(plan.model, graphs=graphs, streams=Streams(streams))
    return compile_plan(plan.scenario, changed, model)
