"""What only training needs goes: defaults that nobody feeds become their values, branches that they decide are taken,
and dropout at a rate of zero keeps everything.

    PlaceholderWithDefault, not fed        -> its default
    Switch, Merge with a known predicate   -> the live branch (tf.compat.v1.cond on a learning phase)
    If with a known predicate              -> a call of the branch, which is then inlined
    RandomUniform(...) >= 0, > negative    -> true (dropout whose rate turned out to be 0)
"""

from collections import deque
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from ..errors import GraphError
from ..passes.evaluate import evaluate, is_pure
from ..passes.graph import GraphIndex, data_inputs, node_of, port_of
from .inline import inline_functions

__all__ = ["for_inference"]

_KNOWN_BYTES_MAX = 1 << 16
_DEPTH_MAX = 64


def for_inference(graph_def: tf.compat.v1.GraphDef, ends: list[str]) -> tf.compat.v1.GraphDef:
    """The graph of `ends` (names of nodes or tensors) as it runs when only its placeholders are fed."""
    graph = _Simplified(graph_def)
    graph.take_defaults()
    while graph.take_branches(ends):
        graph = _Simplified(inline_functions(graph.pruned(ends)))
    graph.keep_all()
    return graph.pruned(ends)


class _Simplified(GraphIndex):
    """A graph on its way to inference."""

    def __init__(self, graph_def):
        super().__init__(graph_def)
        self._values: dict[str, np.ndarray | None] = {}

    def take_defaults(self) -> None:
        """What nobody feeds has its default."""
        for node in self.nodes.values():
            if node.op == "PlaceholderWithDefault":
                _become_identity(node, node.attr["dtype"].type)

    def take_branches(self, ends: list[str]) -> bool:
        """Resolves what has a known predicate; whether there are new calls to inline."""
        needed = self.needed(ends)
        dead = self._dead_switches(needed)
        if dead:
            self._merge(self._spread(dead, needed))
            self._values.clear()
        calls = False
        for name in sorted(needed):
            node = self.nodes[name]
            if node.op in ("If", "StatelessIf"):
                predicate = self.known(node.input[0])
                if predicate is not None and predicate.ndim == 0 and predicate.dtype == np.bool_:
                    self._call(node, "then_branch" if predicate else "else_branch")
                    calls = True
        return calls

    def _dead_switches(self, needed: set[str]) -> set[tuple[str, int]]:
        """Outputs of switches that never have a value; the other outputs become the switch's input."""
        dead = set()
        for name in sorted(needed):
            node = self.nodes[name]
            if node.op in ("Switch", "RefSwitch"):
                predicate = self.known(node.input[1])
                if predicate is not None and predicate.ndim == 0:
                    dead.add((name, 0 if predicate else 1))
        return dead

    def _spread(self, dead: set[tuple[str, int]], needed: set[str]) -> set[tuple[str, int]]:
        """All outputs without a value: everything that reads one, or waits for one, but a merge of others."""
        readers: dict[str, list[str]] = {}
        for name in needed:
            for reference in self.nodes[name].input:
                readers.setdefault(node_of(reference), []).append(name)
        gone, waiting = set(dead), deque(name for name, _ in dead)
        while waiting:
            for reader in readers.get(waiting.popleft(), ()):
                node = self.nodes[reader]
                if (reader, -1) not in gone and self._is_dead(node, gone):
                    gone.add((reader, -1))
                    waiting.append(reader)
        return gone

    def _is_dead(self, node, gone: set[tuple[str, int]]) -> bool:
        lost = [self._is_gone(reference, gone) for reference in node.input]
        if node.op in ("Merge", "RefMerge"):
            return all(lost)
        return any(lost)

    def _is_gone(self, reference: str, gone: set[tuple[str, int]]) -> bool:
        name = node_of(reference)
        # Waiting for a switch is waiting for its input: which of its outputs has a value does not matter.
        return (name, -1) in gone or (not reference.startswith("^") and (name, port_of(reference)) in gone)

    def _merge(self, gone: set[tuple[str, int]]) -> None:
        switches = {name for name, port in gone if port >= 0 and (name, -1) not in gone}
        for node in list(self.nodes.values()):
            if node.op not in ("Merge", "RefMerge") or (node.name, -1) in gone:
                continue
            inputs = data_inputs(node)
            live = [at for at, reference in enumerate(inputs) if not self._is_gone(reference, gone)]
            if len(live) == len(inputs):
                continue
            if len(live) == 1:
                self._replace_merge(node, inputs[live[0]], live[0])
                continue
            if any(reference == f"{node.name}:1" for other in self.nodes.values() for reference in other.input):
                raise GraphError(f"which input of {node.name!r} (Merge) has a value is read, and some never have one")
            _set_inputs(node, [inputs[at] for at in live])
            node.attr["N"].i = len(live)
        for name in switches:
            node = self.nodes[name]
            self._rewire_port(name, next(1 - port for n, port in gone if n == name and port >= 0), name)
            _set_inputs(node, node.input[:1])
            _become_identity(node, node.attr["T"].type)

    def _replace_merge(self, node, value: str, at: int) -> None:
        self._rewire_port(node.name, 1, self._constant(f"{node.name}/taken", np.int32(at)))
        _set_inputs(node, [value])
        _become_identity(node, node.attr["T"].type)

    def _constant(self, name: str, value) -> str:
        while name in self.nodes:
            name += "_"
        node = tf.compat.v1.NodeDef(name=name, op="Const")
        tensor = tf.make_tensor_proto(value)
        node.attr["dtype"].type = tensor.dtype
        node.attr["value"].tensor.CopyFrom(tensor)
        self.nodes[name] = node
        return name

    def _rewire_port(self, name: str, port: int, to: str) -> None:
        for node in self.nodes.values():
            for position, reference in enumerate(node.input):
                if not reference.startswith("^") and node_of(reference) == name and port_of(reference) == port:
                    node.input[position] = to

    def _call(self, node, branch: str) -> None:
        function, takes, gives = node.attr[branch].func, node.attr["Tin"], node.attr["Tout"]
        kept = tf.compat.v1.NodeDef(name=node.name, op="StatefulPartitionedCall", input=node.input[1:])
        kept.attr["f"].func.CopyFrom(function)
        kept.attr["Tin"].CopyFrom(takes)
        kept.attr["Tout"].CopyFrom(gives)
        node.CopyFrom(kept)

    def keep_all(self) -> None:
        """Dropout that drops nothing: the comparison of its random numbers is true, whatever they are."""
        for node in list(self.nodes.values()):
            if node.op not in ("GreaterEqual", "Greater"):
                continue
            drawn = self.nodes[node_of(self.through_identities(node.input[0]))]
            rate = self.known(node.input[1])
            never = rate is not None and rate.ndim == 0 and (rate < 0 or (rate == 0 and node.op == "GreaterEqual"))
            if drawn.op in ("RandomUniform", "StatelessRandomUniform", "StatelessRandomUniformV2") and never:
                self._fill_true(node, drawn.input[0])

    def _fill_true(self, node, shape: str) -> None:
        name = self._constant(f"{node.name}/true", True)
        shape_node = self.nodes[node_of(self.through_identities(shape))]
        known = "out_type" if shape_node.op == "Shape" else "dtype"
        kind = shape_node.attr[known].type if known in shape_node.attr else tf.int32.as_datatype_enum
        node.op = "Fill"
        del node.input[:]
        node.input.extend([shape, name])
        node.attr.clear()
        node.attr["T"].type = tf.bool.as_datatype_enum
        node.attr["index_type"].type = kind or tf.int32.as_datatype_enum

    def known(self, reference: str, depth: int = 0) -> np.ndarray | None:
        """A tensor's value when it follows from constants alone and is small."""
        if reference not in self._values:
            self._values[reference] = self._computed(reference, depth)
        return self._values[reference]

    def _computed(self, reference: str, depth: int) -> np.ndarray | None:
        node = self.nodes[node_of(reference)]
        if node.op == "Const":
            size = node.attr["value"].tensor.ByteSize()
            return tf.make_ndarray(node.attr["value"].tensor) if size <= _KNOWN_BYTES_MAX else None
        if depth == _DEPTH_MAX or node.op in ("Switch", "Merge", "Enter", "Exit", "NextIteration") or (
                node.op != "Identity" and (not hasattr(tf.raw_ops, node.op) or not is_pure(node.op))):
            return None
        values = []
        for one in data_inputs(node):
            values.append(self.known(one, depth + 1))
            if values[-1] is None:
                return None
        if node.op == "Identity":
            return values[0]
        outputs = evaluate(node, values) if values else None
        return None if outputs is None else np.asarray(outputs[port_of(reference)])


def _become_identity(node, kind: int) -> None:
    node.op = "Identity"
    node.attr.clear()
    node.attr["T"].type = kind


def _set_inputs(node, inputs: Iterable[str]) -> None:
    kept = [*inputs, *(reference for reference in node.input if reference.startswith("^"))]
    del node.input[:]
    node.input.extend(kept)
