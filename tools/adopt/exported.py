"""What a model computes: the original by its framework, and the exported graph with rows of its cut tables.

Imports tensorflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from lambda_svc.session import usable_cpus
from models.errors import ModelsError
from models.loaded_graph import drop_checks
from models.loaders import FrameworkModel, FrozenModel, Loaded, Signature
from models.passes import Variable
from models.passes.graph import node_of

__all__ = ["CutRows", "ExportedGraph", "Original", "Score", "config"]

Score = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]
"""A signature's outputs by name, for its inputs by name."""
_TABLE_BYTES_MAX = 1 << 30


def config():
    """Sessions as TensorFlow Serving has them: the default executor, as many threads as this process may use."""
    import tensorflow as tf

    return tf.compat.v1.ConfigProto(intra_op_parallelism_threads=usable_cpus(),
                                    inter_op_parallelism_threads=usable_cpus())


class Original:
    """The model as it is: `call` by the framework's own loader, `stock` through a session, as TensorFlow Serving runs
    it."""

    def __init__(self, loaded: Loaded, signature: Signature, tags: Sequence[str] = ("serve",)):
        """Raises SavedModelError when TensorFlow does not load it."""
        import tensorflow as tf

        self._signature = signature
        self._graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=self._graph, config=config())
        if loaded.kind == "frozen":
            with self._graph.as_default():
                tf.graph_util.import_graph_def(loaded.graph_def, name="")
            self.call: Score = self._callable()
            self.stock: Score = self.call
            self.stock_path = "a session on the frozen graph"
            return
        framework = FrameworkModel(loaded.path, tags)
        self.call = lambda inputs: framework.call(signature.name, inputs)
        try:
            tf.compat.v1.saved_model.load(self._session, list(tags), str(loaded.path))
            self.stock = self._callable()
            self.stock_path = "a session on the SavedModel"
        except (tf.errors.OpError, ValueError, RuntimeError, KeyError):  # loads as objects only
            self.stock, self.stock_path = self.call, "the SavedModel's function, called from Python"

    def _callable(self) -> Score:
        wanted = self._signature
        outputs, inputs = list(wanted.outputs), list(wanted.inputs)
        call = self._session.make_callable([wanted.outputs[name].name for name in outputs],
                                           [wanted.inputs[name].name for name in inputs])
        return lambda given: dict(zip(outputs, call(*(given[name] for name in inputs)), strict=True))


class CutRows:
    """Rows of one cut table by row number, as the lookup in the graph gave them."""

    def __init__(self, table: Variable):
        self._table = table
        whole = int(np.prod(table.shape, dtype=np.int64)) * 4 <= _TABLE_BYTES_MAX
        self._rows = np.ascontiguousarray(table.read(0, table.shape[0])) if whole else None

    def __call__(self, ids: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """float32 [*ids, dim]; into `out` where it is given. Negative row numbers count from the end, as they do in
        Keras; raises IndexError for those beyond the table."""
        if self._rows is not None:
            return np.take(self._rows, ids, axis=0, out=out, mode="raise")
        unique, where = np.unique(ids, return_inverse=True)
        if unique.size and not -self._table.shape[0] <= unique[0] <= unique[-1] < self._table.shape[0]:
            raise IndexError(f"a row number is outside a table of {self._table.shape[0]} rows")
        read = [self._table.read(at, at + 1) for at in (int(one) % self._table.shape[0] for one in unique)]
        rows = np.concatenate(read) if read else np.zeros((0, *self._table.shape[1:]), np.float32)
        found = rows[where.reshape(ids.shape)]
        if out is None:
            return found
        out[...] = found
        return out


class ExportedGraph:
    """A frozen model in a session, its lookup tables filled; rows of cut tables are fed by the inputs' ids."""

    def __init__(self, frozen: FrozenModel):
        """Raises tf.errors.OpError when an initialisation fails, ModelsError for tables that pool their rows."""
        import tensorflow as tf

        pooled = [cut.variable for cut in frozen.cuts if cut.mode != "rows"]
        if pooled:
            raise ModelsError(f"table {pooled[0]!r} pools its rows, which the parameter server does")
        ends = [*(spec.name for spec in frozen.outputs.values()), *(one.node for one in frozen.initializers)]
        self.frozen = replace(frozen, graph_def=drop_checks(frozen.graph_def, ends))
        """Without assertions, as export leaves them out."""
        self.lookups = {cut.input: (cut.ids, CutRows(frozen.tables[cut.variable])) for cut in frozen.cuts}
        self._graph = tf.Graph()
        with self._graph.as_default():
            tf.graph_util.import_graph_def(self.frozen.graph_def, name="")
        self._session = tf.compat.v1.Session(graph=self._graph, config=config())
        for one in frozen.initializers:
            self._session.run(one.node, {one.asset: str(frozen.assets[one.file])} if one.asset else {})
        outputs = list(frozen.outputs)
        fetch = self.fetcher([spec.name for spec in frozen.outputs.values()])
        self.call: Score = lambda inputs: dict(zip(outputs, fetch(self.feeds(inputs)), strict=True))

    def feeds(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the graph is fed with, by tensor: a request's inputs, and rows of tables for its ids."""
        fed = {spec.name: inputs[key] for key, spec in self.frozen.inputs.items()}
        return fed | {f"{name}:0": rows(np.asarray(inputs[self.ids_of(ids)])) for name, (ids, rows) in
                      self.lookups.items()}

    def ids_of(self, placeholder: str) -> str:
        """The signature's input that a cut's ids come from."""
        return next(key for key, node in self.frozen.placeholders.items() if node == placeholder)

    def fetcher(self, tensors: Sequence[str]) -> Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]:
        """A function from `feeds` to the values of `tensors`, in order. Only what these read is fed."""
        specs = [*(spec.name for spec in self.frozen.inputs.values()), *(f"{name}:0" for name in self.lookups)]
        read = [name for name in specs if node_of(name) in self._needed(tensors)]
        call = self._session.make_callable(list(tensors), read)
        return lambda fed: call(*(fed[name] for name in read))

    def _needed(self, tensors: Sequence[str]) -> set[str]:
        waiting, found = [self._graph.get_tensor_by_name(name).op for name in tensors], set()
        while waiting:
            op = waiting.pop()
            if op.name not in found:
                found.add(op.name)
                waiting.extend([*(tensor.op for tensor in op.inputs), *op.control_inputs])
        return found
