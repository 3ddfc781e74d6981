"""Builds dense graphs from a few lines of TensorFlow, and runs them, split or not."""

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from models.passes.dense import DenseGraph, DenseInput, Head

from ..graph_session import run_graph

TYPES = {"f32": tf.float32, "i64": tf.int64, "i32": tf.int32}


def graph_of(inputs: Mapping[str, tuple], build: Callable, rename: Callable[[str], str] = str) -> DenseGraph:
    """The dense graph of build({name: placeholder}) -> [heads]; `inputs` are {name: shape} or {name: (shape, dtype)};
    a leading None is the candidates', 1 the user's."""
    entries = []
    graph = tf.Graph()
    with graph.as_default():
        fed = {}
        for name, given in inputs.items():
            shape, dtype = given if isinstance(given[-1], str) else (given, "f32")
            side = "item" if shape[0] is None else "user"
            fed[name] = tf.compat.v1.placeholder(TYPES[dtype], shape, name=rename(name))
            entries.append(DenseInput(fed[name].name, dtype, tuple(-1 if d is None else d for d in shape), side))
        outputs = [tf.identity(head) for head in build(fed)]
    heads = tuple(Head(f"head_{i}", tensor.name) for i, tensor in enumerate(outputs))
    return DenseGraph(graph.as_graph_def(), tuple(entries), heads)


def feeds_of(dense: DenseGraph, n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random feeds for one user and n candidates; whole numbers are 0 to 3."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for entry in dense.inputs:
        shape = [n if d < 0 else d for d in entry.shape]
        feeds[entry.name] = rng.normal(0, 0.5, shape).astype(np.float32) if entry.dtype == "f32" else rng.integers(
            0, 4, shape).astype(TYPES[entry.dtype].as_numpy_dtype)
    return feeds


def scores_of(dense: DenseGraph, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """{head: [n]}, the user graph run first if there is one."""
    feeds = dict(feeds)
    if dense.user is not None:
        shared = [entry.name for entry in dense.shared]
        values = run_graph(dense.user, shared, _fed(dense.user, feeds))
        for entry, value in zip(dense.shared, values, strict=True):
            assert value.shape == entry.shape, "a shared tensor has another shape than the graph says"
        feeds |= dict(zip(shared, values, strict=True))
    found = dict(zip(dense.outputs, run_graph(dense.item, dense.outputs, _fed(dense.item, feeds)), strict=True))
    return {h.head: found[h.name].reshape(-1) if h.row is None else found[h.name][h.row] for h in dense.heads}


def _fed(graph_def, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    names = {node.name for node in graph_def.node}
    return {name: value for name, value in feeds.items() if name.split(":")[0] in names}


def ops_of(dense: DenseGraph) -> list[str]:
    """The ops of all graphs."""
    return [node.op for graph in dense.graphs().values() for node in graph.node]


def assert_same(before: DenseGraph, after: DenseGraph, n: int = 7, atol: float = 1e-6) -> None:
    """Both give the same heads for the same feeds."""
    for rows in (1, n):
        feeds = feeds_of(before, rows)
        want, got = scores_of(before, feeds), scores_of(after, feeds)
        assert want.keys() == got.keys()
        for head, value in want.items():
            np.testing.assert_allclose(got[head], value, rtol=1e-5, atol=atol)
