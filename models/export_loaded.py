"""Export of a model as a team has it (models.loaders): a SavedModel's signature or a frozen graph becomes a package.

Features, slots and heads follow from the signature; the golden scores are the framework's own, from the model as it
came. Importing this imports tensorflow.
"""

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tensorflow as tf

from .allow_list import check_graph
from .errors import ExportCheckError, GraphError, SignatureError
from .golden import write_golden
from .loaded_golden import Group, framework, golden_rows, groups_drawn, groups_given, rows_of, score
from .loaded_graph import initializers, serving_graph
from .loaded_inputs import head_outputs, reading, table_names
from .loaders import FrozenModel, Loaded, admit
from .manifest import is_safe_path
from .package import Golden, Graph, GraphInput, GraphOutput, Initializer, TableFile, write_package
from .passes.dense import DenseGraph
from .rewritten import Rewritten, rewritten
from .tables import RowReader, write_table

__all__ = ["Exported", "export_loaded"]

GRAPH_FILE, GOLDEN_FILE = "graph/item.pb", "golden.arrow"
TOLERANCE, TOLERANCE_BF16 = 1e-6, 2e-2


@dataclass(frozen=True)
class Exported:
    """What came of an export.

    Attributes:
        path: the package's folder.
        heads: its heads.
        left_out: outputs of the signature that are no heads, and why.
        kept: tables that stay in the graph, and why.
        plain_only: why there is no rewritten variant; "" when there is one.
    """

    path: Path
    heads: tuple[str, ...]
    left_out: Mapping[str, str]
    kept: Mapping[str, str]
    plain_only: str


def export_loaded(loaded: Loaded, out_dir: Path | str, name: str, version: int, *, signature: str = "serving_default",
                  user: Collection[str] = (), context: Collection[str] = (), heads: Collection[str] = (),
                  inputs: Mapping[str, np.ndarray] | None = None, rows_min: int = 1_000, seed: int = 0) -> Exported:
    """Publishes `<out_dir>/<name>/<version>/` from one signature of a loaded model.

    Inputs are of the item side but for those of `user` and `context`, which come once a request. `heads` names the
    outputs that are scores, by default all that can be. `inputs` are golden rows by input, [rows, ...] each; rows that
    follow one another with equal users are one request. Without, whole numbers are drawn from the table that looks them
    up, else from 0 and 1, and other numbers from a normal distribution.

    Raises OpRefusedError for a model that does more than compute scores; FreezeError with the reason when it has to be
    served as SavedModel; SignatureError for an input that no feature can feed, or an output that is no score;
    ExportCheckError when the graph does not give the framework's scores; PackageExistsError.
    """
    admit(replace(loaded, signatures={signature: loaded.signature(signature)}))
    frozen = loaded.freeze(signature, rows_min)
    _refuse(frozen)
    read, tables = reading(frozen, user, context), table_names(frozen)
    chosen, left_out = head_outputs(frozen.signature, heads)
    feeds = tuple(read.graph_inputs(frozen, tables))
    plain = serving_graph(frozen, read, feeds, chosen)
    fills = initializers(frozen)
    check_graph(plain.item.SerializeToString(), {one.asset for one in fills if one.asset is not None})
    groups = groups_drawn(read, frozen, np.random.default_rng(seed)) if inputs is None else groups_given(read, inputs)
    scores = score(framework(loaded, signature), read, frozen, groups, chosen)
    tolerance = {head: TOLERANCE * max(1.0, float(np.abs(found).max())) for head, found in scores.items()}
    _check(plain, feeds, frozen, tables, groups, scores, tolerance)
    variants, plain_only = _variants(plain, max(tolerance.values()), fills)
    kept = {table.variable: table.reason for table in frozen.kept}

    def fill(directory: Path) -> None:
        (directory / "graph").mkdir()
        (directory / GRAPH_FILE).write_bytes(plain.item.SerializeToString(deterministic=True))
        for variant in variants:
            variant.write(directory)
        for file, source in sorted(frozen.assets.items()):
            (directory / "assets" / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, directory / "assets" / file)
        (directory / "tables").mkdir()
        for variable, table in sorted(frozen.tables.items()):
            rows = table.shape[0]
            file = directory / f"tables/{tables[variable]}.parquet"
            write_table(file, _WithZeros(table), np.arange(rows, dtype=np.int64), rows)
        write_golden(directory / GOLDEN_FILE, golden_rows(read, groups), scores)

    path = write_package(
        out_dir, model=name, version=version, schema=read.schema, slots=read.slots,
        graph=Graph(file=GRAPH_FILE, inputs=feeds,
                    outputs=tuple(GraphOutput(head=head.head, name=head.name) for head in plain.heads)),
        tables=[TableFile(name=tables[variable], file=f"tables/{tables[variable]}.parquet", dim=table.shape[1],
                          dtype="f32", rows=table.shape[0]) for variable, table in sorted(frozen.tables.items())],
        golden=Golden(file=GOLDEN_FILE, rows=sum(rows_of(read, group) for group in groups), tolerance=tolerance,
                      tolerance_bf16={head: TOLERANCE_BF16 / TOLERANCE * one for head, one in tolerance.items()}),
        fill=fill, variants=[variant.entry for variant in variants], initializers=fills,
        notes={"signature": signature, "stored_as": loaded.kind, "left_out": left_out, "kept": kept,
               "plain_only": plain_only},
    )
    return Exported(path, chosen, left_out, kept, plain_only)


