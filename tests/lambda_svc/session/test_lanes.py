"""Lanes of the TensorFlow engine: what a GPU's virtual devices do, on logical devices of the CPU."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

from lambda_svc.errors import ConfigError, EngineError, EngineUnavailable
from lambda_svc.proto.tf_config_pb2 import RunOptions
from lambda_svc.session import GraphSignature, TensorFlowEngine, TensorFlowOptions, TensorSpec, open_engine

LANES = 3
MLP = GraphSignature((TensorSpec("x:0", "f32", (-1, 32)), TensorSpec("u:0", "f32", (1, 32))), ("click:0", "like:0"))
SEEN = """
import sys
from tensorflow.core.protobuf import config_pb2
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        stats = config_pb2.RunMetadata.FromString(file.read()).step_stats
    print(" ".join(f"{d.device.rpartition('/')[2]}={sum('MatMul' in n.node_name for n in d.node_stats)}"
                   for d in stats.dev_stats))
"""


def feeds(rows: int, seed: int = 0) -> list[np.ndarray]:
    """Of the mlp graph."""
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(np.float32) for shape in ((rows, 32), (1, 32))]


@pytest.fixture(scope="module")
def laned(contract_graphs):
    """The mlp graph, a copy on each of LANES devices."""
    engine = TensorFlowEngine(options=TensorFlowOptions(intra_op_threads=2, lanes=LANES))
    return engine.load((contract_graphs / "mlp.pb").read_bytes(), MLP).executable


def test_a_lane_s_products_run_on_its_own_device_and_nowhere_else(laned, tmp_path):
    options = RunOptions(trace_level=3).SerializeToString()
    expected, _ = laned.fetch(feeds(7), 7)
    for lane in range(LANES):
        scores, metadata = laned.trace(feeds(7), 7, lane, options)
        np.testing.assert_array_equal(scores, expected)
        (tmp_path / f"{lane}.pb").write_bytes(metadata)
    files = [str(tmp_path / f"{lane}.pb") for lane in range(LANES)]
    told = subprocess.run([sys.executable, "-c", SEEN, *files], capture_output=True, text=True, check=True)
    products = [dict(part.split("=") for part in line.split()) for line in told.stdout.splitlines()]
    assert len(products) == LANES
    for lane, found in enumerate(products):
        ran = {device: int(count) for device, count in found.items() if int(count)}
        assert list(ran) == [f"device:CPU:{lane}"] and ran[f"device:CPU:{lane}"] >= 2


def test_runs_side_by_side_take_different_lanes_and_score_alike(laned, contract_graphs):
    plain = TensorFlowEngine().load((contract_graphs / "mlp.pb").read_bytes(), MLP).executable
    before, barrier = laned.lane_runs, Barrier(LANES)

    def work(seed: int) -> None:
        barrier.wait()
        for rows in (1, 33, 512) * 20:
            np.testing.assert_allclose(laned.run(feeds(rows, seed), rows)[0], plain.run(feeds(rows, seed), rows)[0],
                                       atol=1e-6, rtol=0)

    with ThreadPoolExecutor(LANES) as pool:
        list(pool.map(work, range(LANES)))
    runs = np.subtract(laned.lane_runs, before)
    assert runs.sum() == LANES * 60
    assert plain.lane_runs == [LANES * 60]


def test_a_run_alone_takes_the_first_lane(laned):
    before = laned.lane_runs
    for _ in range(5):
        laned.run(feeds(3), 3)
    assert np.subtract(laned.lane_runs, before).tolist() == [5, 0, 0]
    with pytest.raises(EngineError, match="lane: got 3; there are 3"):
        laned.trace(feeds(3), 3, LANES, b"")


def test_the_memory_of_all_copies_is_budgeted(contract_graphs):
    graph = (contract_graphs / "mlp.pb").read_bytes()
    options = TensorFlowOptions(lanes=4, device_bytes_max=4 * len(graph) - 1)
    with pytest.raises(EngineError, match=f"device_bytes_max: got {4 * len(graph) - 1}; 4 lanes"):
        TensorFlowEngine(options=options).load(graph, MLP)
    options = TensorFlowOptions(lanes=4, device_bytes_max=4 * len(graph))
    assert len(TensorFlowEngine(options=options).load(graph, MLP).executable.lane_runs) == 4


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="a GPU is here: this test is of hosts without")
@pytest.mark.parametrize("kind", ["tensorflow", "onnxruntime"])
def test_a_gpu_that_is_not_there_is_told_when_the_graph_loads(contract_graphs, kind):
    suffix = {"tensorflow": ".pb", "onnxruntime": ".onnx"}[kind]
    with pytest.raises(EngineUnavailable, match="GPU:0|CUDAExecutionProvider"):
        open_engine(kind, device="gpu").load((contract_graphs / f"mlp{suffix}").read_bytes(), MLP)


@pytest.mark.parametrize(("options", "message"), [
    ({"lanes": -1}, "lanes, device_bytes_max: got -1 and 0"),
    ({"device": "tpu"}, "device: got 'tpu'"),
    ({"device": "gpu"}, "at least one lane"),
    ({"device": "gpu", "lanes": 2}, "got 2 and 0; on a GPU"),
    ({"device": "gpu", "lanes": 1, "precision": "bf16"}, "precision: got 'bf16'; on a GPU"),
])
def test_options_of_lanes_are_checked(options, message):
    with pytest.raises(ConfigError, match=message):
        TensorFlowOptions(**options)
    with pytest.raises(ConfigError, match="device: got 'gpu'; engine openvino"):
        open_engine("openvino", device="gpu")
