"""Freeze: the variables that a graph still reads become constants, one each however often they are read."""

from collections.abc import Collection, Mapping

import numpy as np
import tensorflow as tf

from ..errors import GraphError
from .graph import GraphIndex, data_inputs, node_of
from .variables import Variable

__all__ = ["freeze"]

CONSTANT_BYTES_MAX = 64 << 20


def freeze(
    graph_def: tf.compat.v1.GraphDef,
    variables: Mapping[str, Variable],
    outputs: Collection[str],
    constant_bytes_max: int = CONSTANT_BYTES_MAX,
) -> tf.compat.v1.GraphDef:
    """The graph of `outputs` with constants for variables; nodes sorted, so that equal models give equal bytes.

    Raises GraphError for a variable of more than `constant_bytes_max` bytes (cut it first), or one that is unknown or
    used in another way than reading it.
    """
    graph = GraphIndex(graph_def)
    graph.drop_variable_waits()
    needed = graph.needed(outputs)
    for name in sorted(set(variables) & needed):
        _replace(graph, name, variables[name], constant_bytes_max, needed)
    result = graph.pruned(outputs)
    for node in result.node:
        if node.op in ("VarHandleOp", "ReadVariableOp", "ResourceGather") or _is_handle(node):
            raise GraphError(f"{node.name!r} ({node.op}) stands for a variable that is not known or used as a handle")
    return result


def _is_handle(node) -> bool:
    # Asking a protobuf map for a missing key would add it, and so change the graph.
    return "dtype" in node.attr and node.attr["dtype"].type == tf.resource.as_datatype_enum


def _replace(graph: GraphIndex, name: str, variable: Variable, constant_bytes_max: int, needed: set[str]) -> None:
    rows = variable.shape[0] if variable.shape else 1
    size = variable.dtype.itemsize
    for dimension in variable.shape:
        size *= dimension
    if size > constant_bytes_max:
        raise GraphError(f"variable {name!r} has {size} bytes, more than {constant_bytes_max}; cut it out of the graph")
    value = variable.read(0, rows).reshape(variable.shape)
    is_handle = graph.nodes[name].op == "VarHandleOp" or _is_handle(graph.nodes[name])
    for reader in [node for node in graph.nodes.values() if any(node_of(r) == name for r in data_inputs(node))]:
        if reader.op == "ReadVariableOp":
            graph.rewire(reader.name, name)
        elif reader.op == "ResourceGather":
            _to_gather(graph, reader)
        elif reader.name in needed and (is_handle or reader.op.startswith(("Ref", "Assign"))):
            raise GraphError(f"variable {name!r} is used as a handle by {reader.name!r} ({reader.op}); only reads and "
                             "lookups can be frozen")
    graph.nodes[name].CopyFrom(_constant(name, value))


def _to_gather(graph: GraphIndex, node) -> None:
    axis = f"{node.name}/axis"
    if axis in graph.nodes:
        raise GraphError(f"cannot name the axis of lookup {node.name!r}: the graph has a node {axis!r}")
    # A ResourceGather gathers along the first dimension after its batch.
    graph.nodes[axis] = _constant(axis, np.int32(node.attr["batch_dims"].i))
    gather = tf.compat.v1.NodeDef(name=node.name, op="GatherV2", input=[node.input[0], node.input[1], axis])
    gather.attr["Tparams"].CopyFrom(node.attr["dtype"])
    gather.attr["Tindices"].CopyFrom(node.attr["Tindices"])
    gather.attr["Taxis"].type = tf.int32.as_datatype_enum
    gather.attr["batch_dims"].i = node.attr["batch_dims"].i
    node.CopyFrom(gather)


def _constant(name: str, value):
    node = tf.compat.v1.NodeDef(name=name, op="Const")
    tensor = tf.make_tensor_proto(value)
    node.attr["value"].tensor.CopyFrom(tensor)
    node.attr["dtype"].type = tensor.dtype
    return node
