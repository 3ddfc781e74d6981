"""Explain: a logged request scored again, from what was logged, on the version and plan that served it.

What goes in are the logged slots: feature values after transforms, and row ids, whose rows are looked up in the
package's own tables. The graph runs slice by slice, as it did. So a difference is the engine's or the package's, never
that of features which have changed since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from feature_store import SlotValues
from lambda_svc._core import Arena
from lambda_svc.config import ServiceConfig
from lambda_svc.errors import NotFound, PackageRejected
from lambda_svc.lifecycle import load_model, open_cluster, take_in
from lambda_svc.lifecycle.repository import Repository
from lambda_svc.plan import LoadedModel
from lambda_svc.session.streams import Streams
from models.package import GraphInput
from paramserver import RowStatus

__all__ = ["Explained", "LoggedRequest", "explain", "find_request", "status_word"]

_ALIGNMENT = 64
_NO_ROW = 255  # the status of a cell past the length of its list


@dataclass(frozen=True, eq=False)
class LoggedRequest:
    """One row of the log. `heads` {head: float32 [k]} and `rank_scores` float64 [k] are in the order of `positions`;
    `slots` {(side, slot): values}."""

    fields: Mapping[str, Any]
    slots: Mapping[tuple[str, str], SlotValues]
    heads: Mapping[str, np.ndarray]
    positions: np.ndarray
    rank_scores: np.ndarray

    @property
    def candidate_ids(self) -> list[int]:
        """In the request's order."""
        return self.fields["candidate_ids"]


@dataclass(frozen=True, eq=False)
class Explained:
    """What scoring again gave. `heads` {head: float32 [n]} in the request's order; `statuses` {(slot, table): uint8
    [n or 1, ids]} of row lookups, ragged ones end to end; `difference` is the largest to the logged scores, None for
    another version than the one that served."""

    version: int
    engine: str
    heads: Mapping[str, np.ndarray]
    statuses: Mapping[tuple[str, str], np.ndarray]
    difference: float | None
    remote: tuple[str, ...]


def find_request(folder: Path, request_id: str) -> LoggedRequest:
    """The last request of that id in the log. Raises NotFound."""
    files = sorted(folder.glob("*.arrow"), reverse=True)
    for path in files:
        found = None
        for batch in _batches(path):
            rows = np.flatnonzero(batch.column("request_id").to_numpy(zero_copy_only=False) == request_id)
            found = batch.slice(int(rows[-1]), 1) if len(rows) else found
        if found is not None:
            return _logged(found.to_pylist()[0])
    raise NotFound(f"request_id: got {request_id!r}; it is in none of the {len(files)} files of {folder}, which keep a "
                   "share of the requests, and the newest of them")


def explain(config: ServiceConfig, request: LoggedRequest, version: int | None = None) -> Explained:
    """Scores a logged request on the version that served it, or on another one of its model. Raises NotFound when the
    version is not published any more, PackageRejected when it does not load or wants slots that were not logged."""
    model_name, served = request.fields["model"], request.fields["version"]
    version = served if version is None else version
    published = Repository(config).versions(model_name)
    if version not in published:
        raise NotFound(f"version: got {version}; published of {model_name!r} are {published}")
    model = _load(config, request, model_name, version)
    statuses: dict[tuple[str, str], np.ndarray] = {}
    heads = _score(model, request, statuses)
    difference = None
    if version == served:
        difference = max((float(np.max(np.abs(heads[head][request.positions] - scores), initial=0.0))
                          for head, scores in request.heads.items()), default=0.0)
    return Explained(version, model.graphs.items.engine, heads, statuses, difference, tuple(sorted(model.remote)))


def _load(config: ServiceConfig, request: LoggedRequest, name: str, version: int) -> LoadedModel:
    """The version in the engine, precision and variant that served; without stored features, which are not asked."""
    kind = request.fields["engine"].partition(" ")[0]
    engine = config.engine.model_copy(update={"kind": kind, "precision": request.fields["precision"], "streams": 1,
                                              "variant": request.fields["variant"]})
    alone = config.model_copy(update={"engine": engine, "user_features": None, "item_features": None,
                                      "work_dir": config.work_dir / "explain"})
    folder, manifest = take_in(Repository(config).fetch(name, version), alone.work_dir, config.saved_models.get(name))
    if request.fields["variant"] not in {"plain", *(variant.name for variant in manifest.variants)}:
        alone = alone.model_copy(update={"engine": engine.model_copy(update={"variant": "best"})})
    return load_model(folder, manifest, alone, Arena(bytes_max=1 << 20), Streams(1), open_cluster(config))


