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
