"""How passes read variables: by parts, so that a table larger than memory, or than a graph may hold, is no special
case."""

from typing import Protocol

import numpy as np
import tensorflow as tf

__all__ = ["TensorflowVariable", "Variable", "captured_variables"]


class Variable(Protocol):
    """A variable of a graph. `shape`: all dimensions; read(start, stop) -> rows [stop - start, ...] of the first
    one."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def read(self, start: int, stop: int) -> np.ndarray:
        """The rows start to stop (exclusive), as numpy."""
        ...


class TensorflowVariable:
    """A tf.Variable in memory, read slice by slice; a scalar counts as one row."""

    def __init__(self, variable: tf.Variable):
        self._variable = variable
        self.shape = tuple(variable.shape.as_list())
        self.dtype = np.dtype(variable.dtype.as_numpy_dtype)

    def read(self, start: int, stop: int) -> np.ndarray:
        """The rows start to stop (exclusive), as numpy."""
        return self._variable.numpy()[None] if not self.shape else self._variable[start:stop].numpy()


def captured_variables(function) -> dict[str, Variable]:
    """The variables of a concrete function, by the name of the graph node that stands for each."""
    by_handle = {id(v.handle): v for v in function.graph.variables}
    found = {}
    for outer, inner in function.graph.captures:
        variable = by_handle.get(id(outer))
        if variable is not None:
            found[inner.op.name] = TensorflowVariable(variable)
    return found
