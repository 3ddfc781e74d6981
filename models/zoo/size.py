"""How large a model is: parameters, and floating-point operations of a request. Importing this imports tensorflow."""

from dataclasses import dataclass
from math import prod

import tensorflow as tf

from ..passes.cost import cost
from .registry import ZooEntry

__all__ = ["ModelSize", "measure"]


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
    return ModelSize(sum(sizes), sum(tables.values()), candidates, cost(graph, candidates).flops)
