"""What depends on the user and the moment alone becomes a graph of its own, run once a request however many candidates
there are, and however many slices they are scored in."""

from dataclasses import replace

import tensorflow as tf

from .dense import DenseGraph, DenseInput
from .graph import GraphIndex, data_inputs, node_of, port_of
from .rewrite import open_graph, sorted_nodes

__all__ = ["split_user"]

_RENAMING = frozenset({"Const", "ExpandDims", "Identity", "Placeholder", "Reshape", "Squeeze"})


def split_user(dense: DenseGraph) -> DenseGraph:
    """The dense graph with `user` and `shared`; unchanged when nothing is worth computing apart, or when it is split
    already.

    Only float32 tensors of leading dimension 1 are shared; what merely renames the dimensions of one stays with the
    items.
    """
    if dense.user is not None:
        return dense
    index = GraphIndex(dense.item)
    editor, new = open_graph(dense.item, dense.inputs, dense.outputs)

    def can_be_shared(reference: str) -> bool:
        shape = editor.shape(new[reference])
        return (index.nodes[node_of(reference)].op not in _RENAMING and editor.dtype(new[reference]) == tf.float32
                and bool(shape) and shape[0] == 1 and all(d is not None and d > 0 for d in shape))

    names = {}
    for position, reference in enumerate(_frontier(index, dense, can_be_shared)):
        names[reference] = _free(index, f"shared.{position}")
    if not names:
        return dense
    user, item = GraphIndex(dense.item), GraphIndex(dense.item)
    shared = tuple(DenseInput(f"{name}:0", "f32", tuple(editor.shape(new[r])), "user") for r, name in names.items())
    for (reference, name), entry in zip(names.items(), shared, strict=True):
        user.nodes[name] = tf.compat.v1.NodeDef(name=name, op="Identity", input=[reference])
        user.nodes[name].attr["T"].type = tf.float32.as_datatype_enum
        item.nodes[name] = tf.compat.v1.NodeDef(name=name, op="Placeholder")
        item.nodes[name].attr["dtype"].type = tf.float32.as_datatype_enum
        item.nodes[name].attr["shape"].shape.CopyFrom(tf.TensorShape(entry.shape).as_proto())
    for node in item.nodes.values():
        for position, reference in enumerate(node.input):
            node.input[position] = names.get(_plain(reference), reference)
    return replace(dense, user=user.pruned(names.values()), item=item.pruned(dense.outputs), shared=shared)


def _frontier(index: GraphIndex, dense: DenseGraph, can_be_shared) -> list[str]:
    """The user's tensors that the items read, in an order that depends on the graph alone."""
    sides = {node_of(entry.name): entry.side for entry in dense.inputs}
    reads: dict[str, set[str]] = {}
    for node in sorted_nodes(index, dense.outputs):
        reads[node.name] = {sides.get(node.name, "item")} if node.op == "Placeholder" else set().union(
            *(reads[node_of(r)] for r in data_inputs(node)))
    found: dict[str, None] = {}
    waiting = [name for name, read in reads.items() if "item" in read]
    seen = set(waiting)
    for name in waiting:
        for reference in data_inputs(index.nodes[name]):
            source = node_of(reference)
            if "item" in reads[source] or not reads[source]:
                continue
            if can_be_shared(_plain(reference)):
                found[_plain(reference)] = None
            elif source not in seen:
                seen.add(source)
                waiting.append(source)
    return list(found)


def _free(index: GraphIndex, name: str) -> str:
    while name in index.nodes:
        name += "."
    return name


def _plain(reference: str) -> str:
    return reference if port_of(reference) else node_of(reference)
