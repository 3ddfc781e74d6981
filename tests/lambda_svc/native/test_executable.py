"""A TensorFlow executable through the C API: in place when aligned, copied and counted when not, errors that name."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from lambda_svc._core import TensorFlowLibrary
from lambda_svc.errors import EngineError, EngineUnavailable, InvalidRequest
from lambda_svc.session.engine import GraphSignature, TensorSpec

X = TensorSpec("x:0", "f32", (-1, 4))
U = TensorSpec("u:0", "f32", (1, 4))


def at_offset(values: np.ndarray, offset: int) -> np.ndarray:
    """The same array `offset` bytes from a 64-byte boundary."""
    memory = np.zeros(values.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    moved = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    moved[...] = values
    assert moved.ctypes.data % 64 == offset
    return moved


@pytest.fixture(scope="module")
def dot(graphs, engine):
    """x [n, 4] times u [1, 4], heads y and column."""
    return engine.load((graphs / "dot.pb").read_bytes(), GraphSignature((X, U), ("y:0", "column:0"))).executable


@pytest.mark.parametrize("offset", [0, 1, 4, 16, 32])
def test_any_alignment_gives_the_same_scores_and_copies_are_counted(dot, offset):
    rng = np.random.default_rng(offset)
    x, u = rng.random((7, 4), np.float32), rng.random((1, 4), np.float32)
    expected, copied = dot.run([at_offset(x, 0), at_offset(u, 0)], 7)
    assert copied == 0
    scores, copied = dot.run([at_offset(x, offset), at_offset(u, 0)], 7)
    assert copied == (x.nbytes if offset else 0)
    np.testing.assert_array_equal(scores, expected)
    np.testing.assert_allclose(scores, [(x * u).sum(1), 2 * (x * u).sum(1)], rtol=1e-6)


def test_outputs_that_alias_a_feed_are_copied_out(graphs, engine):
    signature = GraphSignature((TensorSpec("x:0", "f32", (-1,)),), ("y:0", "column:0"))
    executable = engine.load((graphs / "alias.pb").read_bytes(), signature).executable
    x = at_offset(np.arange(5, dtype=np.float32), 0)
    scores, copied = executable.run([x], 5)
    x[:] = -1
    np.testing.assert_array_equal(scores, np.tile(np.arange(5, dtype=np.float32), (2, 1)))
    assert copied == 0


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ((TensorSpec("z:0", "f32", (-1, 4)), U), ("y:0",), "input z:0: the graph has no such node"),
        ((TensorSpec("x:3", "f32", (-1, 4)), U), ("y:0",), "input x:3: the node has only 1 outputs"),
        ((TensorSpec("x:y", "f32", (-1, 4)), U), ("y:0",), "input x:y: expected NODE or NODE:INDEX"),
        ((TensorSpec("x:0", "i64", (-1, 4)), U), ("y:0",), "input x:0: the graph has TensorFlow dtype 1"),
        ((TensorSpec("x:0", "f32", (-1, 5)), U), ("y:0",), r"input x:0: the graph has shape \[-1,4\]"),
        ((TensorSpec("x:0", "f32", (-1,)), U), ("y:0",), r"the signature says \[-1\]"),
        ((TensorSpec("x:0", "bytes", (-1, 4)), U), ("y:0",), "input x:0: dtype bytes"),
        ((X, U), ("score:0",), "output score:0: the graph has no such node"),
        ((X, U), ("wide:0",), r"output wide:0: the graph has shape \[-1,4\]"),
        ((X, U), ("whole:0",), "output whole:0: the graph has TensorFlow dtype 3"),
        ((X, U), (), "outputs: got none"),
        ((X, U), ("y:0", "x:0"), "output x:0: it is also input x:0"),
    ],
)
def test_a_signature_that_does_not_fit_is_named(graphs, engine, inputs, outputs, message):
    with pytest.raises(EngineError, match=message):
        engine.load((graphs / "dot.pb").read_bytes(), GraphSignature(inputs, outputs))


def test_tensorflow_s_own_words_come_through(graphs, engine, dot):
    with pytest.raises(EngineError, match="the graph does not load: Invalid GraphDef"):
        engine.load(b"not a graph", GraphSignature((X,), ("y:0",)))
    with pytest.raises(EngineError, match="u"):
        engine.load((graphs / "dot.pb").read_bytes(), GraphSignature((X,), ("y:0",))).executable.run(
            [np.ones((1, 4), np.float32)], 1
        )
    picky = engine.load(
        (graphs / "picky.pb").read_bytes(), GraphSignature((TensorSpec("x:0", "i64", (-1,)),), ("y:0",))
    ).executable
    with pytest.raises(EngineError, match=r"the graph does not run: indices\[1\] = 9 is not in \[0, 3\)"):
        picky.run([np.array([0, 9])], 2)
    assert picky.run([np.array([2, 0])], 2)[0].tolist() == [[3.0, 1.0]]
    with pytest.raises(EngineError, match="output y:0: got 2 values; expected one for each of 3 rows"):
        dot.run([np.ones((2, 4), np.float32), np.ones((1, 4), np.float32)], 3)
    with pytest.raises(InvalidRequest, match="input u:0: got items of format i; expected one of f"):
        dot.run([np.ones((2, 4), np.float32), np.ones((1, 4), np.int32)], 2)
    with pytest.raises(EngineError, match="feeds: got 1"):
        dot.run([np.ones((2, 4), np.float32)], 2)


def test_one_executable_runs_from_many_threads(dot):
    failures = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(50):
            n = int(rng.integers(1, 50))
            x, u = rng.random((n, 4), np.float32), rng.random((1, 4), np.float32)
            if not np.allclose(dot.run([x, u], n)[0][0], (x * u).sum(1), rtol=1e-5):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_library_that_cannot_be_used_says_so(tmp_path, engine):
    with pytest.raises(EngineUnavailable, match="one TensorFlow per process"):
        TensorFlowLibrary(str(tmp_path / "other.so"), str(tmp_path / "framework.so"))
