"""Cut: embedding tables leave the graph before it is frozen; their rows come in through placeholders instead.

Tables are recognised by how they are read, not by name:

    Keras Embedding              ReadVariableOp -> GatherV2(axis 0), ids through SelectV2(Less(x, 0), x + rows, x)
    tf.nn.embedding_lookup       ResourceGather
    pooled                       SparseSegment{Sum,Mean,SqrtN}[WithNumSegments] that reads the table
    pooled, deduplicated         the same that reads a gather of Unique's ids (tf.nn.embedding_lookup_sparse)

Ids, and the bags that pool them, must be fed as they are: whatever else the graph computes from them would be lost.
A table that is also read in another way (tied output weights) cannot leave and is refused; a large variable that is
never looked up (a dense kernel) is not a table and stays. Only shapes are looked at here, so a table's size does not
matter.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import tensorflow as tf

from ..errors import GraphError
from .graph import ID_TYPES, GraphIndex, data_inputs, node_of, port_of
from .variables import Variable

__all__ = ["Cut", "CutGraph", "cut"]

Mode = Literal["rows", "sum", "mean", "sqrtn"]
_Slot = tuple[str, str, Mode]  # variable, placeholder of its ids, how they are pooled

_POOLING: Mapping[str, Mode] = {
    "SparseSegmentSum": "sum", "SparseSegmentMean": "mean", "SparseSegmentSqrtN": "sqrtn",
    "SparseSegmentSumWithNumSegments": "sum", "SparseSegmentMeanWithNumSegments": "mean",
    "SparseSegmentSqrtNWithNumSegments": "sqrtn",
}


@dataclass(frozen=True)
class Cut:
    """One lookup that became an input.

    Attributes:
        variable: the node that stood for the table.
        ids: the placeholder that its ids came from.
        mode: "rows", or how the ids of a bag were pooled.
        input: the new placeholder, float32.
        shape: its shape, None for open dimensions; rows: the ids' shape and the dim; pooled: [bags, dim].
    """

    variable: str
    ids: str
    mode: Mode
    input: str
    shape: tuple[int | None, ...]


@dataclass(frozen=True)
class CutGraph:
    """The graph without its tables, what was cut, and the variables that the graph still reads."""

    graph_def: tf.compat.v1.GraphDef
    cuts: tuple[Cut, ...]
    variables: Mapping[str, Variable]


def cut(
    graph_def: tf.compat.v1.GraphDef,
    variables: Mapping[str, Variable],
    outputs: Collection[str],
    rows_min: int,
    always: Collection[str] = (),
    refused: Callable[[str, GraphError], None] | None = None,
) -> CutGraph:
    """Cuts every table with at least `rows_min` rows, and every table looked up by a placeholder in `always`.

    `variables` is keyed by graph node (see captured_variables); `outputs` are tensor names. Id placeholders that
    nothing else reads disappear. Raises GraphError for a table that cannot leave the graph, naming the node in the
    way; with `refused`, such a table stays, and `refused` is told its name and that error.
    """
    graph = GraphIndex(graph_def)
    needed = graph.needed(outputs)
    placed: dict[_Slot, tuple[Cut, str | None]] = {}
    for name in sorted(variables):
        shape = variables[name].shape
        if name not in needed or len(shape) != 2 or (shape[0] < rows_min and not always):
            continue
        try:
            slots = _slots(graph, name, variables[name], needed, placed, always if shape[0] < rows_min else None)
        except GraphError as error:
            if refused is None:
                raise
            refused(name, error)
            continue
        for lookup, (key, bags) in slots.items():
            if key not in placed:
                placed[key] = (_place_input(graph, *key, dim=shape[1]), bags)
            graph.rewire(lookup, placed[key][0].input)
    graph.drop_variable_waits()
    cuts, result = tuple(placed_cut for placed_cut, _ in placed.values()), graph.pruned(outputs)
    left = {node.name for node in result.node}
    held = {one.variable for one in cuts if one.variable in left or one.input not in left}
    for name in sorted(held):
        error = GraphError(f"table {name!r} is still read although its lookups were cut: is a lookup itself an output, "
                           "or waited for? Put an Identity behind it")
        if refused is None:
            raise error
        refused(name, error)
    if held:
        others = {name: variable for name, variable in variables.items() if name not in held}
        again = cut(graph_def, others, outputs, rows_min, always, lambda name, error: None)
        return CutGraph(again.graph_def, again.cuts, _left(again.graph_def, variables))
    return CutGraph(result, cuts, _left(result, variables))


def _left(graph_def, variables: Mapping[str, Variable]) -> dict[str, Variable]:
    left = {node.name for node in graph_def.node}
    return {name: variable for name, variable in variables.items() if name in left}


def _slots(graph: GraphIndex, name: str, variable: Variable, needed: set[str], placed: Mapping,
           only: Collection[str] | None) -> dict[str, tuple[_Slot, str | None]]:
    """Lookup node -> (the slot that takes its place, the placeholder of its bags) for every lookup of a table.

    Empty for a variable that is never looked up, or by none of the placeholders `only`. Changes nothing. Raises
    GraphError when the table cannot leave.
    """
    found = _lookups(graph, name, needed)
    ids = {lookup: _ids_placeholder(graph, reference, variable.shape[0]) for lookup, (_, reference) in found.items()}
    if not found or (only is not None and not set(ids.values()) & set(only)):
        return {}
    _refuse_other_readers(graph, name, found, needed)
    if variable.dtype != np.float32:
        raise GraphError(f"table {name!r} is {variable.dtype}; only float32 tables can be cut")
    slots: dict[str, tuple[_Slot, str | None]] = {}
    bags_of = {key: bags for key, (_, bags) in placed.items()}
    for lookup, (mode, _) in sorted(found.items()):
        if ids[lookup] is None:
            raise GraphError(f"the ids of lookup {lookup!r} are computed inside the graph, not fed; feed them")
        key, bags = (name, ids[lookup], mode), None if mode == "rows" else _bags_placeholder(graph, lookup)
        if mode == "rows" and _unknown_rank(graph.nodes[ids[lookup]]):
            raise GraphError(f"ids placeholder {ids[lookup]!r} has no known rank; declare its shape")
        if bags_of.setdefault(key, bags) != bags:
            raise GraphError(f"ids {ids[lookup]!r} are pooled by {bags_of[key]!r} and by {bags!r}; one slot has "
                             "one way to cut its ids into bags: feed them as two")
        slots[lookup] = (key, bags)
    return slots


def _reads(graph: GraphIndex, readers: Mapping, name: str, needed: set[str]) -> list[tuple[str, int]]:
    """(node, position) of everything that consumes the variable's value: through reads and nodes that pass it on."""
    found, waiting = [], [name]
    while waiting:
        for reader, position in readers.get(waiting.pop(), ()):
            if reader not in needed:
                continue
            if graph.nodes[reader].op in ("ReadVariableOp", "Identity"):
                waiting.append(reader)
            else:
                found.append((reader, position))
    return found


