"""The measurements of `bench gpu`: rewritten zoo models in engines that place everything behind the lookups on a card.

Imports tensorflow. `device` cpu measures the same on logical devices of the CPU, which proves the way it is placed, not
the speed. Untested on GPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from lambda_svc.errors import EngineError, EngineUnavailable
from lambda_svc.proto.tf_config_pb2 import RunOptions
from lambda_svc.session import TensorFlowOptions
from lambda_svc.session.onnxruntime import CPU_PROVIDERS, GPU_PROVIDERS, TENSORRT_PROVIDERS, OnnxRuntimeOptions
from models import zoo
from models.errors import GraphError
from models.passes import DenseGraph, apply
from tools.bench.figures import Figure, figure, missing

from .request import DenseRequest, Lane
from .scores import differences

__all__ = ["measure"]

MODELS = (("din", 500), ("two_tower", 5_000), ("dlrm", 500))
LANES = (1, 4)
REQUESTS, SECONDS_MAX = 200, 4.0
"""Of one model, engine and number of lanes: whatever is reached first."""
DEVICE_BYTES_MAX = 8 << 30
_FULL_TRACE = 3


class _Placed(NamedTuple):
    """An engine on the device, `lanes` runs at once."""

    name: str
    lanes: int
    lane: Lane


def measure(quick: bool, device: str = "gpu") -> list[Figure]:
    """Latency, throughput, scores and placement; --quick takes the first model. What is not there is missing."""
    figures: list[Figure] = []
    for name, n in MODELS[:1] if quick else MODELS:
        plain, feeds = zoo.dense(name, "base")
        given = feeds(n, np.random.default_rng(0))
        figures += _model(f"model={name},n={n}", plain, given, device, 1.0 if quick else SECONDS_MAX)
    return figures


def _model(at: str, plain: DenseGraph, feeds: Mapping[str, np.ndarray], device: str,
           seconds: float) -> Iterator[Figure]:
    dense = apply(plain)
    want = DenseRequest(dense, feeds, Lane("tensorflow", "f32")).run()
    cpu = _alone(DenseRequest(dense, feeds, Lane("openvino", "f32")), seconds)
    yield figure(f"gpu.cpu_ms/{at},engine=openvino", cpu, "ms", better="lower", scale=1e3)
    for placed in _engines(device):
        key = f"{at},engine={placed.name},lanes={placed.lanes}"
        try:
            request = DenseRequest(dense, feeds, placed.lane)
            found = differences(request.run(), want)
            alone = _alone(request, seconds)
        except (EngineError, EngineUnavailable, GraphError) as error:
            yield missing(f"gpu.ms/{key}", "ms", str(error), better="lower")
            continue
        yield figure(f"gpu.ms/{key}", alone, "ms", better="lower", scale=1e3)
        yield figure(f"gpu.requests_s/{key}", [_together(request, placed.lanes, seconds)], "1/s")
        yield figure(f"gpu.score_difference/{key}", [found.probability], "1", better="lower", target=1e-3)
        if placed.lane.kind == "tensorflow":
            yield from _placement(request, key, device)


def _engines(device: str) -> Iterator[_Placed]:
    for lanes in LANES:
        options = TensorFlowOptions(lanes=lanes, device=device, device_bytes_max=DEVICE_BYTES_MAX)
        yield _Placed("tensorflow", lanes, Lane("tensorflow", "f32", options))
        for name, providers in _providers(device):
            onnx = OnnxRuntimeOptions(lanes=lanes, providers=providers, device_bytes_max=DEVICE_BYTES_MAX)
            yield _Placed(name, lanes, Lane("onnxruntime", "f32", onnx))


def _providers(device: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if device == "cpu":
        return (("onnxruntime", CPU_PROVIDERS),)
    return (("onnxruntime-cuda", GPU_PROVIDERS), ("onnxruntime-tensorrt", TENSORRT_PROVIDERS))


def _alone(request: DenseRequest, seconds: float) -> list[float]:
    """Seconds of each request, one after the other; the first ones are forgotten."""
    for _ in range(3):
        request.run()
    taken: list[float] = []
    while len(taken) < REQUESTS and sum(taken) < seconds:
        start = time.perf_counter()
        request.run()
        taken.append(time.perf_counter() - start)
    return taken


def _together(request: DenseRequest, lanes: int, seconds: float) -> float:
    """Requests a second with as many callers as lanes."""
    start = time.perf_counter()

    def ask(_: int) -> int:
        done = 0
        while done < REQUESTS and time.perf_counter() - start < seconds:
            request.run()
            done += 1
        return done

    with ThreadPoolExecutor(lanes) as pool:
        done = sum(pool.map(ask, range(lanes)))
    return done / (time.perf_counter() - start)


def _placement(request: DenseRequest, key: str, device: str) -> Iterator[Figure]:
    """How many nodes of the items' graph ran on their lane's device, and how many of the products did not."""
    from tensorflow.core.protobuf import config_pb2

    options = RunOptions(trace_level=_FULL_TRACE).SerializeToString()
    inside = outside = 0
    for lane in range(len(request.items.executable.lane_runs)):
        stats = config_pb2.RunMetadata.FromString(request.trace(lane, options)).step_stats
        # A card's trace has its streams as devices of their own: "/device:GPU:0/stream:all" repeats what ran there.
        devices = {found.device: found.node_stats for found in stats.dev_stats if "stream" not in found.device}
        mine = f"device:{device.upper()}:{lane}"
        inside += sum(len(nodes) for name, nodes in devices.items() if name.endswith(mine))
        outside += sum("MatMul" in node.node_name for name, nodes in devices.items() if not name.endswith(mine)
                       for node in nodes)
    yield figure(f"gpu.nodes_on_device/{key}", [inside], "1")
    yield figure(f"gpu.products_elsewhere/{key}", [outside], "1", better="lower", target=0)
