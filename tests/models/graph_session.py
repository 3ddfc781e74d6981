"""Runs GraphDefs in tests."""

import tensorflow as tf


class GraphSession:
    """A session on a graph of its own that holds `graph_def`."""

    def __init__(self, graph_def):
        graph = tf.Graph()
        with graph.as_default():
            tf.graph_util.import_graph_def(graph_def, name="")
        self._session = tf.compat.v1.Session(graph=graph)

    def run(self, fetches, feeds):
        """Values of `fetches` (tensor names) with `feeds` {tensor name: array}."""
        return self._session.run(list(fetches), feeds)


def run_graph(graph_def, fetches, feeds):
    """The same for one run."""
    return GraphSession(graph_def).run(fetches, feeds)