def _lookups(graph: GraphIndex, name: str, needed: set[str]) -> dict[str, tuple[Mode, str]]:
    """Lookup node -> (mode, reference to its ids) for every recognised read of the variable."""
    readers = graph.readers()
    found = {}
    for reader, position in _reads(graph, readers, name, needed):
        node = graph.nodes[reader]
        if position != 0:
            continue
        if node.op in _POOLING:
            found[reader] = (_POOLING[node.op], node.input[1])
        elif node.op in ("ResourceGather", "GatherV2") and _along_rows(graph, node):
            found |= _gather_lookups(graph, readers, reader, needed)
    return found


def _along_rows(graph: GraphIndex, node) -> bool:
    axis = graph.constant(node.input[2]) if node.op == "GatherV2" else 0
    return axis is not None and int(axis) == 0 and node.attr["batch_dims"].i == 0


def _gather_lookups(graph: GraphIndex, readers, gather: str, needed: set[str]) -> dict[str, tuple[Mode, str]]:
    """A plain gather; or, when its ids are Unique's, the poolings that put the distinct rows back in place."""
    ids = graph.through_identities(graph.nodes[gather].input[1])
    unique = graph.nodes[node_of(ids)]
    if unique.op != "Unique" or port_of(ids) != 0:
        return {gather: ("rows", ids)}
    found = {}
    for reader, _ in _reads(graph, readers, gather, needed):
        node = graph.nodes[reader]
        places = graph.through_identities(node.input[1]) if len(data_inputs(node)) > 1 else None
        if node.op not in _POOLING or places != f"{unique.name}:1":
            raise GraphError(f"lookup {gather!r} of distinct ids is read by {reader!r} ({node.op}), not only pooled")
        found[reader] = (_POOLING[node.op], unique.input[0])
    return found


