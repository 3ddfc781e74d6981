"""Inputs of an uncut graph as tensorflow sees them. Importing this imports tensorflow."""

import numpy as np
import tensorflow as tf

from .interface import Interface

__all__ = ["input_specs", "tensors"]

_DTYPES = {"f32": tf.float32, "i64": tf.int64, "i32": tf.int32}


def input_specs(interface: Interface, one_user: bool = False) -> dict[str, tf.TensorSpec]:
    """The uncut graph's inputs by name, leading dimensions open.

    With `one_user`, inputs of the user and context sides have a leading dimension of 1, as served; but for flat values
    and segments of bags, which stay open.
    """
    specs = {}
    for entry in interface.inputs:
        shape = entry.shape
        if one_user and interface.side(entry) != "item" and not _is_flat(interface, entry.slot):
            shape = (1, *shape[1:])
        specs[entry.name] = tf.TensorSpec(shape, _DTYPES[entry.dtype], name=entry.name)
    return specs


def tensors(arrays: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
    """Numpy inputs of an uncut graph as tensors."""
    return {name: tf.constant(values) for name, values in arrays.items()}


def _is_flat(interface: Interface, slot: str) -> bool:
    return any(entry.slot == slot and entry.part == "segments" for entry in interface.inputs)
