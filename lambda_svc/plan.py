"""The plan: everything about a request that can be decided at load.

From a package's manifest, the stored features and the tables it makes one native `Pipeline` per scenario: which slot or
table rows feed which input of the graph, in the graph's own order. What does not fit together ends here, as PlanError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import count
from typing import TYPE_CHECKING

from feature_store import Extractor, FeatureCache
from lambda_svc._core import Arena, Formula, Pipeline, PlanInput
from lambda_svc.config import ScenarioConfig
from lambda_svc.proto import ranking_pb2 as pb
from lambda_svc.request import SIDES, RequestSpec
from lambda_svc.session.engine import LoadedGraph
from lambda_svc.session.streams import Streams
from models.package import PLAIN, GraphInput, Manifest, Variant
from paramserver import Table

if TYPE_CHECKING:
    from paramserver.hot_cache import HotRowCache
    from paramserver.remote import RemoteTable

__all__ = ["LoadedGraphs", "LoadedModel", "ScenarioPlan", "compile_plan", "extractors_for"]

_serials = count(1)
FORMULAS_MAX = 64  # formulas of requests that are kept compiled, per scenario


@dataclass(frozen=True)
class LoadedGraphs:
    """The dense part in an engine: the items' graph and, when the variant splits it off, the user's. No variant: the
    plain graph, or a SavedModel as it came."""

    items: LoadedGraph
    variant: Variant | None = None
    user: LoadedGraph | None = None
    saved_model: bool = False

    @property
    def name(self) -> str:
        """The variant's name; "saved_model" for one that was never exported."""
        if self.saved_model:
            return "saved_model"
        return PLAIN if self.variant is None else self.variant.name


@dataclass(frozen=True)
class LoadedModel:
    """One version of a model in memory: what all scenarios that serve it share."""

    manifest: Manifest
    graphs: LoadedGraphs
    extractors: Mapping[str, Extractor]  # by side; a side without slots is absent
    caches: Mapping[str, FeatureCache | None]  # by side, user and item; None: requests bring the side's features
    tables: Mapping[str, Table | RemoteTable | HotRowCache]
    arena: Arena
    streams: Streams
    remote: frozenset[str] = frozenset()  # names of the tables that live on shards


@dataclass(frozen=True)
class ScenarioPlan:
    """What a request of one scenario runs: immutable, shared by all its requests."""

    scenario: str
    config: ScenarioConfig
    model: LoadedModel
    pipeline: Pipeline
    pipeline_for: Callable[[str], Pipeline]  # the same with another formula; raises FormulaError
    spec: RequestSpec
    heads: tuple[str, ...]
    wire: pb.Plan
    serial: int = field(default_factory=lambda: next(_serials))  # its own: no other plan of this process has it


def extractors_for(manifest: Manifest, caches: Mapping[str, FeatureCache | None]) -> dict[str, Extractor]:
    """One extractor per side that has slots, each over its side's cache (none: the request brings the features)."""
    extractors = {}
    for side in SIDES:
        slots = manifest.slots_of(side)
        if slots:
            extractors[side] = Extractor(manifest.schema, slots, side, caches.get(side))
    return extractors


def compile_plan(scenario: str, config: ScenarioConfig, model: LoadedModel) -> ScenarioPlan:
    """Binds a model to a scenario. Raises PlanError or FormulaError naming what does not fit."""
    manifest = model.manifest
    pipeline_for = lru_cache(maxsize=FORMULAS_MAX)(partial(_pipeline, config, model))
    order = {side: [feature.name for feature in extractor.features] for side, extractor in model.extractors.items()}
    return ScenarioPlan(
        scenario=scenario,
        config=config,
        model=model,
        pipeline=_pipeline(config, model, config.formula),
        pipeline_for=pipeline_for,
        spec=RequestSpec.of(manifest.schema, order, config.candidates_max, config.formula_inputs),
        heads=_heads(manifest),
        wire=pb.Plan(
            model=manifest.model, version=manifest.version, engine=model.graphs.items.engine,
            precision=model.graphs.items.precision, variant=model.graphs.name
        ),
    )


def _pipeline(config: ScenarioConfig, model: LoadedModel, formula: str) -> Pipeline:
    manifest, tables, graphs = model.manifest, list(model.tables), model.graphs
    items, users = _inputs_of(graphs, manifest)
    capsules = {side: extractor.capsule for side, extractor in model.extractors.items()}
    return Pipeline(
        arena=model.arena,
        executable=graphs.items.capsule,
        user=capsules.get("user"),
        context=capsules.get("context"),
        item=capsules.get("item"),
        tables=[(name, model.tables[name].capsule) for name in tables],
        inputs=[_plan_input(entry, manifest, tables) for entry in items],
        formula=Formula(formula, list(_heads(manifest)), list(config.formula_inputs)),
        slice_rows=config.slice_rows,
        user_cached=model.caches["user"] is not None,
        item_cached=model.caches["item"] is not None,
        user_executable=None if graphs.user is None else graphs.user.capsule,
        user_inputs=[_plan_input(entry, manifest, tables) for entry in users],
    )


def _inputs_of(graphs: LoadedGraphs, manifest: Manifest) -> tuple[list[GraphInput], list[GraphInput]]:
    """What requests feed to the items' graph, and to the user's, in the graphs' order."""
    if graphs.variant is None:
        return list(manifest.graph.inputs), []
    by_name = {entry.name: entry for entry in manifest.graph.inputs}
    user = graphs.variant.user
    return ([by_name[name] for name in graphs.variant.inputs],
            [] if user is None else [by_name[name] for name in user.inputs])


def _heads(manifest: Manifest) -> tuple[str, ...]:
    return tuple(output.head for output in manifest.graph.outputs)


def _plan_input(entry: GraphInput, manifest: Manifest, tables: list[str]) -> PlanInput:
    """Names become native indexes; the manifest has been checked, so every name is there."""
    source = entry.source
    names = [slot.name for slot in manifest.slots_of(entry.side)]
    return PlanInput(
        side=entry.side,
        kind=source.kind,
        slot_index=names.index(source.slot),
        table_index=-1 if source.table is None else tables.index(source.table),
        pooling=source.mode or "sum",
    )
