"""Shapes are made plain: arithmetic on shapes becomes constants, and whatever only renames dimensions one Reshape.

A Dense layer on [n, l, d] that flattens, multiplies and restores becomes one product over the last axis; stacking
becomes concatenation. Values and their order in memory never change.
"""

from math import prod

import numpy as np

from .dense import DenseGraph
from .rewrite import rewrite

__all__ = ["simplify_shapes"]

_RENAMING = frozenset({"ExpandDims", "Reshape", "Squeeze"})


def simplify_shapes(dense: DenseGraph) -> DenseGraph:
    """The graphs with Reshape, by a constant shape where it can be, for all that only renames dimensions."""
    return rewrite(dense, _rule)


def _rule(editor, node, inputs):
    op = node.op
    if op in ("Placeholder", "Const") or not inputs:
        return None
    if op == "Pack":
        return _stacked(editor, node, inputs)
    if op in ("MatMul", "BatchMatMulV2", "BatchMatMul", "BatchMatMulV3"):
        return None
    made = editor.copy(node, inputs)
    out = made[0]
    if op == "Reshape" and editor.op(inputs[0]) in ("MatMul",):
        lifted = _lifted(editor, inputs[0], editor.shape(out))
        if lifted:
            return lifted
    if not _only_renames(editor, node, inputs, out):
        return made
    shape = editor.shape(out)
    if shape == editor.shape(inputs[0]):
        return inputs[0]
    return editor.reshape(inputs[0], shape) if _fits(editor, shape) else made


def _fits(editor, shape) -> bool:
    return sum(d < 0 for d in shape) <= 1


def _only_renames(editor, node, inputs, out) -> bool:
    """Whether the output holds the first input's elements in their order."""
    if not (editor.known(inputs[0]) and editor.known(out)):
        return False
    before, after = editor.shape(inputs[0]), editor.shape(out)
    if _elements(before) != _elements(after):
        return False
    if node.op in _RENAMING:
        return True
    if node.op == "StridedSlice":
        strides = editor.value(inputs[3])
        return strides is not None and bool((strides > 0).all())
    if node.op == "Transpose":
        order = editor.value(inputs[1])
        return order is not None and [int(a) for a in order if before[a] != 1] == [
            a for a in range(len(before)) if before[a] != 1]
    return node.op in ("BroadcastTo", "Slice", "Tile", "GatherV2") and before == after and node.op != "GatherV2"


def _elements(shape) -> tuple[int, int]:
    """(factor, power of n)"""
    return prod(abs(d) for d in shape), sum(d < 0 for d in shape)


def _stacked(editor, node, inputs):
    """Pack along an axis is concatenation along it, the new dimension being named afterwards."""
    out = editor.copy(node, inputs)[0]
    shape, one = editor.shape(out), editor.shape(inputs[0])
    if shape is None or None in shape or len(one) == 0 or not _fits(editor, shape) or editor.dimensions(out):
        return out
    axis = node.attr["axis"].i
    axis = axis + len(shape) if axis < 0 else axis
    if axis == len(one):
        inputs = [editor.reshape(r, (*one, 1)) for r in inputs] if _fits(editor, one) else None
    return out if inputs is None else editor.reshape(editor.concat(inputs, axis), shape)


def _lifted(editor, product, shape):
    """Reshape(MatMul(Reshape(x [..., d]), w)) that puts x's leading dimensions back: the product over x's last axis."""
    left, right = editor.inputs(product)
    attrs = editor.node(product).attr
    if editor.op(left) != "Reshape" or attrs["transpose_a"].b or len(shape) < 3 or None in shape:
        return None
    source = editor.inputs(left)[0]
    before, weights = editor.shape(source), editor.value(right)
    if before is None or weights is None or before[:-1] != shape[:-1] or before[-1] != editor.shape(left)[-1]:
        return None
    if attrs["transpose_b"].b:
        right = editor.constant(np.ascontiguousarray(weights.T))
    return editor.add("BatchMatMulV2", source, right)
