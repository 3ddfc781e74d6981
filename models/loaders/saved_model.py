"""SavedModels, of TensorFlow 1 and 2 alike: the stored graph is taken apart without running any of it.

Both kinds hold a graph that a session could run: signatures over it, an op that restores the variables, one that
initialises the lookup tables. So one way serves both, and a model whose Python objects cannot be brought back (custom
layers of code that is not there) loads like any other.
"""

from collections.abc import Collection
from pathlib import Path

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from ..errors import GraphError, SavedModelError, SignatureError
from ..passes.graph import GraphIndex, node_of
from .checkpoint import Checkpoint
from .loaded import Loaded, Signature, TensorSpec
from .restore import assigned, part_of, restored_variables

__all__ = ["SAVED_MODEL_FILE", "load_saved_model", "meta_graph"]

SAVED_MODEL_FILE = "saved_model.pb"
_INIT_OP, _TRAIN_OP = "__saved_model_init_op", "__saved_model_train_op"
_AVERAGE = "/ExponentialMovingAverage"
_VARIABLES = ("VarHandleOp", "VariableV2", "Variable")


def load_saved_model(path: Path | str, tags: Collection[str] = ("serve",)) -> Loaded:
    """The model of `tags` in the folder `path`.

    Raises SavedModelError naming the file that is missing or damaged, and SignatureError for a signature over tensors
    that are not plain or not there.
    """
    root = Path(path)
    meta = meta_graph(root, tags)
    graph_def = meta.graph_def
    try:
        signatures = _signatures(root, meta)
        init_op = _init_op(meta)
        variables, averages = _variables(root, meta)
        assets = _assets(root, meta)
        paths = {} if not init_op else _asset_variables(graph_def, init_op, assets)
    except GraphError as error:
        raise SavedModelError(root / SAVED_MODEL_FILE, f"the graph is not whole: {error}") from error
    kind = "v2" if meta.HasField("object_graph_def") else "v1"
    saver = meta.saver_def
    return Loaded(root, kind, signatures, graph_def, variables, averages, assets, paths, init_op,
                  node_of(saver.restore_op_name), node_of(saver.filename_tensor_name))


def meta_graph(path: Path | str, tags: Collection[str] = ("serve",)):
    """The MetaGraphDef of `tags` in a SavedModel's folder. Raises SavedModelError."""
    file = Path(path) / SAVED_MODEL_FILE
    try:
        raw = file.read_bytes()
    except OSError as error:
        text = Path(path) / "saved_model.pbtxt"
        hint = "; a saved_model.pbtxt is there: save it in binary form" if text.is_file() else ""
        raise SavedModelError(file, f"expected a SavedModel: {error.strerror}{hint}") from error
    saved = saved_model_pb2.SavedModel()
    try:
        saved.ParseFromString(raw)
    except DecodeError as error:
        came = f"{len(raw)} bytes that are no whole SavedModel"
        raise SavedModelError(file, f"{came}: {error}; was it copied to its end?") from error
    there = [sorted(meta.meta_info_def.tags) for meta in saved.meta_graphs]
    for meta, found in zip(saved.meta_graphs, there, strict=True):
        if found == sorted(tags):
            return meta
    raise SavedModelError(file, f"tags {sorted(tags)} expected, the file has {there or 'no graph at all'}")


def _signatures(root: Path, meta) -> dict[str, Signature]:
    nodes = {node.name for node in meta.graph_def.node}
    found = {}
    for name, stored in sorted(meta.signature_def.items()):
        if name in (_INIT_OP, _TRAIN_OP):
            continue
        inputs, outputs = ({key: _spec(root, name, key, info, nodes) for key, info in sorted(side.items())}
                           for side in (stored.inputs, stored.outputs))
        found[name] = Signature(name, inputs, outputs)
    return found


def _spec(root: Path, signature: str, key: str, info, nodes: set[str]) -> TensorSpec:
    where = f"{root}: signature {signature!r}, tensor {key!r}"
    if info.WhichOneof("encoding") != "name":
        raise SignatureError(f"{where}: {info.WhichOneof('encoding')} came, expected a plain tensor")
    if node_of(info.name) not in nodes:
        raise SignatureError(f"{where}: {info.name!r} is not in the graph")
    shape = None if info.tensor_shape.unknown_rank else tuple(d.size for d in info.tensor_shape.dim)
    return TensorSpec(info.name if ":" in info.name else f"{info.name}:0", tf.as_dtype(info.dtype).name, shape)


def _init_op(meta) -> str:
    if _INIT_OP in meta.signature_def:
        return node_of(meta.signature_def[_INIT_OP].outputs[_INIT_OP].name)
    for collection in ("saved_model_main_op", "legacy_init_op"):
        names = meta.collection_def[collection].node_list.value if collection in meta.collection_def else ()
        if names:
            return node_of(names[0])
    return ""


def _variables(root: Path, meta):
    """Variables by node, and their moving averages by the node that these follow."""
    nodes = {node.name: node for node in meta.graph_def.node if node.op in _VARIABLES}
    if not meta.saver_def.restore_op_name or not nodes:
        return {}, {}
    restored = restored_variables(meta.graph_def, node_of(meta.saver_def.restore_op_name))
    if not restored:
        return {}, {}
    checkpoint = Checkpoint(root / "variables" / "variables")
    variables = {name: checkpoint.variable(*place) for name, place in sorted(restored.items()) if name in nodes}
    # Nodes that share a name are handles of one variable, only one of which the restore op may use.
    by_shared_name = {_shared_name(nodes[name]): variable for name, variable in variables.items()}
    variables |= {name: by_shared_name[_shared_name(node)] for name, node in nodes.items()
                  if _shared_name(node) in by_shared_name}
    averages = {name: by_shared_name[shared + _AVERAGE] for name, node in nodes.items()
                if (shared := _shared_name(node)) + _AVERAGE in by_shared_name}
    kept = checkpoint.keys()
    averages |= {name: checkpoint.variable(key + _AVERAGE) for name, (key, part) in restored.items()
                 if not part and key + _AVERAGE in kept and name in nodes}
    return variables, averages


def _shared_name(node) -> str:
    return node.attr["shared_name"].s.decode() or node.name


def _assets(root: Path, meta) -> dict[str, Path]:
    """The path of each asset by its tensor."""
    stored = list(meta.asset_file_def)
    for packed in meta.collection_def["saved_model_assets"].any_list.value if (
            "saved_model_assets" in meta.collection_def) else ():
        asset = meta_graph_pb2.AssetFileDef()
        packed.Unpack(asset)
        stored.append(asset)
    found = {}
    for asset in stored:
        file = root / "assets" / asset.filename
        if Path(asset.filename).is_absolute() or ".." in Path(asset.filename).parts:
            raise SavedModelError(root / SAVED_MODEL_FILE, f"asset {asset.filename!r} is outside the model's folder")
        if not file.is_file():
            raise SavedModelError(file, "the graph reads this vocabulary; there is no such file")
        found[asset.tensor_info.name] = file
    return found


def _asset_variables(graph_def, init_op: str, assets) -> dict[str, str]:
    """Variables that only hold an asset's path, set by the initialisation."""
    index = GraphIndex(part_of(graph_def, init_op))
    tensors = {node_of(tensor): tensor for tensor in assets}
    sources = {name: node_of(index.through_identities(value)) for name, value in assigned(index).items()}
    return {name: tensors[source] for name, source in sources.items() if source in tensors}
