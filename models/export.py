"""Export: a model becomes a package that the service can load. Importing this imports tensorflow.

Equal models give equal bytes, in any process.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

from .errors import ExportCheckError
from .golden import write_golden
from .interface import Interface, ModelInput
from .onnx import to_onnx
from .package import Golden, Graph, GraphInput, GraphOutput, Source, TableFile, write_package
from .passes import Cut, CutGraph, Variable, captured_variables, cut, freeze
from .passes.dense import DenseGraph, DenseInput, Head
from .passes.graph import node_of
from .rewritten import rewritten
from .tables import write_table
from .tensors import input_specs
from .vocabulary import Vocabulary

__all__ = ["Artifacts", "Servable", "build", "dense_graph", "export", "serving_function"]

GRAPH_FILE, GOLDEN_FILE = "graph/item.pb", "golden.arrow"
ROWS_MIN = 1_000
TOLERANCE = 1e-6
TOLERANCE_BF16 = 2e-2


@dataclass(frozen=True, eq=False)
class Servable:
    """What export needs to know of a model.

    Attributes:
        name: the model's name in the repository.
        interface: its features, slots and inputs.
        heads: names of its scores, in order.
        serve: inputs of the uncut graph (user and context of leading dimension 1) -> {head: float32 [n]}, traced once.
        vocabularies: by table name; a table's rows beyond its vocabulary hold the out-of-vocabulary row.
        golden: records golden rows (models.golden) and the framework's own scores of them, {head: float32 [n]}.
        notes: plain JSON for the manifest.
    """

    name: str
    interface: Interface
    heads: tuple[str, ...]
    serve: Callable[[dict[str, tf.Tensor]], Mapping[str, tf.Tensor]]
    vocabularies: Mapping[str, Vocabulary]
    golden: Callable[[], tuple[pa.Table, Mapping[str, np.ndarray]]]
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The serving graph's fetched tensors."""
        return tuple(f"{head}:0" for head in self.heads)


@dataclass(frozen=True, eq=False)
class Artifacts:
    """A model taken apart: the frozen graph, the lookups that became inputs, and each table's variable by table
    name."""

    graph_def: tf.compat.v1.GraphDef
    cuts: tuple[Cut, ...]
    tables: dict[str, Variable]


def export(model: Servable, out_dir: Path | str, version: int, notes: dict | None = None, *,
           onnx: bool = False) -> Path:
    """Publishes the package `<out_dir>/<model's name>/<version>/` and returns its directory.

    Beside the plain graph goes what all passes make of it, the variant `user_once`. `notes` (plain JSON) goes into the
    manifest; `onnx` writes every graph as an ONNX model, too, for engines that read no GraphDef. Raises
    PackageExistsError when the version exists, GraphError when a table cannot be cut or ONNX lacks an operation,
    ExportCheckError when the graph still holds a table, or when a variant's scores leave the tolerance.
    """
    parts = build(model)
    golden, scores = model.golden()
    plain = dense_graph(model, parts)
    variants = rewritten(plain, TOLERANCE)
    converted = [to_onnx(dense) for dense in (plain, *(variant.dense for variant in variants))] if onnx else []
    table_files = [
        TableFile(name=name, file=f"tables/{name}.parquet", dim=table.shape[1], dtype="f32",
                  rows=len(model.vocabularies[name].ids))
        for name, table in sorted(parts.tables.items())
    ]

    def fill(directory: Path) -> None:
        (directory / "graph").mkdir()
        (directory / "tables").mkdir()
        (directory / GRAPH_FILE).write_bytes(_graph_bytes(parts.graph_def))
        for i, variant in enumerate(variants):
            variant.write(directory, converted[i + 1] if onnx else None)
        if onnx:
            (directory / GRAPH_FILE).with_suffix(".onnx").write_bytes(converted[0]["item"])
        for file in table_files:
            vocabulary = model.vocabularies[file.name]
            write_table(directory / file.file, parts.tables[file.name], vocabulary.ids, vocabulary.oov_row)
        write_golden(directory / GOLDEN_FILE, golden, scores)

    return write_package(
        out_dir,
        model=model.name,
        version=version,
        schema=model.interface.schema,
        slots=model.interface.slots,
        graph=Graph(
            file=GRAPH_FILE,
            inputs=tuple(_graph_inputs(model.interface, parts)),
            outputs=tuple(GraphOutput(head=head, name=f"{head}:0") for head in model.heads),
        ),
        tables=table_files,
        golden=Golden(file=GOLDEN_FILE, rows=len(golden), tolerance={head: TOLERANCE for head in model.heads},
                      tolerance_bf16={head: TOLERANCE_BF16 for head in model.heads}),
        fill=fill,
        notes={**model.notes, **(notes or {})},
        variants=[variant.entry for variant in variants],
    )