def _refuse(frozen: FrozenModel) -> None:
    """Raises SignatureError for what a package cannot hold yet."""
    where = f"signature {frozen.signature.name!r}"
    unsafe = [file for file in frozen.assets if not is_safe_path(f"assets/{file}")]
    if unsafe:
        raise SignatureError(f"{where}: vocabulary {unsafe[0]!r}: a package's files have plain names")
    if frozen.random_ops:
        raise SignatureError(f"{where}: {frozen.random_ops[0]!r} draws random numbers on every run, so that no "
                             "golden score could prove it")


class _WithZeros:
    """A table's rows, and one of zeros after them: the default row, as no row of it was trained for unknown ids."""

    def __init__(self, table: RowReader):
        self._table = table
        self.shape = (table.shape[0] + 1, *table.shape[1:])

    def read(self, start: int, stop: int) -> np.ndarray:
        """The rows start to stop (exclusive)."""
        known = min(stop, self.shape[0] - 1)
        rows = np.zeros((stop - start, *self.shape[1:]), np.float32)
        if start < known:
            rows[:known - start] = self._table.read(start, known)
        return rows


def _check(plain: DenseGraph, feeds: Sequence[GraphInput], frozen: FrozenModel, tables: Mapping[str, str],
           groups: Sequence[Group], scores: Mapping[str, np.ndarray], tolerance: Mapping[str, float]) -> None:
    """Raises ExportCheckError when the serving graph does not give the framework's scores."""
    by_table = {tables[variable]: _WithZeros(table) for variable, table in frozen.tables.items()}

    def value(feed: GraphInput, group: Group) -> np.ndarray:
        given = group[feed.source.slot]
        if feed.source.kind == "values":
            return given
        table = by_table[feed.source.table]
        distinct, places = np.unique(given, return_inverse=True)
        rows = np.stack([table.read(int(i), int(i) + 1)[0] for i in distinct])
        return rows[places.reshape(given.shape)]

    ask = _session(plain, frozen)
    got = [ask({feed.name: value(feed, group) for feed in feeds}) for group in groups]
    for head, wanted in scores.items():
        difference = float(np.max(np.abs(np.concatenate([one[head] for one in got]) - wanted)))
        if not difference <= tolerance[head]:
            raise ExportCheckError(f"head {head!r} differs from the framework's scores by {difference:.3g}, "
                                   f"{tolerance[head]:.3g} is allowed")


def _session(plain: DenseGraph, frozen: FrozenModel):
    """{feed: array} -> {head: float32 [n]} by a session on the plain graph whose lookup tables are filled."""
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(plain.item, name="")
    session = tf.compat.v1.Session(graph=graph)
    for one, source in zip(initializers(frozen), frozen.initializers, strict=True):
        session.run(one.node, {} if one.asset is None else {f"{one.asset}:0": str(frozen.assets[source.file])})
    fetches = {head.head: head.name for head in plain.heads}
    return lambda feeds: {head: value.reshape(-1) for head, value in session.run(fetches, feeds).items()}


def _variants(plain: DenseGraph, tolerance: float, fills: Sequence[Initializer]) -> tuple[tuple[Rewritten, ...], str]:
    """The rewritten variants; none, and why, for a graph that no pass can read."""
    if fills:
        return (), f"lookup tables are filled at load, by {', '.join(one.node for one in fills)}"
    try:
        return rewritten(plain, tolerance), ""
    except (GraphError, ExportCheckError) as error:
        return (), str(error)
