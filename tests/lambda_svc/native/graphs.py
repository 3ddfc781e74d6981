"""Builds the small graphs that the native tests load. Runs in a process of its own, the only one to import TensorFlow.

    python graphs.py FOLDER   # writes FOLDER/<name>.pb and the descriptors of TensorFlow's ConfigProto
"""

import sys
from pathlib import Path

import tensorflow.compat.v1 as tf
from google.protobuf import descriptor_pb2
from tensorflow.core.protobuf import config_pb2

# name -> whether Identity nodes called probe* become the test op LambdaSvcProbe.
PROBED = {"probe"}


def dot() -> None:
    """y = sum(x * u): one head [n, 1] and one [n]."""
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    u = tf.placeholder(tf.float32, [1, 4], name="u")
    total = tf.reduce_sum(x * u, axis=1)
    tf.identity(total, name="y")
    tf.reshape(total * 2, [-1, 1], name="column")
    tf.identity(x, name="wide")
    tf.cast(total, tf.int32, name="whole")


def probe() -> None:
    """As dot, with both feeds passing the probe op first."""
    x = tf.identity(tf.placeholder(tf.float32, [None, 4], name="x"), name="probe_x")
    u = tf.identity(tf.placeholder(tf.float32, [1, 4], name="u"), name="probe_u")
    tf.reduce_sum(x * u, axis=1, name="y")


def alias() -> None:
    """The outputs are the feed's own memory."""
    x = tf.placeholder(tf.float32, [None], name="x")
    tf.identity(x, name="y")
    tf.reshape(x, [-1, 1], name="column")


def picky() -> None:
    """Fails at run time for x outside 0 to 2."""
    x = tf.placeholder(tf.int64, [None], name="x")
    tf.gather(tf.constant([1.0, 2.0, 3.0]), x, name="y")


def everything() -> None:
    """Every kind of input: y = the sum of all a candidate's cells, with ids in float64."""
    placeholders = {
        "history_rows": (tf.float32, [1, 5, 4]),
        "history_lengths": (tf.int32, [1]),
        "item_row": (tf.float32, [None, 4]),
        "genres": (tf.float32, [None, 4]),
        "related": (tf.float32, [None, 3, 4]),
        "price": (tf.float32, [None, 2]),
        "item_id": (tf.int64, [None]),
    }
    total = tf.constant(0.0, tf.float64)
    for name, (dtype, shape) in placeholders.items():
        value = tf.cast(tf.placeholder(dtype, shape, name=name), tf.float64)
        total += tf.reduce_sum(tf.reshape(value, tf.stack([tf.shape(value)[0], -1])), axis=1)
    tf.cast(total, tf.float32, name="y")


def descriptors() -> bytes:
    """A FileDescriptorSet of config.proto after all that it imports."""
    files = descriptor_pb2.FileDescriptorSet()
    done = set()

    def add(file) -> None:
        if file.name not in done:
            done.add(file.name)
            for other in file.dependencies:
                add(other)
            file.CopyToProto(files.file.add())

    add(config_pb2.DESCRIPTOR)
    return files.SerializeToString(deterministic=True)


def main(folder: Path) -> None:
    """Writes every graph and the descriptors."""
    (folder / "config.descriptors").write_bytes(descriptors())
    for build in (dot, probe, alias, picky, everything):
        graph = tf.Graph()
        with graph.as_default():
            build()
        definition = graph.as_graph_def()
        for node in definition.node:
            if build.__name__ in PROBED and node.name.startswith("probe_"):
                node.op = "LambdaSvcProbe"
                del node.attr["T"]
        (folder / f"{build.__name__}.pb").write_bytes(definition.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
