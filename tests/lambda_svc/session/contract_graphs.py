"""Builds the graphs of the engines' contract. Runs in a process of its own, the only one to import TensorFlow.

    python contract_graphs.py FOLDER   # writes FOLDER/<name>.pb and FOLDER/<name>.onnx
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf

from models.onnx import convert

DIM, UNITS = 32, 64


def dot() -> list[str]:
    """y = sum(x * u): one head [n] and one [n, 1]; and outputs that are no scores."""
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    u = tf.placeholder(tf.float32, [1, 4], name="u")
    total = tf.reduce_sum(x * u, axis=1)
    tf.identity(total, name="y")
    tf.reshape(total * 2, [-1, 1], name="column")
    tf.identity(x, name="wide")
    tf.cast(total, tf.int32, name="whole")
    return ["y:0", "column:0", "wide:0", "whole:0"]


def ids() -> list[str]:
    """Both integer types: same = whether a candidate's id is the user's; count = a length as a number."""
    item = tf.placeholder(tf.int64, [None], name="item")
    user = tf.placeholder(tf.int64, [1], name="user")
    length = tf.placeholder(tf.int32, [None, 1], name="length")
    tf.cast(tf.equal(item, user), tf.float32, name="same")
    tf.cast(length * 3, tf.float32, name="count")
    return ["same:0", "count:0"]


def pair() -> list[str]:
    """Fails at run time when its two inputs have different numbers of candidates."""
    a, b = (tf.placeholder(tf.float32, [None, 2], name=name) for name in ("a", "b"))
    tf.reduce_sum(a + b, axis=1, name="y")
    return ["y:0"]


def inner() -> list[str]:
    """An output in the middle of the graph, and an input that no output needs."""
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    tf.placeholder(tf.float32, [None, 4], name="idle")
    half = tf.reduce_sum(x, axis=1, name="half")
    tf.sqrt(half, name="whole")
    return ["half:0", "whole:0"]


def mlp() -> list[str]:
    """Products large enough that a precision shows: two heads in (0, 1) of [x, u]."""
    random = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    x = tf.placeholder(tf.float32, [None, DIM], name="x")
    u = tf.placeholder(tf.float32, [1, DIM], name="u")
    rows = tf.concat([x, tf.tile(u, [tf.shape(x)[0], 1])], axis=1)
    hidden = tf.nn.relu(tf.matmul(rows, weights(2 * DIM, UNITS)))
    for head in ("click", "like"):
        tf.sigmoid(tf.matmul(hidden, weights(UNITS, 1)), name=head)
    return ["click:0", "like:0"]


GRAPHS = (dot, ids, pair, inner, mlp)


def main(folder: Path) -> None:
    """Writes every graph in both formats."""
    for build in GRAPHS:
        graph = tf.Graph()
        with graph.as_default():
            outputs = build()
        definition = graph.as_graph_def()
        read = [f"{node.name}:0" for node in definition.node if node.op == "Placeholder" and node.name != "idle"]
        (folder / f"{build.__name__}.pb").write_bytes(definition.SerializeToString(deterministic=True))
        (folder / f"{build.__name__}.onnx").write_bytes(convert(definition, read, outputs))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
