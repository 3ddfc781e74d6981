"""Repetition sinks: what is computed from a repeated tensor is computed once and repeated afterwards, or not at all.

A user's tensor of leading dimension 1 that is tiled to n, and whatever else Tile and BroadcastTo repeat, goes into
ops that broadcast as it is. Past ops that treat candidates side by side the repetition moves to their output. What is
left repeats only where an op cannot do without.
"""

from .dense import DenseGraph
from .kinds import BROADCASTING, LAST_AXIS, UNARY
from .rewrite import rewrite

__all__ = ["once", "sink_tiles"]

_REDUCTIONS = frozenset({"All", "Any", "Max", "Mean", "Min", "Prod", "Sum"})


def sink_tiles(dense: DenseGraph) -> DenseGraph:
    """The graphs with every Tile and BroadcastTo as late as it can be."""
    return rewrite(dense, _rule)


def once(editor, reference: str) -> str:
    """The tensor before it was repeated along dimensions of size 1; `reference` itself when it was not."""
    while editor.op(reference) in ("Tile", "BroadcastTo") and editor.known(reference):
        source = editor.inputs(reference)[0]
        before, after = editor.shape(source), editor.shape(reference)
        if before is None or None in before or len(before) != len(after):
            break
        if any(a != b and a != 1 for a, b in zip(before, after, strict=True)):
            break
        reference = source
    return reference


def _rule(editor, node, inputs):
    if node.op == "Fill":
        return _filled(editor, node, inputs)
    bare = [once(editor, r) for r in inputs]
    if bare == list(inputs) or node.op in ("Tile", "BroadcastTo"):
        return _again(editor, node, inputs, bare)
    if node.op in UNARY or node.op in BROADCASTING:
        return _elementwise(editor, node, inputs, bare)
    if _side_by_side(editor, node, inputs, bare):
        return _moved(editor, node, inputs, bare)
    if node.op in ("BatchMatMulV2", "BatchMatMul"):
        return _batched(editor, node, inputs, bare)
    return None


def _filled(editor, node, inputs):
    """A tensor of one value is that value repeated."""
    made = editor.copy(node, inputs)[0]
    value, shape = editor.value(inputs[1]), editor.shape(made)
    if value is None or not shape or None in shape or min(shape) >= 0:
        return made
    return editor.expand(editor.constant(value.reshape((1,) * len(shape))), shape)


def _again(editor, node, inputs, bare):
    """Tiles of tiles are one."""
    if node.op not in ("Tile", "BroadcastTo") or bare[0] == inputs[0]:
        return None
    shape = editor.shape(editor.copy(node, inputs)[0])
    if shape is None or None in shape or len(shape) != len(editor.shape(bare[0])):
        return None
    made = editor.expand(bare[0], shape)
    return made if once(editor, made) == bare[0] else None


def _elementwise(editor, node, inputs, bare):
    before = editor.copy(node, inputs)
    shape = editor.shape(before[0])
    if shape is None or None in shape:
        return before
    result = editor.copy(node, bare)
    return [editor.expand(reference, shape) for reference in result]


def _batched(editor, node, inputs, bare):
    """A batch of products that broadcasts over the batch: matrices repeated as a whole are read once."""
    kept = [b if editor.shape(r)[-2:] == editor.shape(b)[-2:] else r for r, b in zip(inputs, bare, strict=True)]
    if kept == list(inputs) or node.op == "BatchMatMul":
        return None
    shape = editor.shape(editor.copy(node, inputs)[0])
    return [editor.expand(reference, shape) for reference in editor.copy(node, kept)]


def _moved(editor, node, inputs, bare):
    """The op on tensors of leading dimension 1, its outputs repeated."""
    before = editor.copy(node, inputs)
    shapes = [editor.shape(reference) for reference in before]
    leading = [_leading(editor, r, b) for r, b in zip(inputs, bare, strict=True)]
    after = editor.copy(node, leading)
    fits = all(s is not None and None not in s and editor.shape(r) == (1, *s[1:])
               for s, r in zip(shapes, after, strict=True))
    return [editor.expand(r, s) for r, s in zip(after, shapes, strict=True)] if fits else before


def _leading(editor, reference, bare):
    """`reference` as it was before its first dimension was repeated; its other repetitions stay."""
    if bare == reference:
        return reference
    shape = editor.shape(reference)
    return editor.expand(bare, (editor.shape(bare)[0], *shape[1:]))


def _side_by_side(editor, node, inputs, bare) -> bool:
    """Whether output row i comes from row i of the inputs that follow the candidates, and all of those are
    repeated."""
    op, first = node.op, inputs[0]
    for reference, source in zip(inputs, bare, strict=True):
        if editor.follows(reference) and (source == reference or editor.shape(source)[0] != 1):
            return False
    shape = editor.shape(first)
    if not shape or shape[0] != -1:
        return False
    if op in LAST_AXIS:
        return len(shape) > 1
    if op in _REDUCTIONS:
        axes = editor.value(inputs[1])
        return axes is not None and all(a % len(shape) != 0 for a in axes.ravel().tolist())
    if op == "MatMul":
        return not node.attr["transpose_a"].b and not editor.follows(inputs[1])
    if op in ("BatchMatMulV2", "BatchMatMul"):
        return len(shape) > 2 or (not editor.follows(inputs[1]) and not node.attr["adj_x"].b)
    if op == "ConcatV2":
        axis = editor.value(inputs[-1])
        return axis is not None and int(axis) % len(shape) != 0
    if op in ("Split", "SplitV", "StridedSlice", "Reshape", "Transpose", "GatherV2", "Squeeze", "ExpandDims", "Pack"):
        return _keeps_rows(editor, node, inputs)
    return False


def _keeps_rows(editor, node, inputs) -> bool:
    """Whether an op on an op's layout leaves the first dimension alone."""
    if node.op == "Reshape":
        out = editor.shape(editor.copy(node, inputs)[0])
        wanted = editor.value(inputs[1])
        return bool(out) and out[0] == -1 and wanted is not None and int(wanted[0]) == -1
    if node.op == "Transpose":
        order = editor.value(inputs[1])
        return order is not None and int(order[0]) == 0
    if node.op == "StridedSlice":
        begin = editor.value(inputs[1])
        masks = node.attr["begin_mask"].i & 1 and node.attr["end_mask"].i & 1
        moved = any(node.attr[name].i & 1 for name in ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask"))
        return begin is not None and bool(masks) and not moved
    if node.op == "GatherV2":
        axis = editor.value(inputs[2])
        return axis is not None and int(axis) > 0 and node.attr["batch_dims"].i == 0 and not editor.follows(inputs[1])
    return False
