"""Training examples: everything the model reads, extracted once by the feature store, batched by row numbers."""

from collections.abc import Mapping

import numpy as np

from .features import RatedRows
from .inputs import INTERFACE
from .vocabulary import Vocabulary

__all__ = ["Examples", "build_vocabularies"]


def build_vocabularies(rows: RatedRows, train_rows: np.ndarray) -> dict[str, Vocabulary]:
    """A vocabulary per table, of the ids that occur in the training rows only: what comes later is out of
    vocabulary."""
    users = rows.gather_users(rows.moments.take(np.unique(rows.moments.of_row[train_rows])))
    items = rows.gather_items(np.unique(rows.item_ids[train_rows]))
    return {
        "item": Vocabulary.of(items["item"].values),
        "genre": Vocabulary.of(items["genres"].values),
        "occupation": Vocabulary.of(users["occupation"].values),
        "gender_occupation": Vocabulary.of(users["gender_occupation"].values),
    }


class Examples:
    """Rating rows as inputs of the uncut model. Holds each moment and each item once.

    batch() draws rows together; the native extractor ran once in the constructor, over all moments and all items.
    """

    def __init__(self, rows: RatedRows, vocabularies: Mapping[str, Vocabulary]):
        """Extracts all inputs of all moments and items of `rows`."""
        self._vocabularies = dict(vocabularies)
        self._moment_of_row = rows.moments.of_row
        item_ids, self._item_of_row = np.unique(rows.item_ids, return_inverse=True)
        users, context = rows.gather_users(rows.moments), rows.gather_context(rows.moments)
        items = rows.gather_items(item_ids)
        self._by_moment = INTERFACE.arrays({**users, **context}, vocabularies)
        dense = {name: slot for name, slot in items.items() if slot.offsets is None}
        self._by_item = INTERFACE.arrays(dense, vocabularies)
        self._bags = {name: slot for name, slot in items.items() if slot.offsets is not None}
        self.labels = {head: values.astype(np.float32) for head, values in rows.labels.items()}

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None, oov_share: float = 0.0) -> dict:
        """Inputs {name: array} of rating rows [b]: user, context and item inputs all with leading dimension b.

        With `oov_share`, that share of all table ids, drawn by `rng`, is replaced by the out-of-vocabulary row, which
        is how that row is trained.
        """
        moments, items = self._moment_of_row[rows], self._item_of_row[rows]
        arrays = {name: values[moments] for name, values in self._by_moment.items()}
        arrays |= {name: values[items] for name, values in self._by_item.items()}
        bags = {name: _take_bags(slot, items) for name, slot in self._bags.items()}
        arrays |= INTERFACE.arrays(bags, self._vocabularies)
        if oov_share:
            for entry in INTERFACE.inputs:
                if entry.table:
                    values, oov = arrays[entry.name], self._vocabularies[entry.table].oov_row
                    arrays[entry.name] = np.where(rng.random(values.shape, np.float32) < oov_share, oov, values)
        return arrays


class _Bags:
    """A ragged slot's values and offsets."""

    def __init__(self, values: np.ndarray, offsets: np.ndarray):
        self.values, self.offsets, self.lengths = values, offsets, None


def _take_bags(slot, which: np.ndarray) -> _Bags:
    lengths = np.diff(slot.offsets)[which]
    offsets = np.zeros(len(which) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    flat = np.repeat(slot.offsets[which] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return _Bags(slot.values[flat], offsets)
