"""Target attention as one product: each candidate gets weights of its own, instead of each pair a vector of its own.

    (q * k) W + k V + c   =   [k, 1] [[diag(q) W + V], [c]]      q, c of the candidate, k of the user's history

The left side is shared by all candidates and the right side is small, so that no [n, l, d] tensor of products is ever
written to memory; it costs a column or two more.
"""

import numpy as np

from .dense import DenseGraph
from .graph import GraphIndex, node_of
from .rewrite import rewrite

__all__ = ["candidate_weights"]

_SUMS = ("AddV2", "Add")


def candidate_weights(dense: DenseGraph) -> DenseGraph:
    """The graphs with products [1, l, d] by [n, d, h] for those of [n, 1, d] * [1, l, d] by a constant [d, h]."""
    inner: set[str] = set()
    for graph in dense.graphs().values():
        index = GraphIndex(graph)
        readers = index.readers()
        inner |= {name for name, node in index.nodes.items() if node.op in (*_SUMS, "BatchMatMulV2")
                  and len(readers[name]) == 1 and index.nodes[readers[name][0][0]].op in _SUMS}
        inner -= {node_of(output) for output in dense.outputs}
    return rewrite(dense, lambda editor, node, inputs: None if node.name in inner else _rule(editor, node, inputs))


def _rule(editor, node, inputs):
    if node.op not in (*_SUMS, "BatchMatMulV2"):
        return None
    whole = editor.copy(node, inputs)[0]
    addends = _addends(editor, whole)
    for full in addends:
        found = _crossed(editor, full)
        if found:
            rest = [r for r in addends if r != full]
            return _joined(editor, *found, rest, editor.shape(whole))
    return whole


def _addends(editor, reference: str) -> list[str]:
    if editor.op(reference) not in _SUMS:
        return [reference]
    return [addend for r in editor.inputs(reference) for addend in _addends(editor, r)]


def _crossed(editor, reference: str):
    """(q [n, 1, d], k [1, l, d], W) when `reference` is (q * k) W."""
    if editor.op(reference) != "BatchMatMulV2" or editor.node(reference).attr["adj_x"].b:
        return None
    product, right = editor.inputs(reference)
    weights = editor.value(right)
    if editor.op(product) != "Mul" or weights is None or weights.ndim != 2:
        return None
    if editor.node(reference).attr["adj_y"].b:
        weights = np.ascontiguousarray(weights.T)
    for q, k in (editor.inputs(product), editor.inputs(product)[::-1]):
        one, many = editor.shape(q), editor.shape(k)
        if len(one) == len(many) == 3 and one[:2] == (-1, 1) and many[0] == 1 and many[1] > 1 and one[2] == many[2]:
            return q, k, weights
    return None


def _joined(editor, q: str, k: str, weights: np.ndarray, rest: list[str], shape) -> str:
    _, length, dim = editor.shape(k)
    right = editor.add("Mul", editor.reshape(q, (-1, dim, 1)), editor.constant(weights))
    corner, left_over = [], []
    for addend in rest:
        size, inner = editor.shape(addend), _of(editor, addend, k)
        if inner is not None:
            right = editor.add("AddV2", right, inner)
        elif size is not None and len(size) == 3 and size[1] == 1 and size[2] == shape[2]:
            corner.append(addend)
        elif size in ((shape[2],), (1,), ()):
            corner.append(addend)
        else:
            left_over.append(addend)
    left = k
    if corner:
        added = _sum(editor, sorted(corner, key=lambda r: len(editor.shape(r)) < 3))
        # Tiles of bf16 hold pairs: an odd width costs as much as twice the columns. Two halves are the whole, exactly.
        more = 1 + (dim + 1) % 2
        if more == 2:
            added = editor.add("Mul", added, editor.constant(np.float32(0.5)))
        right = editor.concat([right, editor.expand(added, (-1, more, shape[2]))], 1)
        left = editor.concat([k, editor.constant(np.ones((1, length, more), np.float32))], 2)
    return _sum(editor, [editor.add("BatchMatMulV2", left, right), *left_over])


def _of(editor, reference: str, k: str):
    """V when `reference` is k V."""
    if editor.op(reference) != "BatchMatMulV2" or editor.inputs(reference)[0] != k:
        return None
    right, attrs = editor.inputs(reference)[1], editor.node(reference).attr
    plain = len(editor.shape(right)) == 2 and not attrs["adj_x"].b and not attrs["adj_y"].b
    return right if plain else None


def _sum(editor, references: list[str]) -> str:
    total = references[0]
    for reference in references[1:]:
        total = editor.add("AddV2", total, reference)
    return total
