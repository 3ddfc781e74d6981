"""Parallel layers become one: products of one tensor with several weights are one product with all the columns.

Biases, activations and other elementwise ops that follow in each go along on the wide result; it is cut where the
layers part ways. So the first layers of experts, gates and towers, and the last ones of heads, run as one.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .dense import DenseGraph
from .graph import GraphIndex, data_inputs, node_of
from .kinds import UNARY
from .rewrite import rewrite, sorted_nodes

__all__ = ["merge_parallel"]

_WITH_CONSTANT = frozenset({"AddV2", "Add", "BiasAdd", "Mul", "Maximum", "Minimum", "Sub"})


@dataclass
class _Layer:
    """A product and the elementwise nodes that follow it: each with the constant it takes, if it takes one."""

    name: str
    weights: np.ndarray
    tail: list = field(default_factory=list)
    constants: list = field(default_factory=list)
    squeezed: bool = False

    @property
    def width(self) -> int:
        return self.weights.shape[1]

    @property
    def steps(self) -> tuple:
        """What two layers must have in common to be one: ops with attributes, in order."""
        return tuple((node.op, constant is None, _attrs(node))
                     for node, constant in zip(self.tail, self.constants, strict=True))


def merge_parallel(dense: DenseGraph) -> DenseGraph:
    """The graphs with one wide product for all two-dimensional products by constants that read the same tensor."""
    merge = _Merge(dense)
    return rewrite(dense, merge)


class _Merge:
    """The rule: the first product of a group builds the group; its others, and all tails, take their part of it."""

    def __init__(self, dense: DenseGraph):
        self._group: dict[str, list[_Layer]] = {}
        self._followers: set[str] = set()
        self._built: dict[str, str] = {}
        for graph in dense.graphs().values():
            self._look(GraphIndex(graph), dense)

    def __call__(self, editor, node, inputs):
        if node.name in self._followers:
            return inputs[0]
        if node.name in self._group:
            if node.name not in self._built:
                self._built |= _wide(editor, inputs[0], self._group[node.name])
            return self._built[node.name]
        return None

    def _look(self, index: GraphIndex, dense: DenseGraph) -> None:
        outputs = [o for o in (*dense.outputs, *(e.name for e in dense.shared)) if node_of(o) in index.nodes]
        readers, found = index.readers(), defaultdict(list)
        for node in sorted_nodes(index, outputs):
            if node.op == "MatMul" and not node.attr["transpose_a"].b:
                weights = index.constant(node.input[1])
                if weights is not None and weights.dtype == np.float32:
                    weights = weights.T if node.attr["transpose_b"].b else weights
                    found[node.input[0]].append(_Layer(node.name, weights))
        ends = {node_of(output) for output in outputs}
        for layers in found.values():
            if len(layers) < 2:
                continue
            for layer in layers:
                _follow(index, readers, layer, ends)
                self._group[layer.name] = layers
                self._followers.update(node.name for node in layer.tail)


def _follow(index: GraphIndex, readers, layer: _Layer, ends: set[str]) -> None:
    """Collects the tail of a layer: elementwise nodes, each the only reader of the one before."""
    name = layer.name
    while name not in ends and len(readers[name]) == 1:
        reader, position = readers[name][0]
        node = index.nodes[reader]
        constant = None
        if node.op in _WITH_CONSTANT and len(data_inputs(node)) == 2:
            constant = index.constant(node.input[1 - position])
            if constant is None or constant.size not in (1, layer.width) or (node.op == "Sub" and position == 1):
                return
            if constant.size > 1 and constant.shape[-1] != layer.width:
                return
        elif node.op == "Reshape" and layer.width == 1 and position == 0 and not layer.squeezed:
            wanted = index.constant(node.input[1])
            if wanted is None or wanted.tolist() != [-1]:
                return
            layer.squeezed = True
        elif node.op not in UNARY or node.op == "Cast":
            return
        layer.tail.append(node)
        layer.constants.append(constant)
        name = reader


def _wide(editor, source: str, layers: Sequence[_Layer]) -> dict[str, str]:
    """{product's name: what stands for the end of its tail}."""
    groups = defaultdict(list)
    for layer in layers:
        groups[_elementwise_steps(layer)].append(layer)
    ordered = [layer for members in groups.values() for layer in members]
    weights = editor.constant(np.concatenate([layer.weights for layer in ordered], axis=1))
    wide, done = editor.add("MatMul", source, weights), 0
    while all(len(steps) > done and steps[done] == next(iter(groups))[done] for steps in groups):
        wide = _step(editor, wide, ordered, done)
        done += 1
    ends, at = {}, 0
    for steps, members in groups.items():
        width = sum(layer.width for layer in members)
        part = editor.columns(wide, at, at + width)
        for step in range(done, len(steps)):
            part = _step(editor, part, members, step)
        ends |= _cut(editor, part, members)
        at += width
    return ends


def _elementwise_steps(layer: _Layer) -> tuple:
    return tuple(step for step in layer.steps if step[0] != "Reshape")


def _step(editor, wide: str, layers: Sequence[_Layer], position: int) -> str:
    """One elementwise op of all `layers` on their columns."""
    pairs = [[p for p in zip(layer.tail, layer.constants, strict=True) if p[0].op != "Reshape"][position]
             for layer in layers]
    node = pairs[0][0]
    if pairs[0][1] is None:
        return editor.copy(node, [wide])[0]
    rows = [np.broadcast_to(constant.reshape(-1), (layer.width,))
            for layer, (_, constant) in zip(layers, pairs, strict=True)]
    added = editor.constant(np.concatenate(rows))
    return editor.add("AddV2" if node.op in ("BiasAdd", "Add") else node.op, wide, added)


def _cut(editor, part: str, members: Sequence[_Layer]) -> dict[str, str]:
    if len(members) == 1:
        pieces = [part]
    else:
        sizes = editor.constant(np.array([layer.width for layer in members], np.int32))
        pieces = editor.add("SplitV", part, sizes, editor.constant(np.int32(-1)), outputs=2, num_split=len(members))
    return {layer.name: editor.reshape(piece, (-1,)) if layer.squeezed else piece
            for layer, piece in zip(members, pieces, strict=True)}


def _attrs(node) -> tuple:
    ignored = ("T", "_output_shapes", "_class")
    return tuple(sorted((k, v.SerializeToString(deterministic=True)) for k, v in node.attr.items() if k not in ignored
                        and not (k == "data_format" and v.s == b"NHWC")))


