"""Golden rows: recorded requests with the scores that the training framework gives them, checked before a version
serves.

One row is one (request, candidate) of raw features: `group` int32, `user:*`, `context:*`, `item:*` in Arrow types, and
`score:*` float32 per head. Consecutive rows of one `group` are one request: they share user and context.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from feature_store import Column, Extractor, arrow_type
from feature_store.schema import Schema

from .interface import Interface
from .vocabulary import Vocabulary

__all__ = ["golden_inputs", "golden_table", "write_golden"]

_SIDES = ("user", "context", "item")


def golden_table(schema: Schema, records: Iterable[Mapping]) -> pa.Table:
    """The rows, without scores, of records {"group": number, "<side>:<feature>": raw value}."""
    fields = [pa.field("group", pa.int32(), nullable=False)]
    fields += [pa.field(f"{feature.side}:{feature.name}", arrow_type(feature)) for feature in schema.features]
    return pa.Table.from_pylist(list(records), schema=pa.schema(fields))


def golden_inputs(
    golden: pa.Table, interface: Interface, vocabularies: Mapping[str, Vocabulary], one_user: bool = False
) -> dict[str, np.ndarray]:
    """Inputs of the uncut graph for all rows at once, through the native extractor and without stored features.

    Every leading dimension is the number of rows, user and context being tiled by the client; with `one_user` the rows
    are one group, and user and context come once.
    """
    arrays = {}
    for side in _SIDES:
        rows = golden.slice(0, 1) if one_user and side != "item" else golden
        columns = {f.name: Column.of(f, rows[f"{side}:{f.name}"]) for f in interface.schema.side(side)}
        if any(interface.schema.feature(slot.feature).side == side for slot in interface.slots):
            extractor = Extractor(interface.schema, interface.slots, side)
            arrays |= interface.arrays(extractor.gather(np.zeros(len(rows), np.int64), columns), vocabularies)
    return arrays


def write_golden(path: Path, golden: pa.Table, scores: Mapping[str, np.ndarray]) -> None:
    """Writes the rows and their scores {head: float32 [n]} as an Arrow file, columns `score:<head>`."""
    for head, values in scores.items():
        golden = golden.append_column(pa.field(f"score:{head}", pa.float32(), nullable=False), pa.array(values))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, golden.schema) as writer:
        writer.write_table(golden.combine_chunks())
