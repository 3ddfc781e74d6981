"""A GraphDef that passes can ask about: nodes by name, who reads whom, tracing and pruning.

Not thread-safe; a GraphIndex owns a copy, so the caller's GraphDef never changes.
"""

from collections import defaultdict
from collections.abc import Iterable

import tensorflow as tf

from ..errors import GraphError

__all__ = ["ID_TYPES", "GraphIndex", "data_inputs", "node_of", "port_of"]

_VOLATILE_ATTRS = ("_class", "_output_shapes", "_user_specified_name")
# Nodes whose only effect is to read a variable: an edge that merely waits for one of them orders nothing in inference.
_READS = frozenset({"ReadVariableOp", "ResourceGather"})
_TRANSPARENT = frozenset({"Identity", "StopGradient"})
ID_TYPES = (tf.int32.as_datatype_enum, tf.int64.as_datatype_enum)


def node_of(reference: str) -> str:
    """The node name of an input reference: `^name`, `name` or `name:port`."""
    return reference.lstrip("^").split(":")[0]


def port_of(reference: str) -> int:
    """The output port of a data reference."""
    return int(reference.split(":")[1]) if ":" in reference else 0


def data_inputs(node) -> list[str]:
    """The node's input references without control edges."""
    return [reference for reference in node.input if not reference.startswith("^")]


class GraphIndex:
    """Nodes by name and readers by node."""

    def __init__(self, graph_def):
        """Copies `graph_def`. Raises GraphError for an edge to a node that is not there."""
        self._versions = tf.compat.v1.GraphDef()
        self._versions.versions.CopyFrom(graph_def.versions)
        self._versions.library.CopyFrom(graph_def.library)
        self.nodes = {}
        for source in graph_def.node:
            node = tf.compat.v1.NodeDef()
            node.CopyFrom(source)
            self.nodes[node.name] = node
        for node in self.nodes.values():
            for reference in node.input:
                if node_of(reference) not in self.nodes:
                    raise GraphError(f"node {node.name!r} reads {reference!r}, which is not in the graph")

    def readers(self) -> dict[str, list[tuple[str, int]]]:
        """For each node, the (node, input position) pairs that read its data."""
        found = defaultdict(list)
        for node in self.nodes.values():
            for position, reference in enumerate(data_inputs(node)):
                found[node_of(reference)].append((node.name, position))
        return found

    def through_identities(self, reference: str) -> str:
        """`reference` followed backwards through nodes that pass their value on, casts between int32 and int64 too."""
        node = self.nodes[node_of(reference)]
        while node.op in _TRANSPARENT or _is_id_cast(node):
            reference = node.input[0]
            node = self.nodes[node_of(reference)]
        return reference

    def constant(self, reference: str):
        """The numpy value of a Const, or None when the reference is something else."""
        node = self.nodes[node_of(self.through_identities(reference))]
        return tf.make_ndarray(node.attr["value"].tensor) if node.op == "Const" else None

    def number(self, reference: str) -> int | None:
        """The value of a constant scalar, or of one dimension taken from a constant shape; None when it is neither."""
        node = self.nodes[node_of(self.through_identities(reference))]
        if node.op != "StridedSlice":
            value = self.constant(reference)
            return int(value) if value is not None and value.ndim == 0 else None
        shape, begin = self.constant(node.input[0]), self.constant(node.input[1])
        taken = shape is not None and begin is not None and shape.ndim == 1 and node.attr["shrink_axis_mask"].i == 1
        return int(shape[begin[0]]) if taken and not node.attr["begin_mask"].i else None

    def rewire(self, old: str, new: str) -> None:
        """Lets every data reader of tensor `old` (node:0) read `new` instead."""
        for node in self.nodes.values():
            for position, reference in enumerate(node.input):
                if not reference.startswith("^") and node_of(reference) == old and port_of(reference) == 0:
                    node.input[position] = new

    def drop_variable_waits(self) -> None:
        """Removes control edges that only wait for variable reads, straight or through NoOps; others stay."""
        for node in self.nodes.values():
            kept = {f"^{name}" for reference in node.input if reference.startswith("^")
                    for name in self._true_waits(node_of(reference), set())}
            data = data_inputs(node)
            del node.input[:]
            node.input.extend([*data, *sorted(kept)])

    def _true_waits(self, name: str, seen: set[str]) -> set[str]:
        if name in seen:
            return set()
        seen.add(name)
        node = self.nodes[name]
        if node.op in _READS or node.op in ("Const", "Placeholder"):
            return set()
        if node.op == "NoOp":
            return {wait for reference in node.input for wait in self._true_waits(node_of(reference), seen)}
        return {name}

    def needed(self, outputs: Iterable[str]) -> set[str]:
        """Names of all nodes that `outputs` (tensor names) depend on. Raises GraphError for an output that is
        missing."""
        waiting = [node_of(output) for output in outputs]
        missing = [name for name in waiting if name not in self.nodes]
        if missing:
            raise GraphError(f"output {missing[0]!r} is not in the graph")
        found = set()
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(node_of(reference) for reference in self.nodes[name].input)
        return found

    def pruned(self, outputs: Iterable[str]):
        """A GraphDef of what `outputs` need: nodes sorted by name and without volatile attributes, so that equal graphs
        give equal bytes."""
        result = tf.compat.v1.GraphDef()
        result.versions.CopyFrom(self._versions.versions)
        result.library.CopyFrom(self._versions.library)
        for name in sorted(self.needed(outputs)):
            node = result.node.add()
            node.CopyFrom(self.nodes[name])
            node.ClearField("experimental_debug_info")
            for attr in _VOLATILE_ATTRS:
                node.attr.pop(attr, None)
        if not any(_uses_functions(node) for node in result.node):
            result.ClearField("library")
        return result


def _is_id_cast(node) -> bool:
    # Casts to and from other types change ids: bool makes them 0 and 1, float32 merges those above 2**24.
    return node.op == "Cast" and node.attr["SrcT"].type in ID_TYPES and node.attr["DstT"].type in ID_TYPES


def _uses_functions(node) -> bool:
    return "PartitionedCall" in node.op or any(
        attr.WhichOneof("value") == "func" or attr.list.func for attr in node.attr.values()
    )
