"""Names and order that depend on the structure of a graph alone, so that equal models give equal bytes in any process,
whatever names the framework gave."""

from collections import Counter
from dataclasses import replace

import tensorflow as tf

from .dense import DenseGraph
from .graph import GraphIndex, node_of, port_of
from .rewrite import sorted_nodes

__all__ = ["canonical"]


def canonical(dense: DenseGraph) -> DenseGraph:
    """The dense graph with inputs called as they are, shared tensors `user_0` and on, and other nodes after their ops
    in the order in which they are met from the heads."""
    taken = {node_of(entry.name) for entry in dense.inputs}
    shared = {}
    if dense.user is not None:
        used = [node.name for node in sorted_nodes(GraphIndex(dense.item), dense.outputs)]
        order = sorted((node_of(entry.name) for entry in dense.shared), key=used.index)
        shared = {name: _free(taken, f"user_{i}") for i, name in enumerate(order)}
    item, names = _renamed(dense.item, dense.outputs, shared, taken)
    heads = tuple(replace(head, name=f"{names[node_of(head.name)]}:{port_of(head.name)}") for head in dense.heads)
    if dense.user is None:
        return replace(dense, item=item, heads=heads)
    entries = {node_of(entry.name): replace(entry, name=f"{shared[node_of(entry.name)]}:0") for entry in dense.shared}
    user, _ = _renamed(dense.user, list(shared), shared, taken)
    return replace(dense, item=item, heads=heads, user=user, shared=tuple(entries[name] for name in shared))


def _renamed(graph_def, outputs, given: dict[str, str], taken: set[str]):
    index, counts = GraphIndex(graph_def), Counter()
    nodes, names = sorted_nodes(index, outputs), dict(given)
    busy = taken | set(given.values())
    result = tf.compat.v1.GraphDef()
    result.versions.CopyFrom(graph_def.versions)
    for source in nodes:
        if source.op == "Placeholder":
            names.setdefault(source.name, source.name)
        elif source.name not in names:
            names[source.name] = _free(busy, f"{source.op.lower()}_{counts[source.op]}")
            counts[source.op] += 1
        node = result.node.add()
        node.CopyFrom(source)
        node.name = names[source.name]
        del node.input[:]
        node.input.extend(names[node_of(r)] + (f":{port_of(r)}" if port_of(r) else "") for r in source.input)
    return result, names


def _free(taken: set[str], name: str) -> str:
    while name in taken:
        name += "_"
    return name
