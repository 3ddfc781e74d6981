"""The graph of a loaded model as it is served: behind inputs as they are fed, without what only checks them. Imports
tensorflow."""

from collections.abc import Sequence

import tensorflow as tf

from .loaded_inputs import Reading
from .loaders import FrozenModel
from .package import GraphInput, Initializer
from .passes.dense import DenseGraph, DenseInput, Head
from .passes.graph import GraphIndex, data_inputs, node_of
from .signature_input import SignatureInput

__all__ = ["drop_checks", "initializers", "serving_graph"]

_TYPES = {"f32": tf.float32, "i64": tf.int64, "i32": tf.int32}
_PREFIX = "model"
_BRANCHES = frozenset({"Switch", "RefSwitch", "Enter", "RefEnter"})
_CHECKS = frozenset({"Assert", "If", "Merge", "NoOp", "RefMerge", "StatelessIf"})


def serving_graph(frozen: FrozenModel, read: Reading, feeds: Sequence[GraphInput],
                  heads: Sequence[str]) -> DenseGraph:
    """The frozen graph behind inputs as they are fed: whole numbers cast, the user's and the moment's rows tiled."""
    entries = {entry.key: entry for entry in read.inputs}
    graph = tf.Graph()
    with graph.as_default():
        fed = {feed.name: tf.compat.v1.placeholder(_TYPES[feed.dtype], [None if d < 0 else d for d in feed.shape],
                                                   feed.name.removesuffix(":0")) for feed in feeds}
        rows = tf.shape(fed[next(feed.name for feed in feeds if feed.side == "item")])[0]
        given = {feed.name: _as_read(fed[feed.name], feed, entries[feed.source.slot], rows) for feed in feeds}
        outputs = tf.graph_util.import_graph_def(
            frozen.graph_def, given, [frozen.outputs[key].name for key in heads], name=_PREFIX)
        found = []
        for head, output in zip(heads, outputs, strict=True):
            flat = output if output.shape.rank == 1 else tf.reshape(output, [-1])
            found.append(Head(head, tf.identity(flat, name=head).name))
    item = drop_checks(graph.as_graph_def(), [*(head.name for head in found),
                                              *(one.node for one in initializers(frozen))])
    inputs = tuple(DenseInput(feed.name, feed.dtype, feed.shape, feed.side) for feed in feeds)
    return DenseGraph(item, inputs, tuple(found))


def _as_read(fed: tf.Tensor, feed: GraphInput, entry: SignatureInput, rows: tf.Tensor) -> tf.Tensor:
    tensor = tf.cast(fed, tf.int32) if feed.source.kind == "values" and entry.dtype == "i32" else fed
    return tf.tile(tensor, [rows] + [1] * (len(feed.shape) - 1)) if entry.tiled else tensor


def initializers(frozen: FrozenModel) -> tuple[Initializer, ...]:
    """What fills the lookup tables of the serving graph; vocabularies are in the package's assets/."""
    return tuple(Initializer(node=f"{_PREFIX}/{one.node}", asset=one.asset and f"{_PREFIX}/{node_of(one.asset)}",
                             file=one.file and f"assets/{one.file}") for one in frozen.initializers)


def drop_checks(graph_def: tf.compat.v1.GraphDef, outputs: Sequence[str]) -> tf.compat.v1.GraphDef:
    """The part of a graph that computes `outputs`, without waiting for assertions.

    In a graph that only computes, whatever is waited for and not read can but fail: an assertion, and the branch that
    it stands in. Where branches of old control flow are left, only edges to the end of an assertion's go, from nodes
    whose inputs tell whether they have a value; others may keep a constant to its branch.
    """
    index = GraphIndex(GraphIndex(graph_def).pruned(outputs))
    for node in index.nodes.values():
        data = data_inputs(node)
        if data:
            kept = [r for r in node.input if r.startswith("^") and index.nodes[node_of(r)].op not in _CHECKS]
            del node.input[:]
            node.input.extend([*data, *kept])
    index = GraphIndex(index.pruned(outputs))
    if not any(node.op in _BRANCHES for node in index.nodes.values()):
        for node in index.nodes.values():
            data = data_inputs(node)
            del node.input[:]
            node.input.extend(data)
    return index.pruned(outputs)
