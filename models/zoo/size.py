"""How large a model is: parameters, and floating-point operations of a request. Importing this imports tensorflow."""

from dataclasses import dataclass
from math import prod

import tensorflow as tf

from ..errors import GraphError
from ..passes.dense import DenseGraph
from .registry import ZooEntry

__all__ = ["ModelSize", "measure", "product_flops"]

_PRODUCTS = frozenset({"MatMul", "BatchMatMulV2"})


@dataclass(frozen=True)
class ModelSize:
    """Numbers in the graph, numbers in the tables beside it, and FLOPs of a request of `candidates`: of the graph as it
    is written, the user tiled."""

    dense_parameters: int
    table_parameters: int
    candidates: int
    flops: int


def measure(entry: ZooEntry) -> ModelSize:
    """Builds the dense part of a zoo model and looks."""
    graph, _ = entry.dense()
    constants = [node.attr["value"].tensor for node in graph.item.node if node.op == "Const"]
    sizes = [prod(d.size for d in c.tensor_shape.dim) for c in constants
             if c.dtype == tf.float32.as_datatype_enum and c.tensor_shape.dim]
    tables = {field.source: field.rows * field.dim for field in entry.fields if field.looked_up}
    candidates = entry.definition.candidates
    return ModelSize(sum(sizes), sum(tables.values()), candidates, product_flops(graph, candidates))


def product_flops(dense: DenseGraph, n: int) -> int:
    """FLOPs of the matrix products, where nearly all are, of the item graph for `n` candidates; a multiplication and an
    addition are two. Raises GraphError for a product whose shape does not follow from the inputs' shapes."""
    graph_def = tf.compat.v1.GraphDef()
    graph_def.CopyFrom(dense.item)
    shapes = {entry.name.split(":")[0]: entry.shape for entry in dense.inputs}
    for node in graph_def.node:
        if node.op == "Placeholder":
            fed = [n if d == -1 else d for d in shapes[node.name]]
            node.attr["shape"].shape.CopyFrom(tf.TensorShape(fed).as_proto())
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
    return sum(_flops(op) for op in graph.get_operations() if op.type in _PRODUCTS)


def _flops(op) -> int:
    out, left = op.outputs[0].shape, op.inputs[0].shape
    if not out.is_fully_defined() or not left.is_fully_defined():
        raise GraphError(f"the shape of product {op.name!r} is {out}: it does not follow from the inputs' shapes")
    transposed = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
    return 2 * prod(out) * left[-2 if transposed else -1]
