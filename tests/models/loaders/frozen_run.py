"""Runs what the loaders freeze, as a runtime would: tables initialised once, rows looked up outside the graph."""

import numpy as np
import tensorflow as tf

from models.passes.graph import node_of


class FrozenRun:
    """A session on a frozen model whose vocabulary tables are filled."""

    def __init__(self, frozen):
        self.frozen = frozen
        graph = tf.Graph()
        with graph.as_default():
            tf.graph_util.import_graph_def(frozen.graph_def, name="")
        self._session = tf.compat.v1.Session(graph=graph)
        for one in frozen.initializers:
            self._session.run(one.node, {one.asset: str(frozen.assets[one.file])} if one.asset else {})

    def __call__(self, inputs):
        """The outputs by name for a signature's inputs by name."""
        feeds = {spec.name: inputs[key] for key, spec in self.frozen.inputs.items()}
        for one in self.frozen.cuts:
            table = self.frozen.tables[one.variable]
            rows = table.read(0, table.shape[0])
            assert one.mode == "rows", "bags are pooled by the parameter server; its own tests show that"
            feeds[f"{one.input}:0"] = rows[np.asarray(inputs[one.ids])]
        return self._session.run({key: spec.name for key, spec in self.frozen.outputs.items()}, feeds)


def ops(frozen):
    """The ops of a frozen model's graph."""
    return {node.op for node in frozen.graph_def.node}


def assert_equal(got, expected, tolerance=1e-6):
    """Outputs by name: floats within `tolerance`, everything else exactly."""
    assert set(got) == set(expected)
    for name, value in expected.items():
        if np.asarray(value).dtype.kind == "f":
            np.testing.assert_allclose(got[name], value, atol=tolerance, rtol=0, err_msg=name)
        else:
            np.testing.assert_array_equal(got[name], value, err_msg=name)


def unread(frozen):
    """The signature's inputs that the graph neither reads nor looks up."""
    return set(frozen.signature.inputs) - set(frozen.inputs) - {node_of(one.ids) for one in frozen.cuts}
