"""A SavedModel's signature as one graph that a session can run: restored and initialised by nodes that run once.

The stored graph is cut down to what the signature computes and what brings up its variables and tables; all of it is of
allowed ops, or refused. Signature inputs give way to placeholders that requests feed as they feed a package's graph:
whole numbers are i64 and cast here, what comes once a request is tiled here to the candidates. Paths of the checkpoint
and of vocabularies become constants, so that nothing in the graph chooses a file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from lambda_svc.errors import PackageRejected
from lambda_svc.proto.tf_graph_pb2 import (
    AssetFile,
    AttrValue,
    GraphDef,
    MetaGraph,
    NodeDef,
    SavedModel,
    Signature,
    Tensor,
    TensorInfo,
    TensorShape,
)
from models.package import (
    GraphError,
    SignatureError,
    SignatureInput,
    check_graph,
    choose_heads,
    sides_of,
    signature_input,
)

__all__ = ["SAVED_MODEL_FILE", "SavedGraph", "read_saved_graph", "with_paths"]

SAVED_MODEL_FILE = "saved_model.pb"
_TAG, _INIT = "serve", "__saved_model_init_op"
_FLOAT, _INT32, _STRING, _INT64 = 1, 3, 7, 9
_NAMES = {1: "float32", 2: "float64", 3: "int32", 4: "uint8", 7: "string", 9: "int64", 10: "bool", 19: "float16"}
_FED = {"f32": _FLOAT, "i64": _INT64}


@dataclass(frozen=True)
class SavedGraph:
    """A signature, ready to be loaded.

    Attributes:
        inputs: (tensor to feed, what it is), in the order of the signature's names.
        heads: (head, tensor to fetch).
        left_out: outputs of the signature that are no heads, and why.
        graph: a serialised GraphDef.
        once: the nodes to run when it is loaded, in this order.
    """

    inputs: tuple[tuple[str, SignatureInput], ...]
    heads: tuple[tuple[str, str], ...]
    left_out: Mapping[str, str]
    graph: bytes
    once: tuple[str, ...]


def read_saved_graph(folder: Path, signature: str, user: Collection[str] = (), context: Collection[str] = (),
                     heads: Collection[str] = (), *, told_as: Path | None = None) -> SavedGraph:
    """The signature of the SavedModel in `folder`, its variables and vocabularies read from there when it is loaded.

    Inputs are of the item side but for those of `user` and `context`; `heads` names outputs that are scores, by default
    all that can be. Raises PackageRejected naming the file, in the folder `told_as` if given, and what in it cannot be
    served.
    """
    try:
        return _saved_graph(folder, _meta_graph(folder / SAVED_MODEL_FILE), signature, user, context, heads)
    except (SignatureError, GraphError) as error:
        raise PackageRejected(f"{(told_as or folder) / SAVED_MODEL_FILE}: {error}") from error


def with_paths(graph: bytes, paths: Mapping[str, Path]) -> bytes:
    """A serialised GraphDef whose nodes `paths` hold those paths. Raises PackageRejected naming one that is missing."""
    whole = GraphDef.FromString(graph)
    missing = sorted(set(paths) - {node.name for node in whole.node})
    if missing:
        raise PackageRejected(f"the graph has no node {missing[0]!r}, which the manifest's initializers name")
    for node in whole.node:
        if node.name in paths:
            node.CopyFrom(_constant_text(node.name, paths[node.name]))
    return whole.SerializeToString(deterministic=True)


def _meta_graph(file: Path) -> MetaGraph:
    try:
        saved = SavedModel.FromString(file.read_bytes())
    except OSError as error:
        raise SignatureError(f"cannot be read: {error.strerror}") from error
    except DecodeError as error:
        raise SignatureError("not a whole SavedModel; was it copied to its end?") from error
    for meta in saved.meta_graphs:
        if list(meta.meta_info_def.tags) == [_TAG]:
            return meta
    there = [sorted(meta.meta_info_def.tags) for meta in saved.meta_graphs]
    raise SignatureError(f"expected a graph with the tag {_TAG!r}, it has {there or 'none'}")


def _saved_graph(folder: Path, meta: MetaGraph, name: str, user, context, wanted) -> SavedGraph:
    if name not in meta.signature_def:
        there = ", ".join(sorted(key for key in meta.signature_def if key != _INIT)) or "none"
        raise SignatureError(f"signature {name!r} came, expected one of the model's: {there}")
    signature = meta.signature_def[name]
    outputs = {key: (_dtype(info), _shape(info)) for key, info in signature.outputs.items()}
    heads, left_out = choose_heads(name, outputs, wanted)
    graph = _Graph(meta.graph_def)
    paths, once = _bring_up(folder, meta, graph)
    fetched = [_tensor(signature.outputs[head].name) for head in heads]
    check_graph(graph.part([_node_of(tensor) for tensor in fetched]).SerializeToString())
    check_graph(graph.part(once).SerializeToString(), paths, assigns=True)
    read = _inputs(name, signature, graph.needed(map(_node_of, fetched)), user, context)
    fed = _rewired(graph, signature, read)
    for tensor, head in zip(fetched, heads, strict=True):
        if tensor in fed.values():
            raise SignatureError(f"signature {name!r}, output {head!r}: it is an input as it came")
    part = graph.part([*map(_node_of, fetched), *once])
    return SavedGraph(tuple((fed[entry.key], entry) for entry in read), tuple(zip(heads, fetched, strict=True)),
                      left_out, part.SerializeToString(deterministic=True), tuple(once))


def _inputs(name: str, signature: Signature, needed: Collection[str], user, context) -> tuple[SignatureInput, ...]:
    """The inputs that the heads depend on."""
    sides, placed = sides_of(name, signature.inputs, user, context), {}
    for key, info in sorted(signature.inputs.items()):
        if not info.name:
            raise SignatureError(f"signature {name!r}, input {key!r}: a sparse or composite tensor cannot be fed")
        if placed.setdefault(_tensor(info.name), key) != key:
            other = placed[_tensor(info.name)]
            raise SignatureError(f"signature {name!r}: inputs {other!r} and {key!r} are one tensor")
    read = tuple(signature_input(name, key, _dtype(info), _shape(info), sides[key])
                 for key, info in sorted(signature.inputs.items()) if _node_of(info.name) in needed)
    if not any(entry.side == "item" for entry in read):
        raise SignatureError(f"signature {name!r}: no input is of the item side, so that all candidates would have one "
                             "score")
    return read


def _bring_up(folder: Path, meta: MetaGraph, graph: _Graph) -> tuple[set[str], list[str]]:
    """Puts the paths into the graph: (the nodes that hold them, the nodes that restore and initialise)."""
    paths, once = set(), []
    for node, file in _assets(folder, meta):
        graph.put(_constant_text(node, file))
        paths.add(node)
    _pass_by_variables(graph, paths)
    saver = meta.saver_def
    if saver.restore_op_name and (folder / "variables").is_dir():
        node = _node_of(saver.filename_tensor_name)
        graph.put(_constant_text(node, folder / "variables" / "variables"))
        paths.add(node)
        once.append(_node_of(saver.restore_op_name))
    if _INIT in meta.signature_def:
        once.append(_node_of(meta.signature_def[_INIT].outputs[_INIT].name))
    else:
        collections = (meta.collection_def[key].node_list.value for key in ("saved_model_main_op", "legacy_init_op")
                       if key in meta.collection_def)
        once += [_node_of(names[0]) for names in collections if names][:1]
    return paths, once


def _pass_by_variables(graph: _Graph, paths: Collection[str]) -> None:
    """Hands a vocabulary's path straight to what reads it off a variable, which TensorFlow 2 puts between."""
    held = {_node_of(node.input[0]): _node_of(node.input[1]) for node in graph.nodes.values()
            if node.op == "AssignVariableOp" and len(node.input) > 1 and _node_of(node.input[1]) in paths}
    for node in list(graph.nodes.values()):
        if node.op == "ReadVariableOp" and node.input and _node_of(node.input[0]) in held:
            graph.put(_node(node.name, "Identity", [held[_node_of(node.input[0])]], T=_type(_STRING)))