def _ids_placeholder(graph: GraphIndex, reference: str, rows: int) -> str | None:
    """The placeholder behind ids: through nodes that pass them on, and through Keras' wrapping of negative ids."""
    while True:
        reference = graph.through_identities(reference)
        node = graph.nodes[node_of(reference)]
        if node.op == "Placeholder":
            return node.name if node.attr["dtype"].type in ID_TYPES else None
        if node.op != "SelectV2" or not _wraps_negatives(graph, node, rows):
            return None
        reference = node.input[2]


def _wraps_negatives(graph: GraphIndex, select, rows: int) -> bool:
    condition, wrapped = (graph.nodes[node_of(reference)] for reference in select.input[:2])
    if condition.op != "Less" or wrapped.op not in ("Add", "AddV2") or condition.input[0] != select.input[2]:
        return False
    zero, added = graph.constant(condition.input[1]), [r for r in wrapped.input if r != select.input[2]]
    return zero is not None and not zero.any() and len(added) == 1 and graph.number(added[0]) == rows


def _bags_placeholder(graph: GraphIndex, lookup: str) -> str:
    """The placeholder that cuts a pooling's ids into bags: segments, or column 0 of a sparse tensor's indices."""
    node = graph.nodes[node_of(graph.through_identities(graph.nodes[lookup].input[2]))]
    if node.op == "StridedSlice" and _is_first_column(graph, node):
        node = graph.nodes[node_of(graph.through_identities(node.input[0]))]
        if node.op == "Pack" and node.attr["axis"].i in (1, -1):
            node = graph.nodes[node_of(graph.through_identities(node.input[0]))]
    if node.op != "Placeholder":
        raise GraphError(f"the bags of lookup {lookup!r} are computed inside the graph ({node.name!r}, {node.op}), not "
                         "fed; feed them")
    return node.name


def _is_first_column(graph: GraphIndex, node) -> bool:
    """Whether a StridedSlice is x[:, 0]."""
    begin, _, strides = (graph.constant(reference) for reference in node.input[1:4])
    masks = [node.attr[name].i for name in ("begin_mask", "end_mask", "shrink_axis_mask", "ellipsis_mask",
                                            "new_axis_mask")]
    return begin is not None and begin.size == 2 and begin[1] == 0 and strides is not None and strides[0] == 1 and (
        masks == [masks[0], masks[1], 2, 0, 0] and bool(masks[0] & 1) and bool(masks[1] & 1))


def _refuse_other_readers(graph: GraphIndex, name: str, lookups: Collection[str], needed: set[str]) -> None:
    sources = {node_of(graph.through_identities(graph.nodes[lookup].input[0])) for lookup in lookups} | set(lookups)
    for reader, _ in _reads(graph, graph.readers(), name, needed):
        if reader not in sources:
            op = graph.nodes[reader].op
            raise GraphError(f"table {name!r} is also read by {reader!r} ({op}); a cut table may only be looked up")


def _unknown_rank(placeholder) -> bool:
    return "shape" not in placeholder.attr or placeholder.attr["shape"].shape.unknown_rank


def _place_input(graph: GraphIndex, variable: str, ids: str, mode: Mode, dim: int) -> Cut:
    shape = graph.nodes[ids].attr["shape"].shape
    dims = [d.size if d.size >= 0 else None for d in shape.dim] if mode == "rows" else [None]
    name = f"{ids}_{mode}"
    if name in graph.nodes:
        name = f"{ids}_{mode}_of_{variable.replace('/', '_')}"
    if name in graph.nodes:
        raise GraphError(f"cannot name an input {name!r}: the graph has such a node")
    node = tf.compat.v1.NodeDef(name=name, op="Placeholder")
    node.attr["dtype"].type = tf.float32.as_datatype_enum
    node.attr["shape"].shape.CopyFrom(tf.TensorShape([*dims, dim]).as_proto())
    graph.nodes[name] = node
    return Cut(variable, ids, mode, name, (*dims, dim))
