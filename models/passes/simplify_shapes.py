"""Shapes are made plain: arithmetic on shapes becomes constants, and whatever only renames dimensions one Reshape.

A Dense layer on [n, l, d] that flattens, multiplies and restores becomes one product over the last axis; stacking
becomes concatenation. Values and their order in memory never change.
"""

from math import prod

import numpy as np

from .dense import DenseGraph
from .kinds import UNARY
from .rewrite import rewrite

__all__ = ["simplify_shapes"]

_WITH_ROW = frozenset({"Add", "AddV2", "BiasAdd", "Maximum", "Minimum", "Mul", "RealDiv", "Sub"})
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
    if op == "MatMul" or op in UNARY or op in _WITH_ROW:
        return _past_flattening(editor, node, inputs)
    made = editor.copy(node, inputs)
    out = made[0]
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


def _past_flattening(editor, node, inputs):
    """An op on the last axis of a tensor whose leading dimensions were flattened: the op first, flattened after."""
    source = _unflattened(editor, inputs[0])
    if source is None:
        return None
    made = editor.copy(node, inputs)[0]
    if node.op == "MatMul":
        weights = editor.value(inputs[1])
        if weights is None or node.attr["transpose_a"].b:
            return made
        right = editor.constant(np.ascontiguousarray(weights.T)) if node.attr["transpose_b"].b else inputs[1]
        return editor.reshape(editor.add("BatchMatMulV2", source, right), editor.shape(made))
    if node.op in UNARY:
        return editor.reshape(editor.copy(node, [source])[0], editor.shape(made))
    row = editor.value(inputs[1])
    if row is None or row.ndim > 1 or editor.shape(made) != editor.shape(inputs[0]):
        return made
    if node.op == "BiasAdd":
        return editor.reshape(editor.add("AddV2", source, inputs[1]), editor.shape(made))
    return editor.reshape(editor.copy(node, [source, inputs[1]])[0], editor.shape(made))


def _unflattened(editor, reference):
    """x [..., d] when `reference` is x as a matrix of its rows."""
    if editor.op(reference) != "Reshape" or not editor.known(reference):
        return None
    source = editor.inputs(reference)[0]
    before, after = editor.shape(source), editor.shape(reference)
    flat = before is not None and None not in before and len(after) == 2 and len(before) > 2
    return source if flat and before[-1] == after[-1] and _fits(editor, before) else None