def _assets(folder: Path, meta: MetaGraph) -> Iterable[tuple[str, Path]]:
    stored = list(meta.asset_file_def)
    if not stored and "saved_model_assets" in meta.collection_def:
        stored = [_asset(packed.value) for packed in meta.collection_def["saved_model_assets"].any_list.value]
    for asset in stored:
        parts = Path(asset.filename).parts
        if not parts or Path(asset.filename).is_absolute() or ".." in parts:
            raise SignatureError(f"asset {asset.filename!r} is outside the model's folder")
        if not (folder / "assets" / asset.filename).is_file():
            raise SignatureError(f"asset {asset.filename!r}: there is no such file in assets/")
        yield _node_of(asset.tensor_info.name), folder / "assets" / asset.filename


def _asset(packed: bytes) -> AssetFile:
    try:
        return AssetFile.FromString(packed)
    except DecodeError as error:
        raise SignatureError("an asset of the collection saved_model_assets is damaged") from error


def _rewired(graph: _Graph, signature: Signature, read: tuple[SignatureInput, ...]) -> dict[str, str]:
    """Lets requests feed the inputs; the tensor to feed by input."""
    fed = {}
    for number, entry in enumerate(read):
        name = graph.free(f"feed/{number}_{re.sub('[^A-Za-z0-9_.-]', '_', entry.key)}")
        graph.put(_node(name, "Placeholder", (), dtype=_type(_FED[entry.fed]), shape=_attr_shape(entry.shape)))
        fed[entry.key] = f"{name}:0"
    item = next(entry for entry in read if entry.side == "item")
    ones: dict[int, str] = {}
    for entry in read:
        value = fed[entry.key].removesuffix(":0")
        if entry.dtype == "i32":
            value = graph.put(_node(graph.free(f"{value}/cast"), "Cast", [value], SrcT=_type(_INT64),
                                    DstT=_type(_INT32)))
        if entry.tiled:
            rank, kind = len(entry.shape), _INT32 if entry.dtype == "i32" else _FED[entry.fed]
            if rank not in ones:
                ones[rank] = _multiples(graph, fed[item.key].removesuffix(":0"), rank)
            value = graph.put(_node(graph.free(f"{value}/tile"), "Tile", [value, ones[rank]], T=_type(kind),
                                    Tmultiples=_type(_INT32)))
        graph.rewire(_tensor(signature.inputs[entry.key].name), value)
    return fed


