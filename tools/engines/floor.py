"""The floor under a request: FLOPs over the fastest products, and bytes over the fastest copies, of this host."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from lambda_svc.errors import EngineError, EngineUnavailable
from lambda_svc.session import GraphSignature, TensorSpec, usable_cpus
from models.passes import DenseGraph, cost

from .request import Lane, aligned, open_lane

__all__ = ["Peaks", "floor_ms", "peaks"]

_WIDTH, _LAYERS, _ROUNDS = 1024, 6, 7
_COPY_BYTES = 256 << 20


@dataclass(frozen=True)
class Peaks:
    """The best that was seen here. FLOPs a second by precision, and bytes a second, read and written, of a copy."""

    flops_s: dict[str, float]
    bytes_s: float


def peaks() -> Peaks:
    """Measures: products of [1024, 1024] matrices, six in a row, by the faster of TensorFlow and OpenVINO; a copy of
    256 MiB by as many threads as there are cores."""
    flops = {precision: max(_product_flops_s(Lane(kind, precision)) for kind in ("tensorflow", "openvino"))
             for precision in ("f32", "bf16")}
    return Peaks({precision: value for precision, value in flops.items() if value > 0}, _copy_bytes_s())


def floor_ms(dense: DenseGraph, n: int, precision: str, seen: Peaks) -> float:
    """The least time of a request with n candidates. FLOPs of products, what depends on the user once; bytes of feeds
    and constants, read once. Neither waits for the other."""
    fed = sum(_values(entry.shape, n) * (8 if entry.dtype == "i64" else 4) for entry in dense.inputs)
    constants = sum(len(node.attr["value"].tensor.tensor_content) for graph in dense.graphs().values()
                    for node in graph.node if node.op == "Const")
    return 1e3 * max(cost(dense, n).flops / seen.flops_s[precision], (fed + constants) / seen.bytes_s)


def _values(shape: tuple[int, ...], n: int) -> int:
    return int(np.prod([n if d < 0 else d for d in shape], dtype=np.int64))


def _product_flops_s(lane: Lane) -> float:
    """0 where the engine is missing or does not compute in the precision."""
    import tensorflow as tf

    graph = tf.Graph()
    rng = np.random.default_rng(0)
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, _WIDTH], name="x")
        y = x
        for _ in range(_LAYERS):
            y = tf.matmul(y, rng.normal(0, 0.03, (_WIDTH, _WIDTH)).astype(np.float32))
        tf.reduce_sum(y, axis=1, name="y")
    try:
        signature = GraphSignature((TensorSpec("x:0", "f32", (-1, _WIDTH)),), ("y:0",))
        loaded = open_lane(lane).load(graph.as_graph_def().SerializeToString(), signature)
    except (EngineError, EngineUnavailable):
        return 0.0
    feed = aligned(rng.normal(0, 1, (_WIDTH, _WIDTH)).astype(np.float32))
    return 2.0 * _LAYERS * _WIDTH**3 / _best_s(lambda: loaded.executable.run([feed], _WIDTH))


def _copy_bytes_s() -> float:
    source = np.ones(_COPY_BYTES // 8)
    target = np.empty_like(source)
    threads = usable_cpus()
    parts = list(zip(np.array_split(target, threads), np.array_split(source, threads), strict=True))
    with ThreadPoolExecutor(threads) as pool:
        return 2.0 * _COPY_BYTES / _best_s(lambda: list(pool.map(lambda part: np.copyto(*part), parts)))


def _best_s(run: Callable) -> float:
    times = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)