def _score(model: LoadedModel, request: LoggedRequest, statuses: dict) -> dict[str, np.ndarray]:
    graphs, manifest = model.graphs, model.manifest
    by_name = {entry.name: entry for entry in manifest.graph.inputs}
    fed = {entry.name: _aligned(_feed(model, request, entry, statuses)) for entry in manifest.graph.inputs}
    items = {name for name, entry in by_name.items() if entry.side == "item"}
    if graphs.user is not None:
        shared, _ = graphs.user.executable.fetch([fed[spec.name] for spec in graphs.user.signature.inputs], 1)
        names = [tensor.name for tensor in graphs.variant.shared]
        fed |= {name: _aligned(value) for name, value in zip(names, shared, strict=True)}
    scored, step = request.fields["scored"], request.fields["slice_rows"]
    slices = [(first, min(step, scored - first)) for first in range(0, scored, step)]
    outputs = [graphs.items.executable.fetch([fed[s.name][first:first + rows] if s.name in items else fed[s.name]
                                              for s in graphs.items.signature.inputs], rows)[0]
               for first, rows in slices]
    whole = [np.concatenate([one[i] for one in outputs], axis=-1) for i in range(len(graphs.items.signature.outputs))]
    found = dict(zip(graphs.items.signature.outputs, whole, strict=True))
    if graphs.variant is None:
        return {output.head: found[output.name].reshape(-1) for output in manifest.graph.outputs}
    return {h.head: found[h.name].reshape(-1) if h.row is None else found[h.name][h.row] for h in graphs.variant.heads}


def _feed(model: LoadedModel, request: LoggedRequest, entry: GraphInput, statuses: dict) -> np.ndarray:
    """What the request's slot makes of one input of the graph."""
    source = entry.source
    slot = request.slots.get((entry.side, source.slot))
    if slot is None:
        raise PackageRejected(f"{model.manifest.model} version {model.manifest.version}: slot {source.slot!r} was not "
                              "logged, the version that served had none of that name")
    if source.kind == "lengths":
        return slot.lengths.reshape(-1, *entry.shape[1:])
    if source.kind == "values":
        return slot.values.reshape(-1, *entry.shape[1:])
    table, ids = model.tables[source.table], np.ascontiguousarray(slot.values).reshape(-1)
    status = statuses.setdefault((source.slot, source.table), np.zeros(len(ids), np.uint8))
    if source.kind == "pooled":
        pooled = table.lookup_pooled(ids, slot.offsets, source.mode, status=status)
        return pooled.reshape(-1, *entry.shape[1:])
    rows = table.lookup(ids, status=status)
    if slot.lengths is not None:
        width = slot.values.shape[1]
        past = np.arange(width)[None, :] >= slot.lengths[:, None]
        rows.reshape(-1, width, table.dim)[past] = 0
        status.reshape(-1, width)[past] = _NO_ROW
    return rows.reshape(-1, *entry.shape[1:])


def status_word(status: int) -> str:
    """A row's status as people read it; empty for a cell that holds no id."""
    return "" if status == _NO_ROW else RowStatus(status).name.lower()


def _logged(row: Mapping[str, Any]) -> LoggedRequest:
    slots = {(s["side"], s["slot"]): SlotValues(_array(s["values"]), _array(s["offsets"]), _array(s["lengths"]))
             for s in row["slots"]}
    heads = {entry["head"]: _array(entry["scores"]) for entry in row["heads"]}
    return LoggedRequest(row, slots, heads, np.array(row["positions"], np.int64), np.array(row["rank_scores"]))


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Those that were written whole; a file may still grow, or end where its writer died."""
    with pa.OSFile(str(path), "rb") as source:
        try:
            reader = pa.ipc.open_stream(source)
            yield from reader
        except (pa.ArrowInvalid, OSError):
            return


def _array(stored: Mapping[str, Any] | None) -> np.ndarray | None:
    if stored is None:
        return None
    return np.frombuffer(stored["bytes"], np.dtype(stored["dtype"])).reshape(stored["shape"])


def _aligned(array: np.ndarray) -> np.ndarray:
    """A copy from a 64-byte boundary on, which engines use in place."""
    memory = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    copy = memory[start:start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