def _multiples(graph: _Graph, item: str, rank: int) -> str:
    """A node that computes [candidates] or [candidates, 1]: how often a row is repeated."""
    name = graph.free(f"feed/multiples_{rank}")
    kind = AttrValue.FromString(graph.nodes[item].attr["dtype"]).type
    shape = graph.put(_node(f"{name}/shape", "Shape", [item], T=_type(kind), out_type=_type(_INT32)))
    bounds = [graph.put(_constant_numbers(f"{name}/{part}", [value])) for part, value in (("begin", 0), ("size", 1))]
    rows = graph.put(_node(f"{name}/rows", "Slice", [shape, *bounds], T=_type(_INT32), Index=_type(_INT32)))
    ones = graph.put(_constant_numbers(f"{name}/ones", [1] * (rank - 1)))
    axis = graph.put(_constant_numbers(f"{name}/axis", None))
    return graph.put(_node(name, "ConcatV2", [rows, ones, axis], T=_type(_INT32), N=AttrValue(i=2),
                           Tidx=_type(_INT32)))


class _Graph:
    """The nodes and functions of a stored graph. Changes what it was given."""

    def __init__(self, stored: GraphDef):
        self._stored = stored
        self.nodes = {node.name: node for node in stored.node}
        if len(self.nodes) != len(stored.node):
            raise SignatureError("two nodes of the graph have one name")

    def put(self, node: NodeDef) -> str:
        """Adds the node, or replaces the one of its name; returns the name."""
        self.nodes[node.name] = node
        return node.name

    def free(self, name: str) -> str:
        """The name, or a longer one that no node has."""
        while name in self.nodes:
            name += "_"
        return name

    def rewire(self, tensor: str, to: str) -> None:
        """Lets whatever reads `tensor` read `to`."""
        for node in self.nodes.values():
            for position, reference in enumerate(node.input):
                if not reference.startswith("^") and _tensor(reference) == tensor:
                    node.input[position] = to

    def needed(self, ends: Iterable[str]) -> set[str]:
        """Names of the nodes that `ends` depend on, themselves included. Raises SignatureError for one not there."""
        found: set[str] = set()
        waiting = list(ends)
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            if name not in self.nodes:
                raise SignatureError(f"the graph has no node {name!r}, which is read")
            found.add(name)
            waiting.extend(_node_of(reference) for reference in self.nodes[name].input)
        return found

    def part(self, ends: Iterable[str]) -> GraphDef:
        """What `ends` depend on, with the functions that it names."""
        needed = self.needed(ends)
        nodes = [node for name, node in self.nodes.items() if name in needed]
        library = {function.signature.name: function for function in self._stored.library.function}
        kept: set[str] = set()
        waiting = [name for node in nodes for name in _functions_of(node, library)]
        while waiting:
            name = waiting.pop()
            if name not in kept and name in library:
                kept.add(name)
                waiting.extend(one for node in library[name].node_def for one in _functions_of(node, library))
        part = GraphDef()
        part.CopyFrom(self._stored)  # versions, and what else there is
        del part.node[:], part.library.function[:]
        part.node.extend(nodes)
        part.library.function.extend(function for name, function in sorted(library.items()) if name in kept)
        return part


