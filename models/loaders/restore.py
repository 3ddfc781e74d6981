"""Which variable of a graph a checkpoint's tensor belongs to: read off the op that would restore it, without running
it."""

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from ..passes.graph import GraphIndex, node_of, port_of
from .inline import inline_functions

__all__ = ["Restored", "assigned", "part_of", "restored_variables"]

_ASSIGNS = ("AssignVariableOp", "Assign")


class Restored(NamedTuple):
    """The key of a variable's tensor in the checkpoint, and which part of that tensor ("" for all of it)."""

    key: str
    part: str


def part_of(graph_def, *nodes: str) -> tf.compat.v1.GraphDef:
    """The part of a graph that computes some nodes, its functions inlined. Raises GraphError."""
    return inline_functions(GraphIndex(graph_def).pruned(nodes))


def restored_variables(graph_def, restore_op: str) -> dict[str, Restored]:
    """What the restore op would assign to each node of a variable; other assignments are left out."""
    index = GraphIndex(part_of(graph_def, restore_op))
    found = {}
    for variable, reference in assigned(index).items():
        source = index.nodes[node_of(index.through_identities(reference))]
        if source.op != "RestoreV2":
            continue
        keys, parts = index.constant(source.input[1]), index.constant(source.input[2])
        if keys is not None and parts is not None:
            at = port_of(index.through_identities(reference))
            found[variable] = Restored(keys[at].decode(), parts[at].decode())
    return found


def assigned(index: GraphIndex) -> Mapping[str, str]:
    """For each node of a variable, the reference that is assigned to it."""
    return {node_of(node.input[0]): node.input[1] for node in index.nodes.values() if node.op in _ASSIGNS}
