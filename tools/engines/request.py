"""One request's dense part in an engine: the user's graph once, then the items' graph, on aligned memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from lambda_svc.session import (
    Engine,
    GraphSignature,
    LoadedGraph,
    TensorFlowEngine,
    TensorFlowOptions,
    TensorSpec,
    open_engine,
)
from lambda_svc.session.onnxruntime import OnnxRuntimeEngine, OnnxRuntimeOptions
from models.onnx import to_onnx
from models.passes import DenseGraph

__all__ = ["DenseRequest", "Lane", "aligned", "lane_name", "lanes", "open_lane"]

_ALIGNMENT = 64


class Lane(NamedTuple):
    """An engine and a precision; `options` of the engine where they are not the default."""

    kind: str
    precision: str
    options: TensorFlowOptions | OnnxRuntimeOptions | None = None


def lanes() -> tuple[Lane, ...]:
    """What can be measured: every engine in every precision that it may have."""
    return tuple(Lane(kind, precision) for kind in ("tensorflow", "openvino", "onnxruntime")
                 for precision in ("f32", "bf16") if (kind, precision) != ("onnxruntime", "bf16"))


def lane_name(lane: Lane) -> str:
    """As figures name it: engine=openvino,precision=bf16."""
    return f"engine={lane.kind},precision={lane.precision}"


def open_lane(lane: Lane) -> Engine:
    """The engine. Raises EngineUnavailable."""
    if isinstance(lane.options, TensorFlowOptions):
        return TensorFlowEngine(options=lane.options)
    if isinstance(lane.options, OnnxRuntimeOptions):
        return OnnxRuntimeEngine(lane.options)
    return open_engine(lane.kind, lane.precision)


class DenseRequest:
    """A dense graph loaded in an engine, with the feeds of one request. Raises EngineError or EngineUnavailable when it
    does not load, GraphError when the engine's format lacks an operation."""

    def __init__(self, dense: DenseGraph, feeds: Mapping[str, np.ndarray], lane: Lane, slice_rows: int = 0):
        """`feeds` are {input: array}; `slice_rows`: candidates per run of the items' graph, 0 all at once."""
        self._dense = dense
        self._feeds = {name: aligned(value) for name, value in feeds.items()}
        self._items = {entry.name for entry in dense.inputs if entry.side == "item"}
        self._slice_rows = slice_rows
        engine = open_lane(lane)
        graphs = to_onnx(dense) if lane.kind == "onnxruntime" else {
            part: graph.SerializeToString(deterministic=True) for part, graph in dense.graphs().items()}
        self.items = engine.load(graphs["item"], _item_signature(dense))
        self._user = engine.load(graphs["user"], _user_signature(dense)) if dense.user is not None else None

    def run(self, feeds: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """{head: float32 [n]} of the request, or of another one's feeds."""
        feeds = self._with_user(self._feeds if feeds is None else feeds)
        n = max(len(feeds[name]) for name in self._items)
        slice_rows = self._slice_rows or n
        parts = []
        for first in range(0, n, slice_rows):
            rows = min(slice_rows, n - first)
            parts.append(self.items.executable.fetch(self._fed(self.items, feeds, first, rows), rows)[0])
        outputs = {name: np.concatenate([part[i] for part in parts], axis=-1)
                   for i, name in enumerate(self._dense.outputs)}
        return {h.head: outputs[h.name] if h.row is None else outputs[h.name][h.row] for h in self._dense.heads}

    def trace(self, lane: int, run_options: bytes) -> bytes:
        """The serialised tensorflow.RunMetadata of the items' graph on a lane; of TensorFlow only."""
        feeds = self._with_user(self._feeds)
        n = max(len(feeds[name]) for name in self._items)
        return self.items.executable.trace(self._fed(self.items, feeds, 0, n), n, lane, run_options)[1]

    def _with_user(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The feeds, and what the user's graph makes of them."""
        if self._user is None:
            return dict(feeds)
        shared, _ = self._user.executable.fetch(self._fed(self._user, feeds, 0, 1), 1)
        return dict(feeds) | {entry.name: value for entry, value in zip(self._dense.shared, shared, strict=True)}

    def _fed(self, graph: LoadedGraph, feeds: Mapping[str, np.ndarray], first: int, rows: int) -> list[np.ndarray]:
        return [feeds[spec.name][first:first + rows] if spec.name in self._items else feeds[spec.name]
                for spec in graph.signature.inputs]


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that starts at a 64-byte boundary, as the arena's tensors do."""
    memory = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    copy = memory[start:start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _inputs(dense: DenseGraph, part: str) -> tuple[TensorSpec, ...]:
    names = {node.name for node in dense.graphs()[part].node}
    entries = (*dense.inputs, *(dense.shared if part == "item" else ()))
    return tuple(TensorSpec(e.name, e.dtype, e.shape) for e in entries if e.name.partition(":")[0] in names)


def _item_signature(dense: DenseGraph) -> GraphSignature:
    if dense.heads[0].row is None:
        return GraphSignature(_inputs(dense, "item"), dense.outputs)
    return GraphSignature(_inputs(dense, "item"), dense.outputs, ((len(dense.heads), -1),))


def _user_signature(dense: DenseGraph) -> GraphSignature:
    return GraphSignature(_inputs(dense, "user"), tuple(entry.name for entry in dense.shared),
                          tuple(entry.shape for entry in dense.shared))
