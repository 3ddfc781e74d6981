"""Runs GraphDefs in tests."""

import tensorflow as tf


def run_graph(graph_def, fetches, feeds):
    """Imports `graph_def` into a fresh graph and evaluates `fetches` (tensor names) with `feeds` {tensor name: array}."""
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            return session.run(list(fetches), feeds)
