"""The contract of every engine, in every precision that it offers here."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lambda_svc.errors import ConfigError, EngineError, EngineUnavailable, InvalidRequest
from lambda_svc.session import GRAPH_SUFFIX, GraphSignature, LoadedGraph, TensorSpec, open_engine

X, U = TensorSpec("x:0", "f32", (-1, 4)), TensorSpec("u:0", "f32", (1, 4))
WIDE_X, WIDE_U = TensorSpec("x:0", "f32", (-1, 32)), TensorSpec("u:0", "f32", (1, 32))
ITEM, USER, LENGTH = (TensorSpec(name, dtype, shape) for name, dtype, shape in (
    ("item:0", "i64", (-1,)), ("user:0", "i64", (1,)), ("length:0", "i32", (-1, 1))))
DOT = GraphSignature((X, U), ("y:0", "column:0"))
MLP = GraphSignature((WIDE_X, WIDE_U), ("click:0", "like:0"))
NATIVE = ("tensorflow", "openvino")
ENGINES = [("tensorflow", "f32"), ("openvino", "f32"), ("onnxruntime", "f32")]
PRECISIONS = [*ENGINES, ("tensorflow", "bf16"), ("openvino", "bf16")]
LANES = 2
# A feed of another shape, told by the executable or by TensorFlow.
SHAPE = r"input a:0: got shape \[3,3\]; the signature says \[-1,2\]|Incompatible shapes: \[3,3\] vs. \[3,2\]"


def at_offset(values: np.ndarray, offset: int = 0) -> np.ndarray:
    """The same array `offset` bytes from a 64-byte boundary."""
    memory = np.zeros(values.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    moved = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    moved[...] = values
    return moved


Load = Callable[..., LoadedGraph]


def loader(folder: Path, kind: str, precision: str) -> Load:
    """load(name, signature): a graph in an engine. Skips, with the reason, where this CPU lacks the precision."""
    engine = open_engine(kind, precision, lanes=LANES, threads=2)

    def load(name: str, signature: GraphSignature) -> LoadedGraph:
        try:
            return engine.load((folder / f"{name}{GRAPH_SUFFIX[kind]}").read_bytes(), signature)
        except EngineUnavailable as error:
            pytest.skip(str(error))

    return load


@pytest.fixture(scope="module", params=ENGINES, ids="-".join)
def load(contract_graphs, request) -> Load:
    """The loader of each engine in float32."""
    return loader(contract_graphs, *request.param)


@pytest.fixture(params=PRECISIONS, ids="-".join)
def any_precision(contract_graphs, request) -> tuple[Load, str]:
    """The loader of each engine and precision, with the precision."""
    return loader(contract_graphs, *request.param), request.param[1]


def wide(rows: int, seed: int = 0) -> list[np.ndarray]:
    """Feeds of the mlp graph."""
    random = np.random.default_rng(seed)
    shapes = ((rows, 32), (1, 32))
    return [at_offset(random.standard_normal(shape).astype(np.float32)) for shape in shapes]


def logits(scores: np.ndarray) -> np.ndarray:
    """Inverse of the sigmoid."""
    scores = scores.astype(np.float64)
    return np.log(scores / (1 - scores))


def test_any_number_of_candidates_gives_the_scores_of_the_first_engine(contract_graphs, any_precision):
    load, precision = any_precision
    graph, reference = load("mlp", MLP), loader(contract_graphs, "tensorflow", "f32")("mlp", MLP)
    assert graph.precision == precision
    for rows in (1, 2, 3, 31, 64, 65, 512, 513):
        feeds = wide(rows, rows)
        scores, copied = graph.executable.run(feeds, rows)
        expected, _ = reference.executable.run(feeds, rows)
        assert scores.shape == (2, rows) and scores.dtype == np.float32 and copied == 0
        if precision == "f32":
            np.testing.assert_allclose(scores, expected, atol=1e-6, rtol=0)
        else:
            assert np.quantile(np.abs(logits(scores) - logits(expected)), 0.99) <= 0.02


@pytest.mark.parametrize("kind", NATIVE)
def test_bf16_is_another_computation_where_the_cpu_has_it(contract_graphs, kind):
    feeds = wide(64)
    exact = loader(contract_graphs, kind, "f32")("mlp", MLP).executable.run(feeds, 64)[0]
    assert np.abs(loader(contract_graphs, kind, "bf16")("mlp", MLP).executable.run(feeds, 64)[0] - exact).max() > 0


@pytest.mark.parametrize("offset", [0, 4, 16, 32])
def test_any_alignment_gives_the_same_scores_and_copies_are_counted(load, offset):
    dot = load("dot", DOT).executable
    random = np.random.default_rng(offset)
    x, u = random.random((7, 4), np.float32), random.random((1, 4), np.float32)
    scores, copied = dot.run([at_offset(x, offset), at_offset(u)], 7)
    assert copied == (x.nbytes if offset else 0)
    np.testing.assert_allclose(scores, [(x * u).sum(1), 2 * (x * u).sum(1)], rtol=1e-6)
    again, copied = dot.run([at_offset(x), at_offset(u, offset)], 7)
    assert copied == (u.nbytes if offset else 0)
    np.testing.assert_array_equal(again, scores)


def test_integers_are_fed_as_they_are(load):
    graph = load("ids", GraphSignature((ITEM, USER, LENGTH), ("same:0", "count:0"))).executable
    item, user = np.array([7, -7, 2**31 - 1, 0, 7]), np.array([7])
    scores, _ = graph.run([item, user, np.arange(5, dtype=np.int32)[:, None]], 5)
    np.testing.assert_array_equal(scores, [[1, 0, 0, 0, 1], [0, 3, 6, 9, 12]])


def test_ids_of_64_bits_are_told_apart_or_refused(load):
    loaded = load("ids", GraphSignature((ITEM, USER, LENGTH), ("same:0", "count:0")))
    feeds = [np.array([7 + 2**32, 7]), np.array([7]), np.ones((2, 1), np.int32)]
    if loaded.engine.startswith("openvino"):
        with pytest.raises(EngineError, match="input item:0: got 4294967303; OpenVINO computes int64 in 32 bits"):
            loaded.executable.run(feeds, 2)
    else:
        assert loaded.executable.run(feeds, 2)[0][0].tolist() == [0, 1]


def test_outputs_inside_the_graph_and_inputs_that_nothing_reads(load):
    idle = TensorSpec("idle:0", "f32", (-1, 4))
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    inner = load("inner", GraphSignature((X, idle), ("half:0", "whole:0"))).executable
    np.testing.assert_allclose(inner.run([x, x], 2)[0], [[6, 22], np.sqrt([6, 22])], rtol=1e-6)
    np.testing.assert_allclose(load("inner", GraphSignature((X,), ("half:0",))).executable.run([x], 2)[0], [[6, 22]])


def test_outputs_are_copies(load):
    dot = load("dot", DOT).executable
    feeds = [np.ones((2, 4), np.float32), np.ones((1, 4), np.float32)]
    first, _ = dot.run(feeds, 2)
    dot.run([feeds[0] * 9, feeds[1]], 2)
    np.testing.assert_array_equal(first, [[4, 4], [8, 8]])


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ((TensorSpec("x:0", "i64", (-1, 4)), U), ("y:0",), "input x:0: the graph has"),
        ((TensorSpec("x:0", "f32", (-1, 5)), U), ("y:0",), "input x:0: the graph has shape"),
        ((TensorSpec("x:0", "f32", (-1,)), U), ("y:0",), r"input x:0: .*the signature says \[-1\]"),
        ((TensorSpec("x:0", "bytes", (-1, 4)), U), ("y:0",), "input x:0: dtype bytes"),
        ((X, U), ("score:0",), "output score:0: the graph has no such node"),
        ((X, U), ("whole:0",), "output whole:0: the graph has"),
        ((X, U), (), "outputs: got none"),
    ],
)
def test_a_signature_that_does_not_fit_is_named(load, inputs, outputs, message):
    with pytest.raises(EngineError, match=message):
        load("dot", GraphSignature(inputs, outputs))


def test_an_input_that_is_not_fed_is_named(load):
    with pytest.raises(EngineError, match="u"):
        graph = load("dot", GraphSignature((X,), ("y:0",)))
        graph.executable.run([np.ones((1, 4), np.float32)], 1)


@pytest.mark.parametrize(("kind", "precision"), ENGINES)
def test_what_is_no_graph_is_refused(kind, precision):
    with pytest.raises(EngineError, match="the graph does not load"):
        open_engine(kind, precision).load(b"not a graph", DOT)


def test_the_next_run_is_served_after_an_error(load):
    two = tuple(TensorSpec(name, "f32", (-1, 2)) for name in ("a:0", "b:0"))
    pair = load("pair", GraphSignature(two, ("y:0",))).executable
    ones = np.ones((3, 2), np.float32)
    for _ in range(3 * LANES):
        with pytest.raises(EngineError, match="the graph does not run"):
            pair.run([ones, ones[:2]], 3)
        with pytest.raises(EngineError, match="output y:0: got 3 values; expected one for each of 4 rows"):
            pair.run([ones, ones], 4)
        with pytest.raises(InvalidRequest, match="input b:0: got items of format d"):
            pair.run([ones, ones.astype(np.float64)], 3)
        with pytest.raises(EngineError, match="feeds: got 1"):
            pair.run([ones], 3)
        with pytest.raises(EngineError, match=SHAPE):
            pair.run([np.ones((3, 3), np.float32), ones], 3)
        assert pair.run([ones, ones], 3)[0].tolist() == [[4, 4, 4]]


def test_many_threads_on_few_lanes_get_their_own_scores(any_precision):
    load, precision = any_precision
    graph = load("mlp", MLP).executable
    cases = [(rows, wide(rows, rows)) for rows in (1, 17, 64, 200)]
    expected = {rows: graph.run(feeds, rows)[0] for rows, feeds in cases}
    wrong = []

    def work() -> None:
        for _ in range(25):
            for rows, feeds in cases:
                difference = np.abs(graph.run(feeds, rows)[0] - expected[rows]).max()
                if difference > (1e-6 if precision == "f32" else 1e-2):
                    wrong.append((rows, difference))

    threads = [threading.Thread(target=work) for _ in range(4 * LANES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


GIL = """
import sys, time
import numpy as np
from pathlib import Path
from tests.lambda_svc.session.test_engine_contract import MLP, loader, wide
import threading

