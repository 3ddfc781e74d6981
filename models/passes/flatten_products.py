"""Batches of products by one matrix become one product: [n, l, d] by [d, h] as [n l, d] by [d, h].

Engines run one large product faster than many small ones.
"""

from math import prod

from .dense import DenseGraph
from .rewrite import rewrite

__all__ = ["flatten_products"]


def flatten_products(dense: DenseGraph) -> DenseGraph:
    """The graphs with a MatMul for each batch of products whose right side is the same matrix throughout."""
    return rewrite(dense, _rule)


def _rule(editor, node, inputs):
    if node.op != "BatchMatMulV2" or node.attr["adj_x"].b or not all(editor.known(r) for r in inputs):
        return None
    left, right = (editor.shape(r) for r in inputs)
    out = editor.shape(editor.copy(node, inputs)[0])
    if any(d != 1 for d in right[:-2]) or len(left) < 3 or out is None or len(out) != len(left) or (
            out[:-1] != left[:-1]):
        return None
    rows = prod(abs(d) for d in left[:-1]) * (-1 if any(d < 0 for d in left[:-1]) else 1)
    flat, matrix = editor.reshape(inputs[0], (rows, left[-1])), editor.reshape(inputs[1], right[-2:])
    product = editor.add("MatMul", flat, matrix, transpose_b=node.attr["adj_y"].b)
    return editor.reshape(product, out)
