"""Variables that branches and loops read are read outside, and their values handed in.

A branch gets a variable's handle as an argument, which a constant cannot replace; so its function is copied with the
value as argument instead: ReadVariableOp becomes Identity, ResourceGather becomes GatherV2.
"""

from collections.abc import Collection, Mapping

import numpy as np
import tensorflow as tf

from ..errors import GraphError
from ..passes.graph import GraphIndex, node_of
from .inline import keep_used_functions

__all__ = ["lift_variables"]

# Op -> (where its arguments start, the attribute of their types, the attributes that hold functions).
_BRANCHES = {op: (1, "Tin", ("then_branch", "else_branch")) for op in ("If", "StatelessIf")}
_BRANCHES |= {op: (0, "T", ("cond", "body")) for op in ("While", "StatelessWhile")}
_BRANCHES |= {op: (1, "Tin", ("branches",)) for op in ("Case", "StatelessCase")}
_BRANCHES |= {op: (0, "Tin", ("f",)) for op in ("PartitionedCall", "StatefulPartitionedCall")}
_HANDLE = tf.resource.as_datatype_enum


def lift_variables(graph_def: tf.compat.v1.GraphDef, dtypes: Mapping[str, np.dtype]) -> tf.compat.v1.GraphDef:
    """The graph with values for the handles of variables (`dtypes` by node) that branches and loops get.

    Raises GraphError for a branch that does anything but read its variable.
    """
    graph = GraphIndex(graph_def)
    library = {function.signature.name: function for function in graph_def.library.function}
    result = tf.compat.v1.GraphDef()
    result.versions.CopyFrom(graph_def.versions)
    copies = _Copies(library)
    for node in list(graph.nodes.values()):
        if node.op not in _BRANCHES:
            continue
        start = _BRANCHES[node.op][0]
        lifted = {at - start: dtypes[node_of(reference)] for at, reference in enumerate(node.input)
                  if at >= start and not reference.startswith("^") and node_of(reference) in dtypes}
        for at in lifted:
            node.input[at + start] = _read(graph, node.input[at + start], lifted[at])
        if lifted:
            copies.retype(node, lifted)
    result.node.extend(graph.nodes.values())
    result.library.CopyFrom(graph_def.library)
    result.library.function.extend(copies.made)
    keep_used_functions(result)
    return result


def _read(graph: GraphIndex, variable: str, dtype: np.dtype) -> str:
    name = f"{node_of(variable)}/value_for_branches"
    if name not in graph.nodes:
        node = tf.compat.v1.NodeDef(name=name, op="ReadVariableOp", input=[node_of(variable)])
        node.attr["dtype"].type = tf.as_dtype(dtype).as_datatype_enum
        graph.nodes[name] = node
    return name


class _Copies:
    """Copies of functions that take values for handles, each made once."""

    def __init__(self, library: Mapping):
        self._library = library
        self._known: dict[tuple, str] = {}
        self.made: list = []

    def retype(self, node, lifted: Mapping[int, np.dtype]) -> None:
        """Lets a node call copies that take values of these dtypes at these arguments."""
        _, types, attributes = _BRANCHES[node.op]
        for at, dtype in lifted.items():
            node.attr[types].list.type[at] = tf.as_dtype(dtype).as_datatype_enum
        node.attr.pop("output_shapes", None)
        for attribute in attributes:
            value = node.attr[attribute]
            for function in value.list.func if value.WhichOneof("value") == "list" else (value.func,):
                function.name = self._copy(function.name, lifted)

    def _copy(self, name: str, lifted: Mapping[int, np.dtype]) -> str:
        key = (name, tuple(sorted((at, str(dtype)) for at, dtype in lifted.items())))
        if key in self._known:
            return self._known[key]
        if name not in self._library:
            raise GraphError(f"function {name!r} is not in the graph's library")
        copy = type(self._library[name])()
        copy.CopyFrom(self._library[name])
        copy.signature.name = self._known[key] = f"{name}_with_values_{len(self._known)}"
        copy.attr.pop("_input_shapes", None)
        values = {}
        for at, dtype in lifted.items():
            argument = copy.signature.input_arg[at]
            argument.type = tf.as_dtype(dtype).as_datatype_enum
            argument.ClearField("handle_data")
            values[argument.name] = dtype
            copy.arg_attr.pop(at, None)
            copy.resource_arg_unique_id.pop(at, None)
        renamed = self._rewrite(copy, values)
        for output in copy.signature.output_arg:
            source = renamed.get(copy.ret[output.name], copy.ret[output.name])
            copy.ret[output.name] = source
            if source in values:
                output.type = tf.as_dtype(values[source]).as_datatype_enum
                output.ClearField("handle_data")
        self.made.append(copy)
        return copy.signature.name

    def _rewrite(self, function, values: Mapping[str, np.dtype]) -> dict[str, str]:
        """Reads of values become plain; the references that these changes rename."""
        renamed, added = {}, []
        for node in function.node_def:
            at = [position for position, reference in enumerate(node.input) if reference in values]
            if not at:
                continue
            if node.op == "ReadVariableOp":
                renamed[f"{node.name}:value:0"] = f"{node.name}:output:0"
                _become(node, "Identity", node.input[:1], T=node.attr["dtype"].type)
            elif node.op == "ResourceGather" and not node.attr["batch_dims"].i:
                added.append(_zero(f"{node.name}_axis"))
                _become(node, "GatherV2", [*node.input[:2], f"{node.name}_axis:output:0"],
                        Tparams=node.attr["dtype"].type, Tindices=node.attr["Tindices"].type, Taxis=tf.int32)
            elif node.op in _BRANCHES:
                start = _BRANCHES[node.op][0]
                self.retype(node, {position - start: values[node.input[position]] for position in at})
            elif node.op == "Identity" and node.attr["T"].type == _HANDLE:
                node.attr["T"].type = tf.as_dtype(values[node.input[0]]).as_datatype_enum
            else:
                raise GraphError(f"variable {node.input[at[0]]!r} of function {function.signature.name!r} is used as a "
                                 f"handle by {node.name!r} ({node.op}); only reads and lookups can be frozen")
        function.node_def.extend(added)
        for node in function.node_def:
            for position, reference in enumerate(node.input):
                node.input[position] = renamed.get(reference, reference)
        return renamed


def _become(node, op: str, inputs: Collection[str], **types) -> None:
    waits = [reference for reference in node.input if reference.startswith("^")]
    kept = [*inputs, *waits]
    node.op = op
    del node.input[:]
    node.input.extend(kept)
    node.attr.clear()
    for name, value in types.items():
        node.attr[name].type = tf.as_dtype(value).as_datatype_enum


def _zero(name: str):
    node = tf.compat.v1.NodeDef(name=name, op="Const")
    node.attr["dtype"].type = tf.int32.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.int32(0)))
    return node
