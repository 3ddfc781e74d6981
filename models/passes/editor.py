"""A graph under construction: equal nodes are one node, and every tensor's type, shape and, if known, value is at hand.

Shapes come from TensorFlow's own shape functions, which know no symbols: the graph grows in two worlds at once, with
1009 candidates and with 1013. What is the same in both does not depend on the number of candidates; what follows it
in proportion is written as a negative number, -1 for n and -k for k n.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..errors import GraphError
from .dense import DenseInput
from .evaluate import evaluate, is_pure, raw_call
from .graph import node_of, port_of

__all__ = ["Editor", "Shape"]

Shape = tuple[int | None, ...]
_CANDIDATES = (1009, 1013)
_VALUES_MAX = 4096
_SHAPE_OPS = frozenset({"Shape", "ShapeN", "Size", "Rank"})
_NP_TYPES = {"f32": tf.float32, "i64": tf.int64, "i32": tf.int32}


class Editor:
    """Adds nodes and answers for them. References are `name` or `name:port`, without ":0".

    Only inputs of the dense graph may be placeholders. Not thread-safe.
    """

    def __init__(self, inputs: Iterable[DenseInput], versions=None):
        """Declares the inputs; their nodes appear in the result only when something reads them."""
        self._versions = versions
        self._nodes: dict[str, Any] = {}
        self._known: dict[tuple, str] = {}
        self._worlds = [_World(n) for n in _CANDIDATES]
        self._constants: dict[str, np.ndarray] = {}
        self._candidates: tuple[str, int] | None = None
        for entry in inputs:
            self._declare(entry)

    def _declare(self, entry: DenseInput) -> None:
        name = node_of(entry.name)
        node = tf.compat.v1.NodeDef(name=name, op="Placeholder")
        node.attr["dtype"].type = _NP_TYPES[entry.dtype].as_datatype_enum
        node.attr["shape"].shape.CopyFrom(tf.TensorShape([None if d < 0 else d for d in entry.shape]).as_proto())
        self._nodes[name] = node
        for world in self._worlds:
            world.place(name, _NP_TYPES[entry.dtype], [world.n if d < 0 else d for d in entry.shape])
        if self._candidates is None and entry.shape and entry.shape[0] < 0:
            self._candidates = (name, 0)

    # What is known of a tensor.

    def node(self, reference: str):
        """The node that gives a tensor."""
        return self._nodes[node_of(reference)]

    def op(self, reference: str) -> str:
        """Its op."""
        return self.node(reference).op

    def inputs(self, reference: str) -> list[str]:
        """What the node that gives a tensor reads, without control edges."""
        return [_plain(r) for r in self.node(reference).input if not r.startswith("^")]

    def dtype(self, reference: str) -> tf.DType:
        """A tensor's type."""
        return self._worlds[0].tensor(reference).dtype

    def shape(self, reference: str) -> Shape | None:
        """A tensor's shape: -k for a dimension of k n, None for one that is neither that nor fixed, or for no known
        rank."""
        small, large = (world.tensor(reference).shape for world in self._worlds)
        if small.rank is None or large.rank is None:
            return None
        return tuple(_dimension(a, b) for a, b in zip(small.as_list(), large.as_list(), strict=True))

    def known(self, reference: str) -> bool:
        """Whether the shape is known, but for n."""
        shape = self.shape(reference)
        return shape is not None and None not in shape

    def follows(self, reference: str) -> bool:
        """Whether the shape depends on the number of candidates, or may."""
        shape = self.shape(reference)
        return shape is None or any(d is None or d < 0 for d in shape)

    def value(self, reference: str) -> np.ndarray | None:
        """A tensor's value if it is a constant or, being small, follows from constants and fixed shapes."""
        if reference in self._constants:
            return self._constants[reference]
        small, large = (world.values.get(reference) for world in self._worlds)
        same = small is not None and large is not None and small.dtype == large.dtype and small.shape == large.shape
        return small if same and small.tobytes() == large.tobytes() else None

    def dimensions(self, reference: str) -> Shape | None:
        """The value of a small vector or scalar of whole numbers that is computed from shapes, -k standing for k n."""
        small, large = (world.values.get(reference) for world in self._worlds)
        if reference in self._constants:
            small = large = self._constants[reference]
        if small is None or large is None or small.dtype.kind not in "iu" or small.shape != large.shape:
            return None
        return tuple(_dimension(int(a), int(b)) for a, b in zip(small.ravel(), large.ravel(), strict=True))

    # What can be added.

    def constant(self, value: np.ndarray) -> str:
        """A constant."""
        value = np.asarray(value)
        key = ("Const", value.dtype.str, value.shape, tuple(value.ravel().tolist()) if value.dtype == object
               else value.tobytes())
        if key not in self._known:
            node = tf.compat.v1.NodeDef(name=self._name("Const"), op="Const")
            tensor = tf.make_tensor_proto(value)
            node.attr["value"].tensor.CopyFrom(tensor)
            node.attr["dtype"].type = tensor.dtype
            self._known[key] = self._keep(node, [], value)
        return self._known[key]

    def copy(self, node, inputs: Sequence[str]) -> list[str]:
        """The node with other inputs; one reference an output."""
        if node.op == "Const":
            return [self.constant(tf.make_ndarray(node.attr["value"].tensor))]
        added = tf.compat.v1.NodeDef(op=node.op)
        for name, value in node.attr.items():
            if value.WhichOneof("value"):  # asking a node for an attribute that it lacks leaves an empty one behind
                added.attr[name].CopyFrom(value)
        return self._add(added, inputs)

    def add(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        """A node by its op, with inputs in order and attributes that are not types of inputs. A reference, or a list of
        them when `outputs` is more than one."""
        with self._worlds[0].graph.as_default():
            function, arguments = raw_call(op, [self._worlds[0].tensor(r) for r in inputs], attrs)
            result = function(**arguments)
        made = (result[0] if isinstance(result, (list, tuple)) else result).op
        node = tf.compat.v1.NodeDef(op=op)
        for name, value in made.node_def.attr.items():
            node.attr[name].CopyFrom(value)
        references = self._add(node, inputs)
        return references if outputs > 1 else references[0]

    def reshape(self, reference: str, shape: Sequence[int]) -> str:
        """`reference` in another shape, one dimension at most being -k for k n."""
        shape = tuple(shape)
        if self.shape(reference) == shape:
            return reference
        while self.op(reference) == "Reshape":
            reference = self.inputs(reference)[0]
            if self.shape(reference) == shape:
                return reference
        return self.add("Reshape", reference, self.constant(np.array([-1 if d < 0 else d for d in shape], np.int32)))

    def concat(self, references: Sequence[str], axis: int) -> str:
        """Tensors one after the other; a single one is itself."""
        if len(references) == 1:
            return references[0]
        return self.add("ConcatV2", *references, self.constant(np.int32(axis)))

    def columns(self, reference: str, begin: int, end: int) -> str:
        """Part of a matrix: columns begin to end."""
        if (begin, end) == (0, self.shape(reference)[-1]):
            return reference
        rank = len(self.shape(reference))
        starts, stops = np.zeros(rank, np.int32), np.zeros(rank, np.int32)
        starts[-1], stops[-1] = begin, end
        mask = (1 << (rank - 1)) - 1
        return self.add("StridedSlice", reference, self.constant(starts), self.constant(stops),
                        self.constant(np.ones(rank, np.int32)), begin_mask=mask, end_mask=mask)

    def sized(self, dimensions: Sequence[int]) -> str:
        """A vector of whole numbers, int32, -k standing for k n."""
        if all(d >= 0 for d in dimensions):
            return self.constant(np.array(dimensions, np.int32))
        if self._candidates is None:
            raise GraphError("no input tells the number of candidates")
        shape = self.add("Shape", self._candidates[0], out_type=tf.int32)
        first, past, step = (self.constant(np.array([v], np.int32)) for v in (0, 1, 1))
        n = self.add("StridedSlice", shape, first, past, step)
        parts, fixed = [], []
        for d in (*dimensions, None):
            if d is not None and d >= 0:
                fixed.append(d)
                continue
            if fixed:
                parts.append(self.constant(np.array(fixed, np.int32)))
                fixed = []
            if d is not None:
                parts.append(n if d == -1 else self.add("Mul", n, self.constant(np.array([-d], np.int32))))
        return self.concat(parts, 0)

    def expand(self, reference: str, shape: Sequence[int]) -> str:
        """`reference` repeated along dimensions of size 1 until it has `shape`."""
        shape, now = tuple(shape), self.shape(reference)
        if now == shape:
            return reference
        if len(now) != len(shape):
            reference = self.reshape(reference, (1,) * (len(shape) - len(now)) + now)
            now = self.shape(reference)
        return self.add("Tile", reference, self.sized([1 if a == b else b for a, b in zip(now, shape, strict=True)]))

    def finish(self, outputs: Iterable[str]):
        """The GraphDef of what `outputs` need, inputs before readers."""
        result = tf.compat.v1.GraphDef()
        if self._versions is not None:
            result.versions.CopyFrom(self._versions)
        wanted, waiting = set(), [node_of(o) for o in outputs]
        while waiting:
            name = waiting.pop()
            if name not in wanted:
                wanted.add(name)
                waiting.extend(node_of(r) for r in self._nodes[name].input)
        result.node.extend(node for name, node in self._nodes.items() if name in wanted)
        return result

    def _add(self, node, inputs: Sequence[str]) -> list[str]:
        key = (node.op, tuple(inputs), tuple(sorted((k, v.SerializeToString(deterministic=True))
                                                    for k, v in node.attr.items())))
        pure = is_pure(node.op)
        if not pure or key not in self._known:
            node.name = self._name(node.op)
            node.input.extend(inputs)
            first = self._keep(node, inputs, None)
            if not pure:
                return self._references(first)
            self._known[key] = first
        return self._references(self._known[key])

    def _keep(self, node, inputs: Sequence[str], value: np.ndarray | None) -> str:
        self._nodes[node.name] = node
        for world in self._worlds:
            if value is None:
                world.grow(node, inputs)
            else:
                world.hold(node.name, value)
        if value is not None:
            self._constants[node.name] = value
        return node.name

    def _references(self, name: str) -> list[str]:
        return [name if port == 0 else f"{name}:{port}" for port in range(self._worlds[0].outputs[name])]

    def _name(self, op: str) -> str:
        name = f"{op}.{len(self._nodes)}"
        while name in self._nodes:
            name += "."
        return name


class _World:
    """The graph for one number of candidates, for its shapes."""

    def __init__(self, n: int):
        self.n = n
        self.graph = tf.Graph()
        self.values: dict[str, np.ndarray] = {}
        self.outputs: dict[str, int] = {}
        self._tensors: dict[str, tf.Tensor] = {}

    def tensor(self, reference: str) -> tf.Tensor:
        return self._tensors[reference]

    def place(self, name: str, dtype: tf.DType, shape: Sequence[int]) -> None:
        with self.graph.as_default():
            self._tensors[name] = tf.compat.v1.placeholder(dtype, shape)
        self.outputs[name] = 1

    def hold(self, name: str, value: np.ndarray) -> None:
        # A large constant's shape is enough; a small one may be a shape itself.
        self.outputs[name] = 1
        if value.size > _VALUES_MAX:
            self.place(name, tf.as_dtype(value.dtype) if value.dtype != object else tf.string, value.shape)
            return
        with self.graph.as_default():
            self._tensors[name] = tf.constant(value)
        self.values[name] = value

    def grow(self, node, inputs: Sequence[str]) -> None:
        with self.graph.as_default():
            attrs = {name: value for name, value in node.attr.items() if name not in ("_class", "_output_shapes")}
            op = self.graph.create_op(node.op, [self._tensors[r] for r in inputs], attrs=attrs)
        self.outputs[node.name] = len(op.outputs)
        values = self._values(node, inputs, op)
        for port, tensor in enumerate(op.outputs):
            reference = node.name if port == 0 else f"{node.name}:{port}"
            self._tensors[reference] = tensor
            if values is not None:
                self.values[reference] = values[port]
                with self.graph.as_default():
                    self._tensors[reference] = tf.constant(values[port], tensor.dtype)

    def _values(self, node, inputs: Sequence[str], op) -> list[np.ndarray] | None:
        if any(t.shape.num_elements() is None or t.shape.num_elements() > _VALUES_MAX for t in op.outputs):
            return None
        if node.op in _SHAPE_OPS:
            return _of_shapes(node.op, op)
        if not is_pure(node.op) or any(r not in self.values for r in inputs):
            return None
        return evaluate(node, [self.values[r] for r in inputs])


def _of_shapes(name: str, op) -> list[np.ndarray] | None:
    shapes = [t.shape for t in op.inputs]
    if not all(s.is_fully_defined() for s in shapes) and not (name == "Rank" and shapes[0].rank is not None):
        return None
    types = [t.dtype.as_numpy_dtype for t in op.outputs]
    if name == "Rank":
        return [np.array(shapes[0].rank, types[0])]
    if name == "Size":
        return [np.array(shapes[0].num_elements(), types[0])]
    return [np.array(s.as_list(), t) for s, t in zip(shapes, types, strict=True)]


def _dimension(small: int | None, large: int | None) -> int | None:
    if small is None or large is None or small == large:
        return small if small == large else None
    k, left = divmod(small, _CANDIDATES[0])
    return -k if left == 0 and k > 0 and large == k * _CANDIDATES[1] else None


def _plain(reference: str) -> str:
    return reference if port_of(reference) else node_of(reference)
