"""From a version's folder in the repository to plans that may serve: taken in, loaded, proven, warm."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lambda_svc._core import Arena
from lambda_svc.config import ServiceConfig
from lambda_svc.lifecycle.auto_engine import settle
from lambda_svc.lifecycle.golden import check_golden
from lambda_svc.lifecycle.intake import take_in
from lambda_svc.lifecycle.load import load_model, open_cluster
from lambda_svc.lifecycle.warm import warm
from lambda_svc.plan import LoadedModel, ScenarioPlan, compile_plan
from lambda_svc.session.streams import Streams

__all__ = ["Preparer", "Prepared"]

log = logging.getLogger("lambda_svc")


@dataclass(frozen=True)
class Prepared:
    """One version of a model, ready to serve: a plan for each scenario that its model serves.

    `folder` is the copy that it was loaded from.
    """

    model: str
    version: int
    folder: Path
    plans: Mapping[str, ScenarioPlan]


class Preparer:
    """Prepares versions, one at a time. What all versions of a model share, its streams and the arena, is kept here."""

    def __init__(self, config: ServiceConfig) -> None:
        """Raises ConfigError when the cluster of shards cannot be opened."""
        self._config = config
        self._arena = Arena(bytes_max=config.arena_bytes_max)
        self._cluster = open_cluster(config)
        self._streams = {scenario.model: Streams(config.engine.streams) for scenario in config.scenarios.values()}

    @property
    def epoch(self) -> int | None:
        """The newest epoch known of the cluster of shards; None without a cluster."""
        return None if self._cluster is None else self._cluster.epoch

    def prepare(self, source: Path) -> Prepared:
        """The version in `source`, a folder of the repository. Raises a LambdaError naming what is wrong with it."""
        config = self._config
        folder, manifest = take_in(source, config.work_dir, config.saved_models.get(source.parent.name))
        model = load_model(folder, manifest, config, self._arena, self._streams[manifest.model], self._cluster)
        scenarios = {name: s for name, s in config.scenarios.items() if s.model == manifest.model}
        if config.engine.kind == "auto" and not model.graphs.saved_model:
            model = settle(folder, model, next(iter(scenarios.items())), config.engine, config.repository)
        plans = {name: self._plan(name, folder, model) for name in scenarios}
        return Prepared(manifest.model, manifest.version, folder, plans)

    def _plan(self, scenario: str, folder: Path, model: LoadedModel) -> ScenarioPlan:
        plan = compile_plan(scenario, self._config.scenarios[scenario], model)
        golden = ", ".join(f"{head} {worst:.1e}" for head, worst in check_golden(folder, plan).items())
        warm(folder, plan)
        proof = f"golden within {golden}" if golden else "a SavedModel as it came, without golden scores to prove it"
        log.info("scenario %s: %s version %d, %s", scenario, plan.wire.model, plan.wire.version, proof)
        return plan

    @staticmethod
    def forget(prepared: Prepared) -> None:
        """Removes the copy of a version that serves no more."""
        shutil.rmtree(prepared.folder, ignore_errors=True)
