"""Export: a trained model becomes a package that the service can load, or a SavedModel for the framework's own path.

Importing this imports tensorflow. Equal models give equal bytes, in any process.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from .errors import ExportCheckError
from .golden import golden_inputs, golden_requests, write_golden
from .inputs import INPUTS, SCHEMA, SLOTS, ModelInput
from .package import Golden, Graph, GraphInput, GraphOutput, Source, TableFile, write_package
from .passes import Cut, CutGraph, Variable, captured_variables, cut, freeze
from .stock import save_vocabularies
from .tables import write_table
from .train import Trained, input_specs, tensors
from .zoo.din_mmoe import HEADS

__all__ = ["Artifacts", "build", "export", "export_saved_model", "serving_function"]

MODEL = "din_mmoe"
GRAPH_FILE, GOLDEN_FILE = "graph/item.pb", "golden.arrow"
ROWS_MIN = 1_000
TOLERANCE = 1e-6
_BY_NAME = {entry.name: entry for entry in INPUTS}


@dataclass(frozen=True, eq=False)
class Artifacts:
    """A model taken apart: the frozen graph, the lookups that became inputs, and each table's variable by table
    name."""

    graph_def: tf.compat.v1.GraphDef
    cuts: tuple[Cut, ...]
    tables: dict[str, Variable]


def export(trained: Trained, out_dir: Path | str, version: int, notes: dict | None = None) -> Path:
    """Publishes the package `<out_dir>/din_mmoe/<version>/` and returns its directory.

    `notes` (plain JSON) goes into the manifest. Raises PackageExistsError when the version exists, GraphError when a
    table cannot be cut, ExportCheckError when the graph still holds a table.
    """
    parts = build(trained, rows_min=ROWS_MIN)
    golden = golden_requests(trained.rows, trained.split.test)
    scores = _framework_scores(trained, golden_inputs(golden, trained.vocabularies))
    table_files = [
        TableFile(name=name, file=f"tables/{name}.parquet", dim=table.shape[1], dtype="f32",
                  rows=len(trained.vocabularies[name].ids))
        for name, table in sorted(parts.tables.items())
    ]

    def fill(directory: Path) -> None:
        (directory / "graph").mkdir()
        (directory / "tables").mkdir()
        (directory / GRAPH_FILE).write_bytes(_graph_bytes(parts.graph_def))
        for file in table_files:
            vocabulary = trained.vocabularies[file.name]
            write_table(directory / file.file, parts.tables[file.name], vocabulary.ids, vocabulary.oov_row)
        write_golden(directory / GOLDEN_FILE, golden, scores)

    return write_package(
        out_dir,
        model=MODEL,
        version=version,
        schema=SCHEMA,
        slots=SLOTS,
        graph=Graph(
            file=GRAPH_FILE,
            inputs=tuple(_graph_inputs(parts)),
            outputs=tuple(GraphOutput(head=head, name=f"{head}:0") for head in HEADS),
        ),
        tables=table_files,
        golden=Golden(file=GOLDEN_FILE, rows=len(golden), tolerance={head: TOLERANCE for head in HEADS}),
        fill=fill,
        notes={"dataset": trained.rows.dataset.origin, "seed": trained.seed, **(notes or {})},
    )


def build(trained: Trained, rows_min: int = ROWS_MIN) -> Artifacts:
    """Cuts and freezes. Every table keyed by a vocabulary leaves the graph, whatever its size, because its ids are raw
    ids in serving; of the others, those of at least `rows_min` rows. Raises GraphError, ExportCheckError."""
    outputs = [f"{head}:0" for head in HEADS]
    function = serving_function(trained)
    by_vocabulary = [entry.name for entry in INPUTS if entry.table]
    variables = captured_variables(function)
    cut_graph = cut(function.graph.as_graph_def(), variables, outputs, rows_min, always=by_vocabulary)
    frozen = freeze(cut_graph.graph_def, cut_graph.variables, outputs)
    tables = {_BY_NAME[c.ids].table: variables[c.variable] for c in cut_graph.cuts}
    _check(frozen, cut_graph, rows_min)
    return Artifacts(frozen, cut_graph.cuts, tables)


def export_saved_model(trained: Trained, directory: Path | str) -> Path:
    """Writes the uncut model as a SavedModel whose `serving_default` takes row numbers and client-tiled inputs [n,
    ...] (see models.stock.stock_inputs) and returns {head: float32 [n]}. The vocabularies go beside it. Returns
    `directory`."""
    model = trained.model

    @tf.function(input_signature=[input_specs()], autograph=False)
    def predict(inputs):
        return {head: tf.sigmoid(logit) for head, logit in zip(HEADS, model(inputs), strict=True)}

    module = tf.Module()
    module.variables_kept = [variable.value for variable in model.variables]
    tf.saved_model.save(module, str(directory), signatures={"serving_default": predict})
    save_vocabularies(directory, trained.vocabularies)
    return Path(directory)


def serving_function(trained: Trained):
    """The model's serving graph: user and context of leading dimension 1, heads as nodes named after them."""
    specs = {name: tf.TensorSpec([1, *spec.shape[1:]], spec.dtype, name=name) if _BY_NAME[name].side != "item" else spec
             for name, spec in input_specs().items()}

    @tf.function(input_signature=[specs], autograph=False)
    def serve(inputs):
        return {head: tf.identity(score, name=head) for head, score in trained.model.serve(inputs).items()}

    return serve.get_concrete_function()


