"""What a model reads: its features, the slots made from them, and the inputs of its uncut graph.

One Interface is the single place that says which slot an input comes from; training, golden rows, client-side feeding
and export all read it, so they cannot disagree. No tensorflow here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from feature_store.schema import Schema, Side
from feature_store.transforms import Slot

from .errors import ConfigError
from .vocabulary import Vocabulary

__all__ = ["Interface", "ModelInput", "SlotArrays"]


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


@dataclass(frozen=True)
class Interface:
    """A model's features, slots and inputs. Raises ConfigError for an input whose slot is not there."""

    schema: Schema
    slots: tuple[Slot, ...]
    inputs: tuple[ModelInput, ...]

    def __post_init__(self) -> None:
        """Refuse inputs of unknown slots and names used twice, all problems at once."""
        slots, names = {slot.name for slot in self.slots}, [entry.name for entry in self.inputs]
        problems = [f"input {entry.name!r}: slot {entry.slot!r} does not exist"
                    for entry in self.inputs if entry.slot not in slots]
        problems += [f"input {name!r} appears twice" for name in sorted({n for n in names if names.count(n) > 1})]
        if problems:
            raise ConfigError("; ".join(problems))

    def side(self, entry: ModelInput) -> Side:
        """The side of the feature behind an input."""
        feature = next(slot.feature for slot in self.slots if slot.name == entry.slot)
        return self.schema.feature(feature).side

    def arrays(
        self, slots: Mapping[str, SlotArrays], vocabularies: Mapping[str, Vocabulary]
    ) -> dict[str, np.ndarray]:
        """The inputs of the uncut graph whose slots are in `slots` (one side, or several), as numpy arrays."""
        arrays = {}
        for entry in self.inputs:
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