graph = loader(Path(sys.argv[1]), sys.argv[2], "f32")("mlp", MLP).executable
feeds = wide(200_000)
sys.setswitchinterval(100)  # nobody is made to give the interpreter up
graph.run(feeds, 200_000)
ticks, stop = [0], threading.Event()

def tick():
    while not stop.is_set():
        ticks[0] += 1
        time.sleep(0)

thread = threading.Thread(target=tick)
thread.start()
before = ticks[0]
graph.run(feeds, 200_000)
during = ticks[0] - before
stop.set()
thread.join()
print(during, "tensorflow" in sys.modules, "openvino" in sys.modules)
"""


@pytest.mark.parametrize("kind", NATIVE)
def test_a_native_run_leaves_the_interpreter_alone_and_imports_no_python_package(contract_graphs, kind):
    command = [sys.executable, "-c", GIL, str(contract_graphs), kind]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], timeout=120)
    assert done.returncode == 0, done.stderr
    ticks, tensorflow, openvino = done.stdout.split()
    assert int(ticks) > 10 and (tensorflow, openvino) == ("False", "False")


@pytest.mark.parametrize(("kind", "callback"), [("tensorflow", False), ("openvino", False), ("onnxruntime", True)])
def test_a_loaded_graph_tells_its_engine_and_whether_it_calls_back(contract_graphs, kind, callback):
    graph = loader(contract_graphs, kind, "f32")("dot", DOT)
    assert graph.engine.startswith(f"{kind} ") and graph.engine.split()[1][0].isdigit()
    assert graph.callback is callback


def test_what_no_engine_offers_is_refused():
    with pytest.raises(ConfigError, match="precision: got 'bf16'; ONNX Runtime"):
        open_engine("onnxruntime", "bf16")
    with pytest.raises(ConfigError, match="expected one of"):
        open_engine("openvino", "f16")
    with pytest.raises(ConfigError, match="engine: got 'torch'"):
        open_engine("torch")
