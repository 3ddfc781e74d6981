"""What a dense graph costs, counted from its shapes: FLOPs of matrix products, and bytes that ops read and write."""

from dataclasses import dataclass
from math import prod

from ..errors import GraphError
from .dense import DenseGraph
from .editor import Editor
from .rewrite import rebuild

__all__ = ["Cost", "cost"]

_PRODUCTS = frozenset({"BatchMatMul", "BatchMatMulV2", "MatMul"})
_FREE = frozenset({"Const", "ExpandDims", "Identity", "Placeholder", "Reshape", "Shape", "Squeeze"})


@dataclass(frozen=True)
class Cost:
    """Of one request. FLOPs: of matrix products, a multiplication and an addition being two. Bytes: inputs and outputs
    of all ops, as if each went to memory; constants included. `user`: what runs once, `item`: what follows the
    candidates."""

    nodes: int
    flops_user: int
    flops_item: int
    bytes_user: int
    bytes_item: int

    @property
    def flops(self) -> int:
        """Of both graphs."""
        return self.flops_user + self.flops_item

    @property
    def bytes(self) -> int:
        """Of both graphs."""
        return self.bytes_user + self.bytes_item


def cost(dense: DenseGraph, n: int) -> Cost:
    """The cost of a request with `n` candidates, scored as one slice. Raises GraphError for a product whose shape does
    not follow from the inputs' shapes."""
    item = _count(dense.item, (*dense.inputs, *dense.shared), dense.outputs, n)
    user = (0, 0, 0)
    if dense.user is not None:
        user = _count(dense.user, dense.inputs, [entry.name for entry in dense.shared], n)
    return Cost(item[0] + user[0], user[1], item[1], user[2], item[2])


def _count(graph_def, inputs, outputs, n: int) -> tuple[int, int, int]:
    flops = moved = 0

    def look(editor: Editor, node, read):
        nonlocal flops, moved
        made = editor.copy(node, read)
        if node.op in _PRODUCTS:
            flops += _product_flops(editor, node, made[0], n)
        if node.op not in _FREE:
            moved += sum(_bytes(editor, reference, n) for reference in (*read, *made))
        return made

    rebuild(graph_def, inputs, outputs, look)
    return len(graph_def.node), flops, moved


def _product_flops(editor: Editor, node, out: str, n: int) -> int:
    shape, left = editor.shape(out), editor.shape(editor.inputs(out)[0])
    if shape is None or None in shape or left is None or None in left:
        raise GraphError(f"the shape of product {node.name!r} is {shape}: it does not follow from the inputs' shapes")
    moved = node.attr["transpose_a" if node.op == "MatMul" else "adj_x"].b
    return 2 * prod(_at(d, n) for d in (*shape, left[-2 if moved else -1]))


def _bytes(editor: Editor, reference: str, n: int) -> int:
    shape, dtype = editor.shape(reference), editor.dtype(reference)
    if shape is None or None in shape or not dtype.size:
        return 0
    return prod(_at(d, n) for d in shape) * dtype.size


def _at(dimension: int, n: int) -> int:
    return dimension if dimension >= 0 else -dimension * n
