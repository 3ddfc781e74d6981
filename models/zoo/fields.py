"""Fields: what a zoo model reads, in one line each; features, slots, inputs and vocabularies follow from them.

No tensorflow here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal
from zlib import crc32

import numpy as np

from feature_store.schema import Feature, Schema, Side
from feature_store.transforms import Bucketize, Log1p, Slot

from ..errors import ConfigError
from ..interface import Interface, ModelInput
from ..vocabulary import Vocabulary

__all__ = ["Field", "Kind", "fields_checked", "ids_of", "interface_of", "numbered", "vocabulary_of"]

Kind = Literal["key", "id", "bag", "sequence", "bucket", "numbers"]
_LOOKED_UP = ("key", "id", "bag", "sequence")


@dataclass(frozen=True)
class Field:
    """One feature of a model and how it enters.

    Attributes:
        name: of the feature, its slot and its input.
        side: whose feature it is.
        kind: "key" (the candidate's own id) and "id": one 64-bit id, a table row; "bag": at most `length` ids, the mean
            of their rows; "sequence": at most `length` ids in order, a row each; "bucket": a number from 0 to `rows` -
            1, bucketed, its row in a small table that stays in the graph; "numbers": `dim` numbers through ln(1 + x).
        dim: of a row; numbers: how many there are.
        rows: of the table, the last one being out-of-vocabulary; bucket: how many buckets.
        length: bag and sequence: the most ids.
        table: a table shared by several fields; by default the field has its own, called like it.
    """

    name: str
    side: Side
    kind: Kind
    dim: int
    rows: int = 0
    length: int = 1
    table: str = ""

    @property
    def source(self) -> str:
        """The name of the table that its rows come from."""
        return self.table or self.name

    @property
    def looked_up(self) -> bool:
        """Whether its rows come from a table outside the graph."""
        return self.kind in _LOOKED_UP


def numbered(field: Field, count: int) -> tuple[Field, ...]:
    """`count` fields like this one, named <name>_0 and so on."""
    return tuple(replace(field, name=f"{field.name}_{i}") for i in range(count))


def fields_checked(fields: Sequence[Field]) -> tuple[Field, ...]:
    """The fields as given. Raises ConfigError when a size is too small, or two fields do not agree on a table that they
    share: its size, and whether its rows are pooled."""
    tables: dict[str, tuple] = {}
    problems = []
    for field in fields:
        if field.dim < 1 or field.length < 1 or (field.kind != "numbers" and field.rows < 2):
            problems.append(f"field {field.name!r}: dim {field.dim}, length {field.length} and rows {field.rows} must "
                            "be at least 1, 1 and 2")
        table = (field.rows, field.dim, "pooled" if field.kind == "bag" else "row by row")
        if field.looked_up and tables.setdefault(field.source, table) != table:
            problems.append(f"field {field.name!r}: table {field.source!r} is {tables[field.source]} and {table}")
    if problems:
        raise ConfigError("; ".join(problems))
    return tuple(fields)


def interface_of(fields: Sequence[Field]) -> Interface:
    """The features, slots and inputs of the fields. A bag `f` has the inputs `f` and `f_segments`, a sequence `f` and
    `f_length`."""
    return Interface(
        Schema(tuple(_feature(field) for field in fields)),
        tuple(Slot(field.name, field.name, _transforms(field)) for field in fields),
        tuple(entry for field in fields for entry in _inputs(field)),
    )


def _feature(field: Field) -> Feature:
    if field.kind in ("bucket", "numbers"):
        dense = field.kind == "numbers" and field.dim > 1
        return Feature(field.name, field.side, "f32", *(("dense", field.dim) if dense else ()))
    kinds: Mapping[str, str] = {"key": "key", "id": "single", "bag": "multi", "sequence": "sequence"}
    return Feature(field.name, field.side, "i64", kinds[field.kind], field.length)


def _transforms(field: Field) -> tuple:
    if field.kind == "bucket":
        return (Bucketize(tuple(float(bound) for bound in range(1, field.rows))),)
    return (Log1p(),) if field.kind == "numbers" else ()


def _inputs(field: Field) -> tuple[ModelInput, ...]:
    name, table = field.name, field.source if field.looked_up else None
    if field.kind == "numbers":
        return (ModelInput(name, name, "f32", (None, field.dim)),)
    if field.kind == "sequence":
        return (ModelInput(name, name, "i64", (None, field.length), table=table),
                ModelInput(f"{name}_length", name, "i32", (None,), part="lengths"))
    ids = ModelInput(name, name, "i64", (None,), table=table)
    if field.kind == "bag":
        return (ids, ModelInput(f"{name}_segments", name, "i32", (None,), part="segments"))
    return (ids,)


def ids_of(table: str, ranks: np.ndarray) -> np.ndarray:
    """The raw ids, int64, of a table's entries by popularity rank (0 is the most popular): spread over all 64 bits,
    distinct within a table. Ranks at or past a table's vocabulary are ids that it does not know."""
    # An odd factor permutes the 64-bit numbers.
    mixed = (ranks.astype(np.uint64) + np.uint64(crc32(table.encode()))) * np.uint64(0x9E3779B97F4A7C15)
    return mixed.view(np.int64)


@lru_cache(maxsize=64)
def vocabulary_of(table: str, rows: int) -> Vocabulary:
    """The ids that a table of `rows` rows knows: ranks 0 to rows - 2."""
    return Vocabulary.of(ids_of(table, np.arange(rows - 1)))
