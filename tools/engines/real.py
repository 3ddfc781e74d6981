"""The model trained on MovieLens-100K in every engine and precision, against the framework's own scores.

The zoo's weights are random; what a lower precision does to scores that mean something shows only here. Imports
tensorflow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from lambda_svc.errors import EngineError, EngineUnavailable
from models import movielens
from models.errors import GraphError, SourceUnavailableError
from models.export import Artifacts, build, dense_graph
from models.inputs import INTERFACE
from models.metrics import auc
from models.passes import apply
from models.train import Trained, train
from models.trained import servable
from tools.bench.figures import Figure, figure, missing

from .request import DenseRequest, Lane, lane_name, lanes
from .scores import differences

__all__ = ["real_data"]

REQUESTS, CANDIDATES = 40, 500
LABELLED_MAX = 4_000
AUC_DIFFERENCE_MAX = 1e-4


def real_data() -> Iterator[Figure]:
    """Scores of REQUESTS of test users with CANDIDATES films each, and the AUC over test ratings."""
    try:
        trained = train(movielens.load("movielens"))
    except SourceUnavailableError as error:
        yield missing("engines.real.auc_difference", "1", str(error), better="lower")
        return
    parts = build(servable(trained))
    dense = apply(dense_graph(servable(trained), parts))
    feeds = _Feeds(trained, parts)
    rng = np.random.default_rng(0)
    chosen = rng.choice(trained.split.test, REQUESTS, replace=False)
    films = [rng.choice(len(trained.rows.item_ids), CANDIDATES, replace=False) for _ in chosen]
    asked = [feeds.of(row, items) for row, items in zip(chosen, films, strict=True)]
    want = _joined([feeds.framework(row, items) for row, items in zip(chosen, films, strict=True)])
    labelled = rng.choice(trained.split.test, min(LABELLED_MAX, len(trained.split.test)), replace=False)
    labels = trained.rows.labels["liked"][labelled]
    whole = auc(labels, trained.scores(labelled)["liked"])
    yield figure("engines.real.auc", [whole], "1")
    for lane in lanes():
        try:
            yield from _lane(lane, dense, feeds, asked, want, labelled, labels, whole)
        except (EngineError, EngineUnavailable, GraphError) as error:
            yield missing(f"engines.real.auc_difference/{lane_name(lane)}", "1", str(error), better="lower")


def _lane(lane: Lane, dense, feeds: _Feeds, asked, want, labelled, labels, whole: float) -> Iterator[Figure]:
    request = DenseRequest(dense, asked[0], lane)
    answers = [request.run(one) for one in asked]
    each = [differences(got, {h: v[i] for h, v in want.items()}) for i, got in enumerate(answers)]
    got = {head: np.concatenate([one[head] for one in answers]) for head in want}
    every = differences(got, {head: values.ravel() for head, values in want.items()})
    at = lane_name(lane)
    if lane.precision == "f32":
        yield figure(f"engines.real.score_difference/{at}", [every.probability], "1", better="lower", target=1e-6)
    yield figure(f"engines.real.logit_p99/{at}", [every.logit_p99], "1", better="lower", target=0.02)
    yield figure(f"engines.real.mean_shift/{at}", [every.mean_shift], "1", better="lower", target=1e-3)
    yield figure(f"engines.real.top10/{at}", [float(np.mean([one.top10 for one in each]))], "1", target=0.99)
    scores = [request.run(feeds.of(row, np.array([row])))["liked"][0] for row in labelled]
    yield figure(f"engines.real.auc_difference/{at}", [abs(auc(labels, np.array(scores)) - whole)], "1",
                 better="lower", target=AUC_DIFFERENCE_MAX)


def _joined(parts: list[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """{head: [requests, candidates]}"""
    return {head: np.stack([part[head] for part in parts]) for head in parts[0]}


class _Feeds:
    """Feeds of the cut graph: the user of one rating row beside the films of others."""

    def __init__(self, trained: Trained, parts: Artifacts):
        self._trained = trained
        self._cuts = {cut.ids: cut for cut in parts.cuts}
        self._tables = {name: table.read(0, table.shape[0]) for name, table in parts.tables.items()}
        self._entries = {entry.name: entry for entry in INTERFACE.inputs}
        self._model_rows = trained.examples

    def framework(self, row: int, items: np.ndarray) -> dict[str, np.ndarray]:
        """The framework's scores of the user at rating row `row` and the films of rating rows `items`."""
        inputs = self._batch(row, items)
        logits = self._trained.model(inputs)
        return {head: 1 / (1 + np.exp(-np.float64(logit))) for head, logit in zip(("liked", "engaged"), logits,
                                                                                strict=True)}

    def _batch(self, row: int, items: np.ndarray) -> dict[str, np.ndarray]:
        """Inputs of the uncut graph, every leading dimension being the number of films."""
        theirs = self._model_rows.batch(items)
        user = self._model_rows.batch(np.full(len(items), row))
        return {name: theirs[name] if INTERFACE.side(entry) == "item" else user[name]
                for name, entry in self._entries.items()}

    def of(self, row: int, items: np.ndarray) -> dict[str, np.ndarray]:
        """The same as feeds of the cut graph: one user, rows for ids."""
        batch, feeds = self._batch(row, items), {}
        for name, entry in self._entries.items():
            value = batch[name] if INTERFACE.side(entry) == "item" else batch[name][:1]
            cut = self._cuts.get(name)
            if cut is None:
                feeds[f"{name}:0"] = value
            elif cut.mode == "rows":
                feeds[f"{cut.input}:0"] = self._tables[entry.table][value]
            else:
                feeds[f"{cut.input}:0"] = _mean(self._tables[entry.table][value], batch[f"{name}_segments"], len(items))
        return {name: value for name, value in feeds.items() if not name.endswith("_segments:0")}


def _mean(rows: np.ndarray, segments: np.ndarray, bags: int) -> np.ndarray:
    """float32 [bags, dim]: the mean row of each bag, 0 for an empty one."""
    sums = np.zeros((bags, rows.shape[1]), np.float32)
    np.add.at(sums, segments, rows)
    return sums / np.maximum(np.bincount(segments, minlength=bags), 1).astype(np.float32)[:, None]
