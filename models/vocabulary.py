"""From raw 64-bit ids to rows of a training table and back. Outside the graph: the served package knows raw ids
only."""

from dataclasses import dataclass

import numpy as np

from .errors import DatasetError

__all__ = ["Vocabulary"]


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The ids a table was trained on: `ids` int64 [v], ascending, distinct. Row i is ids[i]'s; row v is the trained
    out-of-vocabulary row, so a table has v + 1 rows. Every id is legal, none is reserved."""

    ids: np.ndarray

    def __post_init__(self) -> None:
        """Refuse ids that would give two rows to one id."""
        if self.ids.dtype != np.int64 or self.ids.ndim != 1 or np.any(self.ids[1:] <= self.ids[:-1]):
            raise DatasetError("vocabulary ids must be int64 [v], ascending and distinct; build it with Vocabulary.of")

    @classmethod
    def of(cls, ids: np.ndarray) -> "Vocabulary":
        """The vocabulary of the ids (int64, any shape, repeats allowed)."""
        return cls(np.unique(ids).astype(np.int64))

    @property
    def oov_row(self) -> int:
        """The row of every id that is not in the vocabulary."""
        return len(self.ids)

    @property
    def table_rows(self) -> int:
        """How many rows its table has: one per id, and the out-of-vocabulary row."""
        return len(self.ids) + 1

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Row numbers, int64, of ids of any shape."""
        if not len(self.ids):
            return np.zeros(ids.shape, np.int64)
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[at] == ids, at, self.oov_row)
