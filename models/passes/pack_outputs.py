"""The heads become rows of one fetched tensor, float32 [heads, n]."""

from dataclasses import replace

import numpy as np

from .dense import DenseGraph
from .rewrite import open_graph

__all__ = ["pack_outputs"]


def pack_outputs(dense: DenseGraph) -> DenseGraph:
    """The dense graph with one output, a row for each distinct head; unchanged when it has one output already."""
    names = dense.outputs
    if len(names) < 2:
        return dense
    editor, new = open_graph(dense.item, (*dense.inputs, *dense.shared), names)
    packed = _columns_turned(editor, [new[name] for name in names]) or editor.concat(
        [editor.reshape(new[name], (1, -1)) for name in names], 0)
    heads = tuple(replace(head, name=f"{packed}:0", row=names.index(head.name)) for head in dense.heads)
    return replace(dense, item=editor.finish([packed]), heads=heads)


def _columns_turned(editor, heads: list[str]) -> str | None:
    """Heads that are all the columns of one matrix, in order, are its transpose."""
    sources = []
    for head in heads:
        while editor.op(head) == "Reshape":
            head = editor.inputs(head)[0]
        sources.append(head)
    cut = editor.node(sources[0])
    ports = [cut.name if port == 0 else f"{cut.name}:{port}" for port in range(len(heads))]
    if cut.op != "SplitV" or sources != ports or cut.attr["num_split"].i != len(heads):
        return None
    wide = editor.inputs(sources[0])[0]
    if editor.shape(wide) != (-1, len(heads)):
        return None
    return editor.add("Transpose", wide, editor.constant(np.array([1, 0], np.int32)))
