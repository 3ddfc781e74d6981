"""From a loaded model to one signature's graph: named ends, functions inlined, training out, tables cut, variables
frozen."""

import re
from collections.abc import Collection, Iterable, Mapping

import numpy as np
import tensorflow as tf

from ..errors import FreezeError, GraphError, SavedModelError
from ..passes import Variable, cut, freeze
from ..passes.graph import GraphIndex, data_inputs, node_of, port_of
from .inference import for_inference
from .inline import called_function, inline_functions
from .lift import lift_variables
from .loaded import FrozenModel, KeptTable, Loaded, Signature, TableInitializer, TensorSpec

__all__ = ["freeze_signature", "name_assets"]

_TABLES = ("HashTableV2", "MutableHashTableV2", "MutableDenseHashTableV2", "MutableHashTableOfTensorsV2",
           "AnonymousHashTable", "AnonymousMutableHashTable", "HashTable", "MutableHashTable")
_FILLS = {"InitializeTableFromTextFileV2": 1, "InitializeTableFromTextFile": 1, "InitializeTableV2": None,
          "InitializeTable": None, "LookupTableImportV2": None, "LookupTableInsertV2": None}
_RANDOM = ("Random", "Multinomial", "TruncatedNormal", "ParameterizedTruncatedNormal", "StatefulUniform",
           "StatefulStandardNormal", "StatefulTruncatedNormal")


def freeze_signature(loaded: Loaded, signature: Signature, rows_min: int, moving_averages: bool,
                     constant_bytes_max: int) -> FrozenModel:
    """See Loaded.freeze."""
    try:
        return _freeze(loaded, signature, rows_min, moving_averages, constant_bytes_max)
    except FreezeError:
        raise
    except (GraphError, SavedModelError, tf.errors.OpError) as error:
        raise FreezeError(loaded.path, signature.name, str(error)) from error


def _freeze(loaded: Loaded, signature: Signature, rows_min: int, moving_averages: bool,
            constant_bytes_max: int) -> FrozenModel:
    named = _Named(loaded.graph_def, signature)
    ends = [f"{node_of(spec.name)}" for spec in named.outputs.values()]
    init_ops = [loaded.init_op] if loaded.init_op else []
    # One graph holds both, so that a table is one node for those who fill it and those who ask it.
    whole = GraphIndex(inline_functions(named.index.pruned([*ends, *init_ops])))
    name_assets(whole, loaded)
    scoring = GraphIndex(for_inference(whole.pruned(ends), ends))
    initializers = _initializers(whole, scoring.nodes, init_ops, loaded)
    for name in whole.needed([one.node for one in initializers]):
        scoring.nodes.setdefault(name, whole.nodes[name])
    outputs = [*(spec.name for spec in named.outputs.values()), *(one.node for one in initializers)]

    variables = {**loaded.variables, **(loaded.averages if moving_averages else {})}
    kept: dict[str, KeptTable] = {}
    candidates = {**_constant_tables(scoring, rows_min), **variables}
    graph_def = lift_variables(scoring.pruned(outputs), {name: v.dtype for name, v in variables.items()})
    result = cut(graph_def, candidates, outputs, rows_min,
                 refused=lambda name, error: kept.update({name: KeptTable(name, candidates[name].shape, str(error))}))
    try:
        frozen = freeze(result.graph_def, {n: v for n, v in result.variables.items() if n in variables}, outputs,
                        constant_bytes_max)
    except GraphError as error:
        reasons = [f"{table.variable!r} stays: {table.reason}" for table in kept.values()]
        raise GraphError("; ".join([str(error), *reasons])) from error
    left = {node.name: node for node in frozen.node}
    averaged = sorted(set(loaded.averages) & set(left)) if moving_averages else []
    return FrozenModel(
        signature=signature,
        graph_def=frozen,
        placeholders={key: node_of(spec.name) for key, spec in named.inputs.items()},
        inputs={key: spec for key, spec in named.inputs.items() if node_of(spec.name) in left},
        outputs=named.outputs,
        cuts=result.cuts,
        tables={one.variable: candidates[one.variable] for one in result.cuts},
        kept=tuple(table for name, table in sorted(kept.items()) if name in left),
        initializers=initializers,
        assets={one.file: loaded.path / "assets" / one.file for one in initializers if one.file},
        averaged=tuple(averaged),
        random_ops=tuple(name for name, node in left.items() if node.op.startswith(_RANDOM)),
    )


