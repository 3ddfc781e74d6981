"""Batch normalisation of inference, a scale and an offset, goes into the layer before it.

    (x W + b) * s + t   becomes   x (W * s) + (b * s + t)
"""

from collections import Counter

import numpy as np

from .dense import DenseGraph
from .graph import GraphIndex, node_of
from .rewrite import rewrite

__all__ = ["fold_batch_norm"]

_PRODUCTS = ("MatMul", "BatchMatMulV2")
_SUMS = ("AddV2", "Add", "BiasAdd")


def fold_batch_norm(dense: DenseGraph) -> DenseGraph:
    """The graphs with constant scales and offsets of a product's columns inside its weights and bias, wherever nothing
    else reads the product."""
    return rewrite(dense, _Fold(dense))


class _Fold:
    """The rule, and what of the new graph is read more than once."""

    def __init__(self, dense: DenseGraph):
        self._readers = Counter()
        for graph in dense.graphs().values():
            self._readers.update({name: len(found) for name, found in GraphIndex(graph).readers().items()})
        self._readers.update(node_of(name) for name in dense.outputs)
        self._shared: set[str] = set()

    def __call__(self, editor, node, inputs):
        made = self._folded(editor, node, inputs) or editor.copy(node, inputs)
        if self._readers[node.name] > 1:
            self._shared.update([made] if isinstance(made, str) else made)
        return made

    def _folded(self, editor, node, inputs):
        if node.op not in ("Mul", "Sub", *_SUMS) or len(inputs) != 2:
            return None
        other, constant = _sides(editor, node, inputs)
        if other is None:
            return None
        product, bias = _affine(editor, other)
        if product is None or {product, other} & self._shared:
            return None
        if node.op == "Mul":
            return _scaled(editor, product, bias, constant)
        offset = -constant if node.op == "Sub" else constant
        return editor.add("AddV2", product, editor.constant(offset if bias is None else bias + offset))


def _sides(editor, node, inputs):
    """(what is computed, the constant row vector beside it), or (None, None)."""
    for computed, constant in (inputs, inputs[::-1]):
        value, shape = editor.value(constant), editor.shape(computed)
        if node.op == "Sub" and computed != inputs[0]:
            continue
        if value is None or value.dtype != np.float32 or editor.value(computed) is not None:
            continue
        if not shape or shape[-1] is None or shape[-1] < 1:  # columns that follow the candidates are nobody's weights
            continue
        if value.size == shape[-1] and value.shape[-1:] == (shape[-1],):
            return computed, value.reshape(-1)
        if value.size == 1:
            return computed, np.full(shape[-1], value.reshape(()), np.float32)
    return None, None


def _affine(editor, reference):
    """(product, its constant bias or None); (None, None) when `reference` is no product."""
    if editor.op(reference) in _PRODUCTS:
        return reference, None
    if editor.op(reference) in _SUMS:
        product, added = editor.inputs(reference)
        bias = editor.value(added)
        if bias is not None and bias.ndim == 1 and editor.op(product) in _PRODUCTS:
            return product, bias
    return None, None


def _scaled(editor, product, bias, scale):
    left, right = editor.inputs(product)
    weights, attrs = editor.value(right), editor.node(product).attr
    flipped = attrs["transpose_b" if "transpose_b" in attrs else "adj_y"].b
    if weights is None or weights.ndim != 2:
        return None
    weights = weights * (scale[:, None] if flipped else scale)
    result = editor.copy(editor.node(product), [left, editor.constant(weights)])[0]
    return result if bias is None else editor.add("AddV2", result, editor.constant(bias * scale))
