"""What is asked of a native source of rows, wherever it lies: arguments checked, then one call without the GIL."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from paramserver import arrays
from paramserver.errors import EpochError
from paramserver.status import RowStatus

__all__ = ["Lookups", "StoredLookups"]


class Lookups:
    """Lookups of one RowSource of csrc/row_source.h. Any number of threads may read; calls release the GIL."""

    _core: Any
    _dim: int

    @property
    def dim(self) -> int:
        """Numbers in a row."""
        return self._dim

    @property
    def capsule(self) -> Any:
        """A new PyCapsule "paramserver.RowSource.3" (csrc/row_source.h), which keeps what it reads from alive."""
        return self._core.capsule()

    def lookup(self, ids: np.ndarray | Sequence[int], out: np.ndarray | None = None,
               status: np.ndarray | None = None, epoch: int = 0, deadline_s: float | None = None) -> np.ndarray:
        """Rows of ids int64|uint64[n] into out[n, dim], float32 (a new one when None), float16 or bfloat16. An unknown
        id gets the default row. `status` uint8[n] receives RowStatus values. epoch: 0 is the newest published, or the
        base state before the first; every id of an epoch that is not held is UNAVAILABLE. deadline_s: seconds from now
        after which ids are answered DEADLINE. Returns out. Raises IdError, ArrayError, OptionError."""
        return self._lookup(ids, out, status, epoch, deadline_s)

    def lookup_pooled(self, ids: np.ndarray | Sequence[int], offsets: np.ndarray, mode: str = "mean",
                      weights: np.ndarray | None = None, out: np.ndarray | None = None,
                      status: np.ndarray | None = None, epoch: int = 0,
                      deadline_s: float | None = None) -> np.ndarray:
        """Pool the rows of bag b, ids[offsets[b]:offsets[b + 1]], into out[b]: out is [bags, dim], as in lookup.

        offsets: int32[bags + 1]. mode: "sum", "mean" or "sqrtn". weights: float32[n] multiply the rows; mean divides by
        their sum, sqrtn by the root of the sum of their squares (without weights: by n and by the root of n). Sums run
        in float32, in the order of the ids, the same on every CPU. An empty bag, or one whose divisor is 0, gives 0; an
        unknown id pools the default row. Raises IdError, ArrayError, OptionError, BagError.
        """
        return self._lookup_pooled(ids, offsets, mode, weights, out, status, epoch, deadline_s)

    # `more`: what the native call takes after the deadline.
    def _lookup(self, ids: np.ndarray | Sequence[int], out: np.ndarray | None, status: np.ndarray | None, epoch: int,
                deadline_s: float | None, *more: Any) -> np.ndarray:
        ids = arrays.as_ids(ids)
        out = arrays.out_rows(out, ids.size, self._dim)
        status = arrays.out_status(status, ids.size)
        self._core.lookup(ids, arrays.out_kind(out), out.view(np.uint8), status, arrays.check_epoch("epoch", epoch),
                          arrays.as_deadline_ns(deadline_s), *more)
        return out

    def _lookup_pooled(self, ids: np.ndarray | Sequence[int], offsets: np.ndarray, mode: str,
                       weights: np.ndarray | None, out: np.ndarray | None, status: np.ndarray | None, epoch: int,
                       deadline_s: float | None, *more: Any) -> np.ndarray:
        ids = arrays.as_ids(ids)
        offsets = arrays.as_offsets(offsets)
        kind = arrays.pooling(mode)
        weights = arrays.as_weights(weights, ids.size)
        out = arrays.out_rows(out, offsets.size - 1, self._dim)
        status = arrays.out_status(status, ids.size)
        self._core.lookup_pooled(ids, offsets, kind, weights, arrays.out_kind(out), out.view(np.uint8), status,
                                 arrays.check_epoch("epoch", epoch), arrays.as_deadline_ns(deadline_s), *more)
        return out


class StoredLookups(Lookups):
    """Lookups of a table whose rows lie in this process's memory, where they can be had as they are stored."""

    @property
    def stored_row_bytes(self) -> int:
        """Bytes of one stored row (csrc/row_format.h)."""
        return self._core.row_bytes()

    @property
    def default_row(self) -> np.ndarray:
        """The row of unknown ids, as stored: float32[dim], a copy."""
        row = np.empty(self._dim, np.float32)
        self._core.default_row(row)
        return row

    def epochs(self) -> list[tuple[int, int]]:
        """The epochs held, oldest first, each with its sequence."""
        return self._core.epochs()

    def lookup_stored(self, ids: np.ndarray | Sequence[int], epoch: int = 0,
                      status: np.ndarray | None = None) -> np.ndarray:
        """Rows of ids int64|uint64[n] as they are stored: uint8[n, stored_row_bytes], the default row for unknown ones.
        `status` as in lookup. Raises IdError, ArrayError, EpochError for an epoch that is not held."""
        ids = arrays.as_ids(ids)
        status = np.empty(ids.size, np.uint8) if status is None else arrays.out_status(status, ids.size)
        out = np.empty((ids.size, self.stored_row_bytes), np.uint8)
        self._core.lookup_stored(ids, out, status, arrays.check_epoch("epoch", epoch))
        if (status == RowStatus.UNAVAILABLE).any() or not (ids.size or epoch == 0 or self._core.holds(epoch)):
            raise EpochError(f"the table does not hold epoch {epoch}: it holds {[e for e, _ in self.epochs()]}")
        return out