def _framework_scores(trained: Trained, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    logits = trained.model(tensors(inputs))
    return {head: tf.sigmoid(logit).numpy() for head, logit in zip(HEADS, logits, strict=True)}


def _check(frozen, cut_graph: CutGraph, rows_min: int) -> None:
    """Raises ExportCheckError when a table, or an id input that nothing can feed any more, is left in the graph."""
    tables, ids = {c.variable for c in cut_graph.cuts}, {c.ids for c in cut_graph.cuts}
    for node in frozen.node:
        dims = [d.size for d in node.attr["value"].tensor.tensor_shape.dim] if node.op == "Const" else []
        if node.name in tables or (len(dims) == 2 and dims[0] >= rows_min):
            raise ExportCheckError(f"the frozen graph still holds a table {dims} in {node.name!r}")
        if node.name in ids:
            raise ExportCheckError(f"id input {node.name!r} is still read beside its rows")


def _graph_inputs(parts: Artifacts) -> Iterable[GraphInput]:
    """The frozen graph's feeds, in the order of INPUTS."""
    by_ids = {c.ids: c for c in parts.cuts}
    present = {node.name for node in parts.graph_def.node if node.op == "Placeholder"}
    for entry in INPUTS:
        lead = -1 if entry.side == "item" else 1
        if entry.name in by_ids:
            c = by_ids[entry.name]
            source = Source(kind="rows", slot=entry.slot, table=entry.table)
            if c.mode != "rows":
                source = Source(kind="pooled", slot=entry.slot, table=entry.table, mode=c.mode)
            shape = (lead, *c.shape[1:])
            yield GraphInput(name=f"{c.input}:0", dtype="f32", shape=shape, side=entry.side, source=source)
        elif entry.name in present:
            yield _plain_input(entry, lead)


def _plain_input(entry: ModelInput, lead: int) -> GraphInput:
    if entry.part == "segments":
        raise ExportCheckError(f"input {entry.name!r} is left over: its table was not cut; nothing can feed segments")
    source = Source(kind=entry.part, slot=entry.slot)
    return GraphInput(name=f"{entry.name}:0", dtype=entry.dtype, shape=(lead, *entry.shape[1:]), side=entry.side,
                      source=source)


def _graph_bytes(graph_def) -> bytes:
    return graph_def.SerializeToString(deterministic=True)
