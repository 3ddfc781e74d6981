"""One node computed by TensorFlow's own kernel, outside any graph: what folding does, and no arithmetic of ours."""

import inspect
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["evaluate", "is_pure", "raw_call"]

_SCRATCH = tf.Graph()
_FIELDS = {"i": int, "f": float, "b": bool, "s": lambda v: v, "type": tf.as_dtype, "shape": tf.TensorShape,
           "tensor": lambda v: v}


@lru_cache(maxsize=4096)
def op_definition(op: str):
    """TensorFlow's definition of an op."""
    return _SCRATCH.op_def_for_type(op)


def is_pure(op: str) -> bool:
    """Whether equal inputs always give equal outputs, and nothing else happens."""
    definition = op_definition(op)
    resources = (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum)
    handles = any(arg.type in resources for arg in (*definition.input_arg, *definition.output_arg))
    return not definition.is_stateful and not handles and op != "Placeholder" and bool(definition.output_arg)


def evaluate(node, inputs: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """The outputs of `node` for the values of its data inputs, on the CPU; None when the op refuses them."""
    if not hasattr(tf.raw_ops, node.op):
        return None
    attrs = {name: _python(value) for name, value in node.attr.items()}
    try:
        with tf.device("/CPU:0"):
            function, arguments = raw_call(node.op, [tf.constant(value) for value in inputs], attrs)
            result = function(**arguments)
    except (tf.errors.OpError, TypeError, ValueError, NotImplementedError):
        return None
    outputs = result if isinstance(result, (list, tuple)) else [result]
    return [one.numpy() for one in outputs]


def raw_call(op: str, inputs: Sequence[Any], attrs: Mapping[str, Any]):
    """tf.raw_ops' function of an op, and its arguments: inputs in the op's order, lists of them flat; attributes that
    the function does not take, such as types of inputs, are left out."""
    function, definition = getattr(tf.raw_ops, op), op_definition(op)
    takes = [name for name in inspect.signature(function).parameters if name != "name"]
    arguments, waiting = {name: value for name, value in attrs.items() if name in takes}, list(inputs)
    names = [arg.name for arg in definition.input_arg]
    # Some inputs have other names there (axis for split_dim); they keep their order.
    other = [name for name in takes if name not in names and name not in {a.name for a in definition.attr}]
    for position, arg in enumerate(definition.input_arg):
        name = arg.name if arg.name in takes else other.pop(0)
        if arg.number_attr or arg.type_list_attr:
            later = len(definition.input_arg) - position - 1
            arguments[name] = [waiting.pop(0) for _ in range(len(waiting) - later)]
        else:
            arguments[name] = waiting.pop(0)
    return function, arguments


def _python(value) -> Any:
    kind = value.WhichOneof("value")
    if kind == "list":
        field, items = next(((d.name, v) for d, v in value.list.ListFields()), ("i", []))
        return [_FIELDS[field](item) for item in items]
    return _FIELDS[kind](getattr(value, kind))
