"""The dense part of a frozen model: what is left for engines once strings, vocabularies, sparse tensors and control
flow stay in front of it, in TensorFlow.

    inputs --> [front: what engines cannot run] --> boundary tensors, one row a candidate --> [dense part] --> scores

A model that export makes a package of has no front: the whole graph is what a server runs. Imports tensorflow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from models.loaders import FrozenModel
from models.passes import DenseGraph, DenseInput, Head
from models.passes.dense import Side
from models.passes.graph import GraphIndex, data_inputs, node_of, port_of

from .constant_rows import equal_rows
from .errors import NoDensePart
from .exported import ExportedGraph
from .requests import Request

__all__ = ["DensePart", "dense_part"]

_DTYPES = {"float32": "f32", "int32": "i32", "int64": "i64"}
_INSIDE = frozenset({*_DTYPES, "bool", "float16", "bfloat16", "float64", "uint8", "int8", "int16"})
_COLUMNS_MAX = 16
_SIZED_BY_DATA = frozenset("""
    Assert Case DynamicPartition If ListDiff Merge NextIteration PartitionedCall StatefulPartitionedCall StatelessCase
    StatelessIf StatelessWhile Switch Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 Where While""".split())
_PASSING = frozenset({"Const", "ExpandDims", "Identity", "Pack", "Reshape", "Shape", "Squeeze", "StridedSlice"})
_KINDS_IN_FRONT = ("Sparse", "Ragged", "Lookup", "HashTable", "MutableHashTable", "Parse", "String", "Decode", "Random",
                   "Tensor", "Stateless", "Stateful", "Enter", "Exit", "LoopCond")


@dataclass(frozen=True, eq=False)
class DensePart:
    """The dense graph, and how a request's feeds come about.

    Attributes:
        plain: as the framework wrote it; inputs of the user's side have one row and are tiled in the graph.
        boundary: tensor of the frozen graph by input of `plain`: an input's own, a table's rows, or what the front
            computes.
        front: the tensors of `boundary` that the front computes.
        front_ops: the operations that stay in front, with how many there are.
        heads: output and column (None for an output of one column) by head.
        left_out: outputs that are no scores of engines, with the reason.
    """

    plain: DenseGraph
    boundary: Mapping[str, str]
    front: tuple[str, ...]
    front_ops: Mapping[str, int]
    heads: Mapping[str, tuple[str, int | None]]
    left_out: Mapping[str, str] = field(default_factory=dict)

    def feeds(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Feeds of `plain`, by input, for values of the boundary by tensor: one row of what belongs to the user."""
        return {entry.name: values[self.boundary[entry.name]][:None if entry.side == "item" else 1]
                for entry in self.plain.inputs}

    def scores(self, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """{head: [n]} of a signature's outputs."""
        return {head: (outputs[name] if column is None else outputs[name][:, column]).reshape(-1)
                for head, (name, column) in self.heads.items()}


def dense_part(frozen: FrozenModel, exported: ExportedGraph, requests: Sequence[Request],
               user: Collection[str], whole: bool = False) -> DensePart:
    """The dense part of a frozen model, by what `requests` show of its tensors' shapes; `user` names the inputs that
    have the same value in all rows of every request. With `whole` nothing stays in front. Raises NoDensePart with the
    reason."""
    outputs, left_out = _score_outputs(frozen, exported, requests)
    if not outputs:
        raise NoDensePart("no output is a score a candidate: " + "; ".join(f"{k}: {v}" for k, v in left_out.items()))
    index = GraphIndex(frozen.graph_def)
    search = _Search(index, exported, requests)
    tensors = [frozen.outputs[name].name for name in outputs]
    ends = search.inputs(tensors) if whole else search.boundary(tensors)
    users = {node_of(spec.name) for name, spec in frozen.inputs.items() if name in user}
    users |= {name for name, (ids, _) in exported.lookups.items() if exported.ids_of(ids) in user}
    plain, boundary, heads = _built(index, search, ends, {n: tensors[i] for i, n in enumerate(outputs)}, outputs, users)
    front = tuple(tensor for tensor in boundary.values() if not search.is_input(tensor))
    counted: dict[str, int] = {}
    for name in index.needed(front) if front else ():
        op = index.nodes[name].op
        if op not in ("Const", "Identity", "Placeholder"):
            counted[op] = counted.get(op, 0) + 1
    return DensePart(plain, boundary, front, dict(sorted(counted.items(), key=lambda one: (-one[1], one[0]))), heads,
                     left_out)


def _score_outputs(frozen: FrozenModel, exported: ExportedGraph, requests: Sequence[Request]):
    """({output: columns, 0 for a vector}, {output: why it is no score})."""
    shapes: dict[str, set] = {name: set() for name in frozen.outputs}
    for request in requests:
        for name, value in exported.call(request.inputs).items():
            value = np.asarray(value)
            shapes[name].add(value.shape[1:] if value.shape[:1] == (request.rows,) else None)
    found, left_out = {}, {}
    for name, spec in frozen.outputs.items():
        seen = next(iter(shapes[name])) if len(shapes[name]) == 1 else None
        if spec.dtype != "float32":
            left_out[name] = f"{spec.dtype}, not float32"
        elif seen is None:
            left_out[name] = "not one row a candidate"
        elif len(seen) > 1 or (seen and not 1 <= seen[0] <= _COLUMNS_MAX):
            left_out[name] = f"{list(seen)} values a candidate; up to {_COLUMNS_MAX} scores are read"
        else:
            found[name] = seen[0] if seen else 0
    return found, left_out


class _Search:
    """Looks for the tensors that a dense part can start from."""

    def __init__(self, index: GraphIndex, exported: ExportedGraph, requests: Sequence[Request]):
        self._index = index
        self._exported = exported
        self._requests = requests
        self._types = _types(index)
        self._why: dict[str, str] = {}
        self.same_rows: set[str] = set()
        """Boundary tensors whose rows are equal in every request."""
        self.shapes: dict[str, tuple[str, tuple[int, ...]]] = {}
        """Dtype and shape of each boundary tensor; the leading dimension is -1, or 1 where every request has one row
        of it."""

    def is_input(self, tensor: str) -> bool:
        """Whether a tensor is fed, not computed."""
        return self._index.nodes[node_of(tensor)].op == "Placeholder"

    def inputs(self, outputs: Sequence[str]) -> list[str]:
        """The fed tensors that outputs depend on. Raises NoDensePart for one that no engine can be fed."""
        ends, _, _ = self._walk(outputs, set())
        for tensor, problem in self._look(ends).items():
            raise NoDensePart(f"input {node_of(tensor)!r}: {problem}")
        return sorted(ends)

    def boundary(self, outputs: Sequence[str]) -> list[str]:
        """Tensors in the order of their names. Raises NoDensePart."""
        blocked = {name for name, node in self._index.nodes.items()
                   if node.op != "Placeholder" and self._is_front(node)}
        while True:
            ends, readers, dense = self._walk(outputs, blocked)
            last = [node_of(output) for output in outputs if node_of(output) in blocked]
            if not last and all(self._index.nodes[name].op in _PASSING for name in dense):
                last = sorted({node_of(tensor) for tensor in ends} & blocked)
                if not last:
                    raise NoDensePart("its outputs are its inputs: there is nothing to compute")
            if last:
                raise NoDensePart(f"no engine but TensorFlow runs this graph: {self._why[last[0]]}")
            problems = self._look(ends)
            if not problems:
                return sorted(ends)
            for tensor, problem in problems.items():
                for reader in readers[tensor]:
                    self._why.setdefault(reader, f"{self._why.get(node_of(tensor), tensor)}: {problem}")
                blocked |= readers[tensor]

    def _is_front(self, node) -> bool:
        types = self._types[node.name]
        reason = ""
        if not types <= _INSIDE:
            reason = f"has {', '.join(sorted(types - _INSIDE))}"
        elif node.op in _SIZED_BY_DATA or node.op.startswith(_KINDS_IN_FRONT):
            reason = "stays in TensorFlow"
        elif len(data_inputs(node)) != len(node.input) and node.op != "Const":
            reason = "waits for another node"
        if reason:
            self._why[node.name] = f"node {node.name!r} ({node.op}) {reason}"
        return bool(reason)

    def _walk(self, outputs: Sequence[str], blocked: set[str]):
        """Backwards from the outputs to placeholders and to what blocked nodes give: (tensors, {tensor: readers}, the
        nodes after them)."""
        ends: set[str] = set()
        readers: dict[str, set[str]] = {}
        waiting, seen = [node_of(output) for output in outputs], set()
        while waiting:
            name = waiting.pop()
            if name in seen or name in blocked:
                continue
            seen.add(name)
            for reference in data_inputs(self._index.nodes[name]):
                source, tensor = node_of(reference), f"{node_of(reference)}:{port_of(reference)}"
                if source in blocked or self._index.nodes[source].op == "Placeholder":
                    ends.add(tensor)
                    readers.setdefault(tensor, set()).add(name)
                else:
                    waiting.append(source)
        return ends, readers, seen

    def _look(self, ends: set[str]) -> dict[str, str]:
        """What keeps tensors from being fed to engines, over all requests."""
        new = sorted(ends - set(self.shapes))
        problems = {t: self.shapes[t][0] for t in ends if t in self.shapes and self.shapes[t][0] not in _DTYPES}
        if not new:
            return problems
        fetch = self._exported.fetcher(new)
        seen: dict[str, set] = {tensor: set() for tensor in new}
        leads: dict[str, set] = {tensor: set() for tensor in new}
        dtypes: dict[str, str] = {}
        self.same_rows |= set(new)
        for request in self._requests:
            for tensor, value in zip(new, fetch(self._exported.feeds(request.inputs)), strict=True):
                value = np.asarray(value)
                dtypes[tensor] = "string" if value.dtype == object else value.dtype.name
                seen[tensor].add(value.shape[1:] if value.ndim else None)
                if not equal_rows(value):
                    self.same_rows.discard(tensor)
                leads[tensor].add("both" if value.shape[:1] == (request.rows,) == (1,) else
                                  "rows" if value.shape[:1] == (request.rows,) else
                                  "one" if value.shape[:1] == (1,) else "other")
        for tensor in new:
            problem = _problem(dtypes[tensor], seen[tensor], leads[tensor])
            inner = next(iter(seen[tensor])) or ()
            self.shapes[tensor] = (problem or dtypes[tensor], (1 if "one" in leads[tensor] else -1, *inner))
            if problem:
                problems[tensor] = problem
        return problems


def _problem(dtype: str, inner: set, leads: set[str]) -> str:
    if dtype not in _DTYPES:
        return f"{dtype} is fed to no engine"
    if None in inner or "other" in leads or {"rows", "one"} <= leads:
        return "it has not one row a candidate"
    if len(inner) > 1:
        shapes = ', '.join(str(list(shape)) for shape in sorted(inner)[:3])
        return f"its rows have shapes {shapes} in different requests"
    return ""


def _types(index: GraphIndex) -> dict[str, set[str]]:
    """The dtypes that each node reads and writes."""
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(index.pruned(index.nodes), name="")
    return {op.name: {tensor.dtype.base_dtype.name for tensor in (*op.inputs, *op.outputs)}
            for op in graph.get_operations()}


def _built(index: GraphIndex, search: _Search, ends: Sequence[str], tensors: Mapping[str, str],
           columns: Mapping[str, int], users: Collection[str]):
    """(the plain dense graph, {its input: tensor}, {head: (output, column)})."""
    import tensorflow as tf

    def side(tensor: str) -> Side:
        if search.shapes[tensor][1][0] == 1:
            return "user" if search.is_input(tensor) else "context"
        return "user" if tensor in search.same_rows and _of_user(index, tensor, users) else "item"

    sides = {tensor: side(tensor) for tensor in ends}
    rows_of = next((tensor for tensor in ends if sides[tensor] == "item"), None)
    if rows_of is None:
        raise NoDensePart("every input of the dense part has the same value in all rows of each request: nothing tells "
                          "the candidates apart")
    graph, fed, inputs, boundary = tf.Graph(), {}, [], {}
    with graph.as_default():
        for number, tensor in enumerate([rows_of, *(t for t in ends if t != rows_of)]):
            dtype, shape = search.shapes[tensor]
            tiled = sides[tensor] != "item" and shape[0] == -1
            shape = (1, *shape[1:]) if tiled else shape
            name = node_of(tensor) if search.is_input(tensor) else f"boundary.{number}"
            placed = tf.compat.v1.placeholder(dtype, [None if d < 0 else d for d in shape], name)
            inputs.append(DenseInput(placed.name, _DTYPES[dtype], shape, sides[tensor]))
            boundary[placed.name] = tensor
            fed[tensor] = tf.tile(placed, [tf.shape(fed[rows_of])[0], *[1] * (len(shape) - 1)]) if tiled else placed
        found = tf.graph_util.import_graph_def(index.pruned([node_of(t) for t in tensors.values()]), input_map=fed,
                                               return_elements=list(tensors.values()), name="model")
        heads, made = {}, []
        for (output, width), tensor in zip(columns.items(), found, strict=True):
            for column in range(max(width, 1)):
                head = output if width < 2 else f"{output}[{column}]"
                heads[head] = output, None if width < 2 else column
                # Behind a Reshape, as heads of one column are read in either form.
                score = tf.identity(tensor if width < 2 else tensor[:, column], name=f"head.{len(made)}")
                made.append(Head(head, score.name))
    graph_def = GraphIndex(graph.as_graph_def()).pruned([head.name for head in made])
    read = {node.name for node in graph_def.node}
    entries = tuple(entry for entry in inputs if node_of(entry.name) in read)
    return (DenseGraph(graph_def, entries, tuple(made)), {entry.name: boundary[entry.name] for entry in entries}, heads)


def _of_user(index: GraphIndex, tensor: str, users: Collection[str]) -> bool:
    """Whether a tensor depends on inputs of the user's side, and on no others."""
    read = {name for name in index.needed([tensor]) if index.nodes[name].op == "Placeholder"}
    return bool(read) and read <= set(users)