def build(model: Servable, rows_min: int = ROWS_MIN) -> Artifacts:
    """Cuts and freezes. Every table keyed by a vocabulary leaves the graph, whatever its size, because its ids are raw
    ids in serving; of the others, those of at least `rows_min` rows. Raises GraphError, ExportCheckError."""
    function = serving_function(model)
    by_vocabulary = {entry.name: entry.table for entry in model.interface.inputs if entry.table}
    variables = captured_variables(function)
    cut_graph = cut(function.graph.as_graph_def(), variables, model.outputs, rows_min, always=by_vocabulary)
    frozen = freeze(cut_graph.graph_def, cut_graph.variables, model.outputs)
    _declare_one_user(frozen, model.interface, cut_graph.cuts)
    tables = {by_vocabulary[c.ids]: variables[c.variable] for c in cut_graph.cuts}
    _check(frozen, cut_graph, rows_min)
    return Artifacts(frozen, cut_graph.cuts, tables)


def dense_graph(model: Servable, parts: Artifacts) -> DenseGraph:
    """The plain graph of a built model, from which every chain of passes starts."""
    inputs = tuple(DenseInput(i.name, i.dtype, i.shape, i.side) for i in _graph_inputs(model.interface, parts))
    heads = tuple(Head(head, f"{head}:0") for head in model.heads)
    return DenseGraph(parts.graph_def, inputs, heads)


def serving_function(model: Servable):
    """The model's serving graph: user and context of leading dimension 1, heads as nodes named after them."""
    @tf.function(input_signature=[input_specs(model.interface, one_user=True)], autograph=False)
    def serve(inputs):
        return {head: tf.identity(score, name=head) for head, score in model.serve(inputs).items()}

    return serve.get_concrete_function()


def _declare_one_user(frozen, interface: Interface, cuts: Iterable[Cut]) -> None:
    """Lets the placeholders of pooled rows of the user and context sides say that they hold one bag: flat ids and their
    segments did not say how many there are."""
    pooled = {c.ids: c.input for c in cuts if c.mode != "rows"}
    inputs = {pooled[e.name] for e in interface.inputs if e.name in pooled and interface.side(e) != "item"}
    for node in frozen.node:
        if node.name in inputs:
            node.attr["shape"].shape.dim[0].size = 1


def _check(frozen, cut_graph: CutGraph, rows_min: int) -> None:
    """Raises ExportCheckError when a table, or an id input that nothing can feed any more, is left in the graph."""
    tables, ids = {c.variable for c in cut_graph.cuts}, {c.ids for c in cut_graph.cuts}
    looked_up = {node_of(node.input[0]) for node in frozen.node
                 if node.op == "GatherV2" or node.op.startswith("SparseSegment")}
    for node in frozen.node:
        dims = [d.size for d in node.attr["value"].tensor.tensor_shape.dim] if node.op == "Const" else []
        if node.name in tables or (node.name in looked_up and len(dims) == 2 and dims[0] >= rows_min):
            raise ExportCheckError(f"the frozen graph still holds a table {dims} in {node.name!r}")
        if node.name in ids:
            raise ExportCheckError(f"id input {node.name!r} is still read beside its rows")


def _graph_inputs(interface: Interface, parts: Artifacts) -> Iterable[GraphInput]:
    """The frozen graph's feeds, in the order of the interface's inputs."""
    by_ids = {c.ids: c for c in parts.cuts}
    present = {node.name for node in parts.graph_def.node if node.op == "Placeholder"}
    for entry in interface.inputs:
        side = interface.side(entry)
        lead = -1 if side == "item" else 1
        if entry.name in by_ids:
            c = by_ids[entry.name]
            source = Source(kind="rows", slot=entry.slot, table=entry.table)
            if c.mode != "rows":
                source = Source(kind="pooled", slot=entry.slot, table=entry.table, mode=c.mode)
            shape = (lead, *c.shape[1:])
            yield GraphInput(name=f"{c.input}:0", dtype="f32", shape=shape, side=side, source=source)
        elif entry.name in present:
            yield _plain_input(entry, side, lead)


def _plain_input(entry: ModelInput, side: str, lead: int) -> GraphInput:
    if entry.part == "segments":
        raise ExportCheckError(f"input {entry.name!r} is left over: its table was not cut; nothing can feed segments")
    source = Source(kind=entry.part, slot=entry.slot)
    return GraphInput(name=f"{entry.name}:0", dtype=entry.dtype, shape=(lead, *entry.shape[1:]), side=side,
                      source=source)


def _graph_bytes(graph_def) -> bytes:
    return graph_def.SerializeToString(deterministic=True)