class _Named:
    """The stored graph with placeholders named after a signature's inputs, and results after its outputs.

    What a signature feeds may be any tensor of the graph, and what it fetches may be a function's call.
    """

    def __init__(self, graph_def, signature: Signature):
        self.index = GraphIndex(graph_def)
        library = {function.signature.name: function for function in graph_def.library.function}
        self.inputs: dict[str, TensorSpec] = {}
        self.outputs: dict[str, TensorSpec] = {}
        placed = {}
        for key, spec in sorted(signature.inputs.items()):
            name = placed.setdefault(spec.name, self._free(key, "input", spec))
            self.inputs[key] = TensorSpec(f"{name}:0", spec.dtype, spec.shape)
        fetched = {key: placed.get(spec.name, spec.name) for key, spec in signature.outputs.items()}
        for tensor, name in placed.items():
            self._feed(tensor, name, next(s for s in signature.inputs.values() if s.name == tensor))
        for key, spec in sorted(signature.outputs.items()):
            if spec.name == f"{key}:0" and not called_function(self.index.nodes[key], library):
                self.outputs[key] = spec
                continue
            name = self._free(key, "output", spec)
            node = tf.compat.v1.NodeDef(name=name, op="Identity", input=[fetched[key].removesuffix(":0")])
            node.attr["T"].type = tf.as_dtype(spec.dtype).as_datatype_enum
            self.index.nodes[name] = node
            self.outputs[key] = TensorSpec(f"{name}:0", spec.dtype, spec.shape)

    def _free(self, key: str, side: str, spec: TensorSpec) -> str:
        """A node's name after a key: the key itself, unless another node has it."""
        plain = re.sub(r"[^A-Za-z0-9_.\-/]", "_", key)
        plain = plain if re.match(r"[A-Za-z0-9.]", plain) else f"{side}{plain}"
        own = node_of(spec.name) if side == "input" else None
        while plain in self.index.nodes and plain != own:
            plain += f"_{side}"
        return plain

    def _feed(self, tensor: str, name: str, spec: TensorSpec) -> None:
        placeholder = tf.compat.v1.NodeDef(name=name, op="Placeholder")
        placeholder.attr["dtype"].type = tf.as_dtype(spec.dtype).as_datatype_enum
        placeholder.attr["shape"].shape.CopyFrom(
            tf.TensorShape(None if spec.shape is None else [d if d >= 0 else None for d in spec.shape]).as_proto())
        for node in self.index.nodes.values():
            for position, reference in enumerate(node.input):
                if not reference.startswith("^") and f"{node_of(reference)}:{port_of(reference)}" == tensor:
                    node.input[position] = name
        self.index.nodes[name] = placeholder


def name_assets(index: GraphIndex, loaded: Loaded) -> None:
    """Variables that only hold the path of an asset give way to the asset's own tensor, which is fed at load."""
    for variable, tensor in loaded.asset_variables.items():
        for node in list(index.nodes.values()):
            if node.op == "ReadVariableOp" and node_of(node.input[0]) == variable:
                index.rewire(node.name, node_of(tensor))


def _initializers(whole: GraphIndex, scoring: Mapping, init_ops: Iterable[str],
                  loaded: Loaded) -> tuple[TableInitializer, ...]:
    """The nodes, of those that the initialisation runs, that fill the tables that scoring asks, once for each."""
    tables = sorted(name for name, node in scoring.items() if node.op in _TABLES)
    found: dict[tuple, TableInitializer] = {}
    for name in sorted(whole.needed(init_ops)) if tables else ():
        node = whole.nodes[name]
        if node.op not in _FILLS or node_of(node.input[0]) not in tables:
            continue
        asset = None
        if _FILLS[node.op] is not None:
            source = node_of(whole.through_identities(node.input[_FILLS[node.op]]))
            asset = next((tensor for tensor in loaded.assets if node_of(tensor) == source), None)
            if asset is None:
                raise GraphError(f"table {node.input[0]!r} is filled by {name!r} from a file that is no asset")
        file = loaded.assets[asset].relative_to(loaded.path / "assets").as_posix() if asset else None
        content = tuple(whole.through_identities(reference) for reference in data_inputs(node))
        found.setdefault(content, TableInitializer(name, node_of(node.input[0]), asset, file))
    empty = sorted(set(tables) - {one.table for one in found.values()})
    if empty:
        raise GraphError(f"table {empty[0]!r} ({scoring[empty[0]].op}) is filled by no initialisation, but by code or "
                         "from the checkpoint")
    return tuple(sorted(found.values(), key=lambda one: (one.table, one.node)))


class _ConstantTable:
    """A table that is a constant of the graph already, as in frozen graphs."""

    def __init__(self, node):
        self._value = tf.make_ndarray(node.attr["value"].tensor)
        self.shape: tuple[int, ...] = self._value.shape
        self.dtype: np.dtype = self._value.dtype

    def read(self, start: int, stop: int) -> np.ndarray:
        """The rows start to stop (exclusive), as numpy."""
        return self._value[start:stop]


def _constant_tables(index: GraphIndex, rows_min: int) -> dict[str, Variable]:
    """Constants of two dimensions and enough rows that a gather or a pooling reads."""
    found = {}
    for node in index.nodes.values():
        if node.op.startswith("SparseSegment") or node.op in ("GatherV2", "ResourceGather"):
            source = index.nodes[node_of(index.through_identities(node.input[0]))]
            dims = _constant_dims(source)
            if len(dims) == 2 and dims[0] >= rows_min and source.attr["dtype"].type == tf.float32.as_datatype_enum:
                found[source.name] = _ConstantTable(source)
    return found


def _constant_dims(node) -> Collection[int]:
    return [d.size for d in node.attr["value"].tensor.tensor_shape.dim] if node.op == "Const" else ()
