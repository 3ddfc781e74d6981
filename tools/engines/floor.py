"""The floor under a request: FLOPs over the fastest products, and bytes over the fastest copies, of this host.

The host is shared and its speed moves, so its peaks are measured in the rounds of whatever is compared with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from lambda_svc.errors import EngineError, EngineUnavailable
from lambda_svc.session import GraphSignature, TensorSpec, usable_cpus
from models.passes import DenseGraph, cost

from .request import Lane, aligned, open_lane

__all__ = ["Peaks", "Probes", "floor_ms"]

_PRODUCTS = ((1024, 1024, 6), (2048, 1024, 4), (4096, 1024, 2), (2048, 2048, 2))
"""Rows, width and how many in a row; the fastest of them counts."""
_ROUNDS = 4
_COPY_BYTES = 256 << 20
_CONSTANT_BYTES = {"f32": 4, "bf16": 2}


@dataclass(frozen=True)
class Peaks:
    """The best that was seen. FLOPs a second by precision, and bytes a second, read and written, of a copy."""

    flops_s: Mapping[str, float]
    bytes_s: float


class Probes:
    """Products in f32 and in bf16, each in the engine and the shape that is fastest here, and a copy of 256 MiB by as
    many threads as there are cores: loaded once, run in turn with what is measured."""

    def __init__(self) -> None:
        found = {precision: _fastest(precision) for precision in _CONSTANT_BYTES}
        copied = _Copy()
        self._runs: dict[str, Callable[[], float]] = {p: run for p, run in found.items() if run is not None}
        self.precisions = tuple(self._runs)
        self._runs["copy"] = copied.bytes_s
        self.samples: dict[str, list[float]] = {name: [] for name in self._runs}
        """FLOPs or bytes a second of every run so far, by precision and "copy"."""

    def variants(self) -> dict[str, Callable[[], float]]:
        """What to run in turn with other variants, by names that start with "peak="."""
        return {f"peak={name}": self._kept(name) for name in self._runs}

    def peaks(self, samples: Mapping[str, tuple[float, ...]]) -> Peaks:
        """The best of the rounds that `variants` ran in: samples by the same names."""
        return Peaks({p: max(samples[f"peak={p}"]) for p in self.precisions}, max(samples["peak=copy"]))

    def _kept(self, name: str) -> Callable[[], float]:
        def run() -> float:
            self.samples[name].append(self._runs[name]())
            return self.samples[name][-1]

        return run


def floor_ms(dense: DenseGraph, n: int, precision: str, seen: Peaks) -> float:
    """The least time of a request with n candidates: the larger of two times, neither of which waits for the other.

    FLOPs of products, what depends on the user once, at the peak of products. And bytes at the peak of copies: feeds
    and scores in float32, constants in the precision, each once.
    """
    fed = sum(_values(entry.shape, n) * (8 if entry.dtype == "i64" else 4) for entry in dense.inputs)
    constants = sum(len(node.attr["value"].tensor.tensor_content) for graph in dense.graphs().values()
                    for node in graph.node if node.op == "Const") * _CONSTANT_BYTES[precision] // 4
    moved = fed + constants + 4 * n * len(dense.heads)
    return 1e3 * max(cost(dense, n).flops / seen.flops_s[precision], moved / seen.bytes_s)


def _values(shape: tuple[int, ...], n: int) -> int:
    return int(np.prod([n if d < 0 else d for d in shape], dtype=np.int64))


def _fastest(precision: str) -> Callable[[], float] | None:
    """Of all shapes in TensorFlow and OpenVINO; None where neither computes in the precision."""
    runs = []
    for kind in ("tensorflow", "openvino"):
        for rows, width, layers in _PRODUCTS:
            try:
                runs.append(_product(Lane(kind, precision), rows, width, layers))
            except (EngineError, EngineUnavailable):
                continue
    return max(runs, key=lambda run: max(run() for _ in range(_ROUNDS)), default=None)


def _product(lane: Lane, rows: int, width: int, layers: int) -> Callable[[], float]:
    """A run of products, which returns its FLOPs a second."""
    import tensorflow as tf

    graph = tf.Graph()
    rng = np.random.default_rng(0)
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, width], name="x")
        y = x
        for _ in range(layers):
            y = tf.matmul(y, rng.normal(0, width**-0.5, (width, width)).astype(np.float32))
        tf.reduce_sum(y, axis=1, name="y")
    signature = GraphSignature((TensorSpec("x:0", "f32", (-1, width)),), ("y:0",))
    loaded = open_lane(lane).load(graph.as_graph_def().SerializeToString(), signature)
    feed = aligned(rng.normal(0, 1, (rows, width)).astype(np.float32))

    def run() -> float:
        start = time.perf_counter()
        loaded.executable.run([feed], rows)
        return 2.0 * layers * rows * width**2 / (time.perf_counter() - start)

    return run


class _Copy:
    """A copy beyond the caches."""

    def __init__(self) -> None:
        source = np.ones(_COPY_BYTES // 8)
        target = np.empty_like(source)
        threads = usable_cpus()
        self._parts = list(zip(np.array_split(target, threads), np.array_split(source, threads), strict=True))
        self._pool = ThreadPoolExecutor(threads)
        self.bytes_s()  # the first touches the pages

    def bytes_s(self) -> float:
        """Bytes read and written a second."""
        start = time.perf_counter()
        list(self._pool.map(lambda part: np.copyto(*part), self._parts))
        return 2.0 * _COPY_BYTES / (time.perf_counter() - start)