def _functions_of(node: NodeDef, library: Collection[str]) -> Iterable[str]:
    if node.op in library:
        yield node.op
    for raw in node.attr.values():
        if len(raw) < 3 or raw[0] not in (0x0A, 0x52):  # neither a list nor a function
            continue
        try:
            value = AttrValue.FromString(raw)
        except DecodeError as error:
            raise SignatureError(f"node {node.name!r}: an attribute is damaged") from error
        yield from (function.name for function in (*value.list.func, value.func) if function.name)


def _node(name: str, op: str, inputs: Iterable[str], **attributes: AttrValue) -> NodeDef:
    node = NodeDef(name=name, op=op, input=list(inputs))
    for key, value in attributes.items():
        node.attr[key] = value.SerializeToString()
    return node


def _type(number: int) -> AttrValue:
    return AttrValue(type=number)


def _attr_shape(sizes: Iterable[int]) -> AttrValue:
    return AttrValue(shape=TensorShape(dim=[TensorShape.Dim(size=size) for size in sizes]))


def _constant_text(name: str, path: Path) -> NodeDef:
    tensor = Tensor(dtype=_STRING, tensor_shape=TensorShape(), string_val=[str(path).encode()])
    return _node(name, "Const", (), dtype=_type(_STRING), value=AttrValue(tensor=tensor))


def _constant_numbers(name: str, values: list[int] | None) -> NodeDef:
    """A constant vector of int32; None: the scalar 0."""
    shape = TensorShape() if values is None else TensorShape(dim=[TensorShape.Dim(size=len(values))])
    tensor = Tensor(dtype=_INT32, tensor_shape=shape, int_val=[0] if values is None else values)
    return _node(name, "Const", (), dtype=_type(_INT32), value=AttrValue(tensor=tensor))


def _node_of(reference: str) -> str:
    return reference.lstrip("^").partition(":")[0]


def _tensor(reference: str) -> str:
    return reference if ":" in reference else f"{reference}:0"


def _dtype(info: TensorInfo) -> str:
    return _NAMES.get(info.dtype, f"dtype {info.dtype}")


def _shape(info: TensorInfo) -> tuple[int, ...] | None:
    return None if info.tensor_shape.unknown_rank else tuple(dim.size for dim in info.tensor_shape.dim)
