"""Function calls are replaced by the functions' bodies, so that passes see one graph.

Written here rather than left to grappler, which leaves calls that it thinks unsafe, names what it adds by counters, and
keeps what nothing needs.
"""

from collections.abc import Iterable, Mapping

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from ..errors import GraphError
from ..passes.graph import GraphIndex, data_inputs, node_of, port_of

__all__ = ["NODES_MAX", "called_function", "inline_functions", "keep_used_functions"]

NODES_MAX = 2_000_000
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")


def inline_functions(graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """The graph without calls of functions; a body's node `n` of call `c` is named `c/n`.

    What waits for a call waits for what the body must have done (its control results); what a call waits for, every
    node of its body that reads none of the body's other nodes waits for. Functions that are branches (If, While) stay.
    Raises GraphError for a function that is not there, that calls itself, or more than NODES_MAX nodes.
    """
    library = {function.signature.name: function for function in graph_def.library.function}
    nodes = {node.name: node for node in graph_def.node}
    moved: dict[tuple[str, int], str] = {}
    done: dict[str, str] = {}
    waiting = [(node, ()) for node in graph_def.node if called_function(node, library)]
    while waiting:
        call, inside = waiting.pop()
        name = called_function(call, library)
        if name in inside or name not in library:
            problem = "calls itself" if name in inside else "is not in the graph's library"
            raise GraphError(f"node {call.name!r} calls function {name!r}, which {problem}")
        body = _Body(call, library[name], library)
        moved.update({(call.name, port): reference for port, reference in enumerate(body.results)})
        done[call.name] = body.done
        del nodes[call.name]
        taken = next((node.name for node in body.nodes if node.name in nodes), None)
        if taken is not None:
            raise GraphError(f"cannot inline call {call.name!r}: the graph has a node {taken!r} already")
        nodes.update({node.name: node for node in body.nodes})
        if len(nodes) > NODES_MAX:
            raise GraphError(f"the graph has more than {NODES_MAX} nodes once its functions are inlined")
        waiting.extend((node, (*inside, name)) for node in body.nodes if called_function(node, library))
    return _assembled(graph_def, nodes.values(), moved, done)


def called_function(node, library: Mapping) -> str | None:
    """The name of the function that a node calls; None when it calls none."""
    if node.op in _CALLS:
        return node.attr["f"].func.name
    return node.op if node.op in library else None


def keep_used_functions(graph_def) -> None:
    """Drops from a graph's library what no node of it, and no function that one uses, refers to."""
    library = {function.signature.name: function for function in graph_def.library.function}
    used, waiting = set(), [name for node in graph_def.node for name in _functions_of(node, library)]
    while waiting:
        name = waiting.pop()
        if name in library and name not in used:
            used.add(name)
            waiting.extend(inner for node in library[name].node_def for inner in _functions_of(node, library))
    kept = [library[name] for name in sorted(used)]
    graph_def.ClearField("library")
    graph_def.library.function.extend(kept)


def _functions_of(node, library: Mapping) -> list[str]:
    named = [function.name for value in node.attr.values()
             for function in (value.list.func if value.WhichOneof("value") == "list" else (value.func,))]
    return [*named, *([node.op] if node.op in library else [])]


def _assembled(graph_def, nodes: Iterable, moved: Mapping[tuple[str, int], str], done: Mapping[str, str]):
    result = tf.compat.v1.GraphDef()
    result.versions.CopyFrom(graph_def.versions)
    result.library.CopyFrom(graph_def.library)
    for source in nodes:
        node = result.node.add()
        node.CopyFrom(source)
        del node.input[:]
        node.input.extend(_resolved(reference, moved, done) for reference in source.input)
    return _without_handle_identities(result)


def _resolved(reference: str, moved: Mapping[tuple[str, int], str], done: Mapping[str, str]) -> str:
    if reference.startswith("^"):
        return f"^{done.get(reference[1:], reference[1:])}"
    while (key := (node_of(reference), port_of(reference))) in moved:
        reference = moved[key]
    return reference


def _without_handle_identities(graph_def):
    """Handles of variables and tables pass through Identity nodes of bodies; passes want them straight."""
    index = GraphIndex(graph_def)
    for node in list(index.nodes.values()):
        if node.op == "Identity" and "T" in node.attr and node.attr["T"].type == tf.resource.as_datatype_enum:
            index.rewire(node.name, node.input[0])
    del graph_def.node[:]
    graph_def.node.extend(index.nodes.values())
    keep_used_functions(graph_def)
    return graph_def


class _Body:
    """The nodes of one call: named after it, reading what the call reads; `results` are references by output port."""

    def __init__(self, call, function, library: Mapping):
        self._prefix, self._library = f"{call.name}/", library
        arguments = data_inputs(call)
        names = [argument.name for argument in function.signature.input_arg]
        if len(names) != len(arguments):
            raise GraphError(f"call {call.name!r} gives {len(arguments)} inputs, function {function.signature.name!r} "
                             f"takes {len(names)}")
        self._arguments = dict(zip(names, arguments, strict=True))
        self._source = {node.name: node for node in function.node_def}
        self.done = self._name("call_done")
        waits = [reference for reference in call.input if reference.startswith("^")]
        self.nodes = [self._node(node) for node in function.node_def]
        if waits:
            self._let_wait(waits)
        control = sorted(set(function.control_ret.values()))
        self.nodes.append(tf.compat.v1.NodeDef(
            name=self.done, op="NoOp", input=[*(f"^{self._prefix}{name}" for name in control), *waits]))
        self.results = [self._reference(function.ret[output.name]) for output in function.signature.output_arg]

    def _name(self, wanted: str) -> str:
        while wanted in self._source:
            wanted += "_"
        return f"{self._prefix}{wanted}"

    def _node(self, source):
        if any(value.WhichOneof("value") == "placeholder" for value in source.attr.values()):
            raise GraphError(f"node {self._prefix}{source.name!r} has types that its call decides; not supported")
        node = tf.compat.v1.NodeDef()
        node.CopyFrom(source)
        node.name = f"{self._prefix}{source.name}"
        del node.input[:]
        node.input.extend(self._reference(reference) for reference in source.input)
        return node

    def _let_wait(self, waits: list[str]) -> None:
        start = self._name("call_start")
        constants = {node.name for node in self.nodes if node.op == "Const"}
        for node in self.nodes:
            within = {node_of(r) for r in node.input if node_of(r).startswith(self._prefix)} - constants
            if node.name not in constants and not within:
                node.input.append(f"^{start}")
        self.nodes.append(tf.compat.v1.NodeDef(name=start, op="NoOp", input=waits))

    def _reference(self, reference: str) -> str:
        """A reference inside a body (argument, `node:output:index` or `^node`) as one of the graph."""
        if reference.startswith("^"):
            inner = reference[1:]
            return f"^{node_of(self._arguments[inner])}" if inner in self._arguments else f"^{self._prefix}{inner}"
        name, _, rest = reference.partition(":")
        if name in self._arguments:
            return self._arguments[name]
        if name not in self._source:
            raise GraphError(f"call {self._prefix[:-1]!r} reads {reference!r}, which is not in the function")
        output, _, index = rest.partition(":")
        port = self._first_port(self._source[name], output) + int(index or 0)
        return f"{self._prefix}{name}:{port}" if port else f"{self._prefix}{name}"

    def _first_port(self, node, output: str) -> int:
        function = self._library.get(node.op)
        definition = function.signature if function is not None else op_def_registry.get(node.op)
        if definition is None:
            raise GraphError(f"node {self._prefix}{node.name!r} is of op {node.op!r}, which this TensorFlow lacks")
        port = 0
        for argument in definition.output_arg:
            if argument.name == output:
                return port
            if argument.number_attr:
                port += node.attr[argument.number_attr].i
            elif argument.type_list_attr:
                port += len(node.attr[argument.type_list_attr].list.type)
            else:
                port += 1
        raise GraphError(f"node {self._prefix}{node.name!r} ({node.op}) has no output {output!r}")
