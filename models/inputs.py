"""The DIN MMoE model's features, slots and graph inputs, and how a graph input is filled from a slot.

One table, INPUTS, says for every input of the uncut graph which slot it comes from; training, golden rows, the stock
client and export all read it, so they cannot disagree.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from feature_store.schema import Feature, Schema
from feature_store.transforms import Bucketize, Cross, Hash64, Slot

from .moments import HISTORY_LENGTH
from .vocabulary import Vocabulary

__all__ = ["INPUTS", "SCHEMA", "SLOTS", "ModelInput", "SlotArrays", "input_arrays"]

GENRES_MAX = 8
AGE_BOUNDARIES = (18.0, 25.0, 30.0, 35.0, 45.0, 50.0, 56.0)
YEAR_BOUNDARIES = (1940.0, 1960.0, 1970.0, 1980.0, 1990.0, 1993.0, 1995.0, 1996.0, 1997.0)
HOUR_BOUNDARIES = (3.0, 6.0, 9.0, 12.0, 15.0, 18.0, 21.0)
WEEKDAY_BOUNDARIES = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)

SCHEMA = Schema((
    Feature("age", "user", "f32", default=30.0),
    Feature("gender", "user", "bytes"),
    Feature("occupation", "user", "bytes"),
    Feature("history_item", "user", "i64", "sequence", HISTORY_LENGTH),
    Feature("history_rating", "user", "f32", "sequence", HISTORY_LENGTH),
    Feature("hour", "context", "f32", default=12.0),
    Feature("weekday", "context", "f32"),
    Feature("movie_id", "item", "i64", "key"),
    Feature("year", "item", "f32", default=1995.0),
    Feature("genres", "item", "bytes", "multi", GENRES_MAX),
))

SLOTS = (
    Slot("age", "age", (Bucketize(AGE_BOUNDARIES),)),
    Slot("occupation", "occupation", (Hash64(),)),
    Slot("gender_occupation", "gender", (Hash64(), Cross("occupation"))),
    Slot("history_item", "history_item"),
    Slot("history_rating", "history_rating"),
    Slot("hour", "hour", (Bucketize(HOUR_BOUNDARIES),)),
    Slot("weekday", "weekday", (Bucketize(WEEKDAY_BOUNDARIES),)),
    Slot("item", "movie_id"),
    Slot("year", "year", (Bucketize(YEAR_BOUNDARIES),)),
    Slot("genres", "genres", (Hash64(),)),
)


class SlotArrays(Protocol):
    """What feature_store gives for a slot: values, offsets int32 [n + 1] when ragged, lengths int32 [n] when padded."""

    values: np.ndarray
    offsets: np.ndarray | None
    lengths: np.ndarray | None


@dataclass(frozen=True)
class ModelInput:
    """One input of the uncut graph.

    part `values`: the slot's values (ragged: flat), as row numbers of `table` when there is one; `lengths`: a padded
    slot's lengths; `segments`: for each flat value of a ragged slot, int32, the row that it belongs to.
    """

    name: str
    slot: str
    dtype: Literal["f32", "i64", "i32"]
    shape: tuple[int | None, ...]
    part: Literal["values", "lengths", "segments"] = "values"
    table: str | None = None

    @property
    def side(self) -> str:
        """The side of the slot's feature."""
        feature = next(slot.feature for slot in SLOTS if slot.name == self.slot)
        return SCHEMA.feature(feature).side


INPUTS = (
    ModelInput("history_item", "history_item", "i64", (None, HISTORY_LENGTH), table="item"),
    ModelInput("history_rating", "history_rating", "f32", (None, HISTORY_LENGTH)),
    ModelInput("history_length", "history_item", "i32", (None,), part="lengths"),
    ModelInput("occupation", "occupation", "i64", (None,), table="occupation"),
    ModelInput("gender_occupation", "gender_occupation", "i64", (None,), table="gender_occupation"),
    ModelInput("age", "age", "i64", (None,)),
    ModelInput("hour", "hour", "i64", (None,)),
    ModelInput("weekday", "weekday", "i64", (None,)),
    ModelInput("item", "item", "i64", (None,), table="item"),
    ModelInput("genres", "genres", "i64", (None,), table="genre"),
    ModelInput("genres_segments", "genres", "i32", (None,), part="segments"),
    ModelInput("year", "year", "i64", (None,)),
)


def input_arrays(slots: Mapping[str, SlotArrays], vocabularies: Mapping[str, Vocabulary]) -> dict[str, np.ndarray]:
    """The inputs of the uncut graph whose slots are in `slots` (one side, or several), as numpy arrays."""
    arrays = {}
    for entry in INPUTS:
        slot = slots.get(entry.slot)
        if slot is None:
            continue
        if entry.part == "lengths":
            arrays[entry.name] = slot.lengths
        elif entry.part == "segments":
            arrays[entry.name] = np.repeat(np.arange(len(slot.offsets) - 1, dtype=np.int32), np.diff(slot.offsets))
        else:
            values = slot.values
            arrays[entry.name] = vocabularies[entry.table].rows(values) if entry.table else values
    return arrays
