"""What every Python face of a native RowSource shares: arguments checked, then one native call without the GIL."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from paramserver import arrays
from paramserver.native_flight import native

__all__ = ["CancelFlag", "Reader"]


class CancelFlag:
    """Cancels lookups that were given it: they return within about a millisecond, unread ids as `deadline`."""

    def __init__(self) -> None:
        self._core = native.CancelFlag()

    def cancel(self) -> None:
        """Cancel, from any thread, for good."""
        self._core.cancel()


class Reader:
    """Lookups of one RowSource of csrc/row_source.h. Any number of threads may read; calls release the GIL."""

    def __init__(self, name: str, dim: int, core: Any) -> None:
        self._name = name
        self._dim = dim
        self._core = core

    @property
    def name(self) -> str:
        """How the table is called in plans and messages."""
        return self._name

    @property
    def dim(self) -> int:
        """Numbers in a row."""
        return self._dim

    @property
    def epoch(self) -> int:
        """The newest epoch that a lookup without one sees; 0 before the first."""
        return self._core.epoch()

    @property
    def capsule(self) -> Any:
        """A new PyCapsule "paramserver.RowSource.3" (csrc/row_source.h), which keeps what it reads from alive."""
        self._expect_open()
        return self._core.capsule()

    def _expect_open(self) -> None:
        """Raise ClosedError when what this reads from was closed."""

    def lookup(self, ids: np.ndarray | Sequence[int], out: np.ndarray | None = None,
               status: np.ndarray | None = None, epoch: int = 0, deadline_s: float | None = None,
               cancel: CancelFlag | None = None) -> np.ndarray:
        """As Table.lookup: rows of ids int64|uint64[n] into out[n, dim], float32 (a new one when None), float16 or
        bfloat16. Trouble is told by `status` uint8[n], never raised: such an id gets the default row. epoch: 0 is the
        newest. deadline_s: seconds from now. Raises IdError, ArrayError, OptionError, ClosedError."""
        self._expect_open()
        ids = arrays.as_ids(ids)
        out = arrays.out_rows(out, ids.size, self._dim)
        status = arrays.out_status(status, ids.size)
        self._core.lookup(ids, arrays.out_kind(out), out.view(np.uint8), status, arrays.check_epoch("epoch", epoch),
                          arrays.as_deadline_ns(deadline_s), cancel._core if cancel else None)
        return out

    def lookup_pooled(self, ids: np.ndarray | Sequence[int], offsets: np.ndarray, mode: str = "mean",
                      weights: np.ndarray | None = None, out: np.ndarray | None = None,
                      status: np.ndarray | None = None, epoch: int = 0, deadline_s: float | None = None,
                      cancel: CancelFlag | None = None) -> np.ndarray:
        """As Table.lookup_pooled, with the same bits: bag b, ids[offsets[b]:offsets[b + 1]], pooled into out[b] in the
        order of its ids. Raises IdError, ArrayError, OptionError, BagError, ClosedError."""
        self._expect_open()
        ids = arrays.as_ids(ids)
        offsets = arrays.as_offsets(offsets)
        kind = arrays.pooling(mode)
        weights = arrays.as_weights(weights, ids.size)
        out = arrays.out_rows(out, offsets.size - 1, self._dim)
        status = arrays.out_status(status, ids.size)
        self._core.lookup_pooled(ids, offsets, kind, weights, arrays.out_kind(out), out.view(np.uint8), status,
                                 arrays.check_epoch("epoch", epoch), arrays.as_deadline_ns(deadline_s),
                                 cancel._core if cancel else None)
        return out
