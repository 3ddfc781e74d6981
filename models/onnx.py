"""Dense graphs as ONNX models, through tf2onnx, for engines that read no GraphDef.

tf2onnx is an extra (`lambda-svc[onnx]`) and is imported when a graph is converted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf

from .errors import GraphError
from .passes.dense import DenseGraph

__all__ = ["OPSET", "convert", "to_onnx"]

OPSET = 18  # of the ONNX operator set that models are written in


def to_onnx(dense: DenseGraph) -> Mapping[str, bytes]:
    """Serialised ModelProtos of a dense graph's parts by name, "item" and, when there is one, "user".

    Inputs and outputs have the names that they have in the graph. Raises GraphError naming the operations that ONNX
    lacks.
    """
    fed = [entry.name for entry in (*dense.inputs, *dense.shared)]
    fetches = {"item": list(dense.outputs), "user": [entry.name for entry in dense.shared]}
    return {
        part: convert(graph, _placeholders(graph, fed), fetches[part])
        for part, graph in dense.graphs().items()
    }


def convert(graph: tf.compat.v1.GraphDef, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """A frozen graph between its fed and fetched tensors ("name:0") as a serialised ModelProto. Raises GraphError."""
    try:
        from tf2onnx.convert import from_graph_def
    except ImportError as error:
        raise GraphError(f"tf2onnx does not load: {error}; pip install 'lambda-svc[onnx]'") from error
    graph = _in_onnx_s_words(graph)
    # It prints what it lacks and goes on; what it printed is in the error below.
    logging.getLogger("tf2onnx").setLevel(logging.CRITICAL)
    try:
        model, _ = from_graph_def(graph, input_names=list(inputs), output_names=list(outputs), opset=OPSET)
    except Exception as error:  # its own and TensorFlow's, without a common base
        raise GraphError(f"ONNX: {_listed(_without_handler(graph)) or error}") from error
    lacking = _listed(_not_in_onnx(model))
    if lacking:
        raise GraphError(f"ONNX: {lacking}")
    return model.SerializeToString(deterministic=True)


def _in_onnx_s_words(graph: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """The graph without Log1p, which ONNX lacks: log(x + 1), equal but for |x| below float32's resolution at 1."""
    if not any(node.op == "Log1p" for node in graph.node):
        return graph
    written = tf.compat.v1.GraphDef(versions=graph.versions, library=graph.library)
    taken = {node.name for node in graph.node}
    for node in graph.node:
        if node.op != "Log1p":
            written.node.append(node)
            continue
        dtype = node.attr["T"]
        one, plus = (_unused(f"{node.name}/{word}", taken) for word in ("one", "plus_one"))
        constant = written.node.add(op="Const", name=one)
        constant.attr["dtype"].CopyFrom(dtype)
        constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(1.0, dtype.type, []))
        written.node.add(op="AddV2", name=plus, input=[node.input[0], one]).attr["T"].CopyFrom(dtype)
        written.node.add(op="Log", name=node.name, input=[plus, *node.input[1:]]).attr["T"].CopyFrom(dtype)
    return written


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _placeholders(graph: tf.compat.v1.GraphDef, names: Iterable[str]) -> list[str]:
    """Those of the tensors that a placeholder of this graph stands for."""
    nodes = {node.name for node in graph.node if node.op.startswith("Placeholder")}
    return [name for name in names if name.partition(":")[0] in nodes]


def _listed(operations: Iterable[str]) -> str:
    found = sorted(set(operations))
    return f"the target lacks {', '.join(found)}" if found else ""


def _without_handler(graph: tf.compat.v1.GraphDef) -> set[str]:
    """Operations of a graph that tf2onnx converts in no domain and version."""
    from tf2onnx.handler import tf_op

    known = {name for versions in tf_op.get_opsets().values() for handlers in versions for name in handlers}
    return {node.op for node in graph.node} - known - {"Const", "Placeholder", "NoOp"}


def _not_in_onnx(model) -> set[str]:
    """Operations that were left in a model as they were."""
    import onnx

    return {node.op_type for node in model.graph.node if not onnx.defs.has(node.op_type, OPSET, node.domain)}
