"""Golden rows of a loaded model: drawn or given, scored by the framework from the model as it came. Imports
tensorflow.

A group is one request: {input: array}, inputs of the item side with a row a candidate, others with one row.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import tensorflow as tf

from .errors import ExportCheckError, SignatureError
from .golden import golden_table
from .loaded_inputs import Reading
from .loaders import FrameworkModel, FrozenModel, Loaded
from .signature_input import SignatureInput

__all__ = ["Group", "framework", "golden_rows", "groups_drawn", "groups_given", "rows_of", "score"]

Group = Mapping[str, np.ndarray]
Score = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
GROUPS, ROWS = 4, 12


def groups_drawn(read: Reading, frozen: FrozenModel, rng: np.random.Generator) -> list[Group]:
    """GROUPS requests of ROWS candidates: ids of the table that looks them up, other whole numbers 0 or 1, which are in
    every table and bucket, and normal numbers."""
    tables = {cut.ids: frozen.tables[cut.variable].shape[0] for cut in frozen.cuts}

    def draw(entry: SignatureInput) -> np.ndarray:
        shape = (ROWS if entry.side == "item" else 1, *entry.shape[1:])
        if entry.fed == "f32":
            return rng.normal(size=shape).astype(np.float32)
        return rng.integers(0, tables.get(frozen.placeholders[entry.key], 2), shape)

    return [{entry.key: draw(entry) for entry in read.inputs} for _ in range(GROUPS)]


def groups_given(read: Reading, inputs: Mapping[str, np.ndarray]) -> list[Group]:
    """Rows by input, cut where an input that is not of the item side changes. Raises SignatureError naming an input
    that is missing, or of another shape or type."""
    keys = [entry.key for entry in read.inputs]
    if set(keys) - set(inputs):
        raise SignatureError(f"golden inputs: {sorted(set(keys) - set(inputs))} missing, expected {keys}")
    arrays = {}
    for entry in read.inputs:
        array = np.asarray(inputs[entry.key])
        if array.ndim != len(entry.shape) or array.shape[1:] != entry.shape[1:] or array.dtype.kind not in "fiu":
            raise SignatureError(f"golden inputs: {entry.key!r} came as {array.dtype} {list(array.shape)}, expected "
                                 f"{entry.fed} {[-1, *entry.shape[1:]]}")
        arrays[entry.key] = array.astype(np.float32 if entry.fed == "f32" else np.int64)
    rows = {len(array) for array in arrays.values()}
    if len(rows) != 1 or rows == {0}:
        raise SignatureError(f"golden inputs: {sorted(rows)} rows came, expected as many of each, at least one")
    return list(_cut(read, arrays, rows.pop()))


def _cut(read: Reading, arrays: Mapping[str, np.ndarray], rows: int) -> Iterator[Group]:
    once = [entry.key for entry in read.inputs if entry.side != "item"]
    starts = [0, *(row for row in range(1, rows)
                   if any(not np.array_equal(arrays[key][row], arrays[key][row - 1]) for key in once)), rows]
    for start, stop in zip(starts, starts[1:], strict=False):
        yield {key: array[start:start + 1 if key in once else stop] for key, array in arrays.items()}


def rows_of(read: Reading, group: Group) -> int:
    """How many candidates a group has."""
    return next(len(group[entry.key]) for entry in read.inputs if entry.side == "item")


def framework(loaded: Loaded, signature: str) -> Score:
    """The model as it came, as the framework runs it: {input: array} -> {output: array}."""
    if loaded.kind != "frozen":
        model = FrameworkModel(loaded.path)
        return lambda inputs: model.call(signature, inputs)
    graph, wanted = tf.Graph(), loaded.signature(signature)
    with graph.as_default():
        tf.graph_util.import_graph_def(loaded.graph_def, name="")
    session = tf.compat.v1.Session(graph=graph)
    return lambda inputs: session.run({key: spec.name for key, spec in wanted.outputs.items()},
                                      {wanted.inputs[key].name: value for key, value in inputs.items()})


def score(ask: Score, read: Reading, frozen: FrozenModel, groups: Sequence[Group],
          heads: Sequence[str]) -> dict[str, np.ndarray]:
    """{head: float32 [rows of all groups]}. Raises ExportCheckError when a head gives not one number a candidate."""
    found: dict[str, list[np.ndarray]] = {head: [] for head in heads}
    for group in groups:
        rows = rows_of(read, group)
        outputs = ask(_as_called(read, frozen, group, rows))
        for head in heads:
            value = np.asarray(outputs[head])
            if value.size != rows or value.dtype != np.float32 or not np.isfinite(value).all():
                raise ExportCheckError(f"head {head!r}: {value.dtype} {list(value.shape)} came for {rows} "
                                       "candidates of the golden rows, expected one finite float32 for each")
            found[head].append(value.reshape(-1))
    return {head: np.concatenate(values) for head, values in found.items()}


def _as_called(read: Reading, frozen: FrozenModel, group: Group, rows: int) -> dict[str, np.ndarray]:
    """The signature's own inputs; those that no score depends on are zeros."""
    types, given = frozen.signature.inputs, {}
    for entry in read.inputs:
        value = group[entry.key].astype(types[entry.key].dtype)
        given[entry.key] = np.repeat(value, rows, 0) if entry.tiled else value
    for key in set(types) - set(given):
        shape = [rows if d < 0 else d for d in types[key].shape or ()]
        given[key] = np.full(shape, b"", object) if types[key].dtype == "string" else np.zeros(shape, types[key].dtype)
    return given


def golden_rows(read: Reading, groups: Sequence[Group]) -> pa.Table:
    """The groups as golden rows of raw features, without scores."""
    records = []
    for number, group in enumerate(groups):
        for row in range(rows_of(read, group)):
            records.append({"group": number, **{
                f"{entry.side}:{entry.key}": _raw(entry, group[entry.key][row if entry.side == "item" else 0])
                for entry in read.inputs}})
    return golden_table(read.schema, records)


def _raw(entry: SignatureInput, value: np.ndarray):
    return value.item() if entry.width is None else value.tolist()
