"""Products over concatenations are distributed: each part meets its own rows of the weights, as seldom as it can.

    [user, item] W          =  user W1 (once) + item W2
    [q, k, q - k, q * k] W  =  q (W1 + W3) + k (W2 - W3) + (q * k) W4

A part that was repeated is multiplied before its repetition; sums and differences of smaller parts fall apart, and
what two parts have in common is multiplied once, by the sum of the weights.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from .dense import DenseGraph
from .rewrite import rewrite
from .sink_tiles import once

__all__ = ["distribute_products"]

_N = 1009
_GAIN = 0.98


def distribute_products(dense: DenseGraph) -> DenseGraph:
    """The graphs with products by constants distributed wherever that saves FLOPs."""
    return rewrite(dense, _rule)


def _rule(editor, node, inputs):
    if node.op in ("BiasAdd", "AddV2", "Add") and len(inputs) == 2:
        return _bias_to_smaller(editor, inputs)
    if node.op not in ("MatMul", "BatchMatMulV2"):
        return None
    weights, flipped = editor.value(inputs[1]), node.attr["transpose_b" if node.op == "MatMul" else "adj_y"].b
    moved = node.attr["transpose_a" if node.op == "MatMul" else "adj_x"].b
    if weights is None or weights.ndim != 2 or weights.dtype != np.float32 or moved or not editor.known(inputs[0]):
        return None
    weights = weights.T if flipped else weights
    terms: dict[str, np.ndarray] = {}
    _collect(editor, inputs[0], weights, terms)
    groups = _grouped(editor, terms)
    rows = prod(_size(d) for d in editor.shape(inputs[0])[:-1])
    new = sum(prod(_size(d) for d in lead) * sum(terms[r].shape[0] for r in members)
              for lead, members in groups.items())
    if new >= _GAIN * rows * weights.shape[0]:
        return None
    return _summed(editor, groups, terms, editor.shape(editor.copy(node, inputs)[0]))


def _collect(editor, reference: str, weights: np.ndarray, terms: dict[str, np.ndarray]) -> None:
    """Adds to `terms` {tensor: weights} whose products sum up to reference @ weights."""
    reference = once(editor, reference)
    op, shape = editor.op(reference), editor.shape(reference)
    if op == "ConcatV2":
        *parts, axis = editor.inputs(reference)
        if int(editor.value(axis)) % len(shape) == len(shape) - 1:
            begin = 0
            for part in parts:
                width = editor.shape(part)[-1]
                _collect(editor, part, weights[begin:begin + width], terms)
                begin += width
            return
    if op in ("AddV2", "Add", "Sub") and _falls_apart(editor, reference):
        left, right = editor.inputs(reference)
        _collect(editor, left, weights, terms)
        _collect(editor, right, -weights if op == "Sub" else weights, terms)
        return
    terms[reference] = terms[reference] + weights if reference in terms else weights


def _falls_apart(editor, reference: str) -> bool:
    """Whether both sides of a sum are smaller than it."""
    shape = editor.shape(reference)
    sides = [editor.shape(once(editor, r)) for r in editor.inputs(reference)]
    size = prod(map(_size, shape))
    return all(s is not None and len(s) == len(shape) and s[-1] == shape[-1] and 2 * prod(map(_size, s)) < size
               for s in sides)


def _grouped(editor, terms: dict[str, np.ndarray]) -> dict[tuple, list[str]]:
    """Terms by their leading dimensions, in the order in which they came."""
    groups: dict[tuple, list[str]] = {}
    for reference in terms:
        groups.setdefault(editor.shape(reference)[:-1], []).append(reference)
    return groups


def _summed(editor, groups: dict[tuple, list[str]], terms: dict[str, np.ndarray], shape: Sequence[int]) -> str:
    """The largest product first; smaller ones are added to it one after the other."""
    products = []
    for lead, members in groups.items():
        joined = editor.concat(members, len(lead))
        weights = editor.constant(np.concatenate([terms[r] for r in members]))
        products.append((prod(map(_size, lead)), _product(editor, joined, weights)))
    products.sort(key=lambda pair: -pair[0])
    total = products[0][1]
    for _, product in products[1:]:
        total = editor.add("AddV2", total, product)
    return editor.expand(total, shape)


def _product(editor, left: str, right: str) -> str:
    return editor.add("MatMul" if len(editor.shape(left)) == 2 else "BatchMatMulV2", left, right)


def _bias_to_smaller(editor, inputs):
    """(large + small) + bias = large + (small + bias)"""
    for computed, constant in (inputs, inputs[::-1]):
        bias = editor.value(constant)
        computed = once(editor, computed)
        if bias is None or bias.ndim > 1 or editor.op(computed) != "AddV2":
            continue
        large, small = editor.inputs(computed)
        if not (editor.known(large) and editor.known(small)) or editor.value(small) is not None:
            continue
        if 2 * prod(map(_size, editor.shape(small))) < prod(map(_size, editor.shape(large))):
            return editor.add("AddV2", large, editor.add("AddV2", small, constant))
    return None


def _size(dimension: int) -> int:
    return dimension if dimension >= 0 else -dimension * _N
