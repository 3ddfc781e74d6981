"""Lookups that other machines or a cache answer: they can be cancelled, and what they read from can be closed."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from paramserver.lookups import Lookups
from paramserver.native_flight import native

__all__ = ["CancelFlag", "Reader"]


class CancelFlag:
    """Cancels lookups that were given it: they return within about a millisecond, unread ids as `deadline`."""

    def __init__(self) -> None:
        self._core = native.CancelFlag()

    def cancel(self) -> None:
        """Cancel, from any thread, for good."""
        self._core.cancel()


class Reader(Lookups):
    """Lookups of what lies elsewhere, which may be closed and whose calls can be cancelled."""

    def __init__(self, name: str, dim: int, core: Any) -> None:
        self._name = name
        self._dim = dim
        self._core = core

    @property
    def name(self) -> str:
        """How the table is called in plans and messages."""
        return self._name

    @property
    def epoch(self) -> int:
        """The newest epoch that a lookup without one sees; 0 before the first."""
        return self._core.epoch()

    @property
    def capsule(self) -> Any:
        """A new PyCapsule "paramserver.RowSource.3" (csrc/row_source.h), which keeps what it reads from alive. Raises
        ClosedError."""
        self._expect_open()
        return super().capsule

    def _expect_open(self) -> None:
        """Raise ClosedError when what this reads from was closed."""

    def lookup(self, ids: np.ndarray | Sequence[int], out: np.ndarray | None = None,
               status: np.ndarray | None = None, epoch: int = 0, deadline_s: float | None = None,
               cancel: CancelFlag | None = None) -> np.ndarray:
        """As Table.lookup: rows of ids int64|uint64[n] into out[n, dim], float32 (a new one when None), float16 or
        bfloat16. Trouble is told by `status` uint8[n], never raised: such an id gets the default row. epoch: 0 is the
        newest. deadline_s: seconds from now. Raises IdError, ArrayError, OptionError, ClosedError."""
        self._expect_open()
        return self._lookup(ids, out, status, epoch, deadline_s, cancel._core if cancel else None)

    def lookup_pooled(self, ids: np.ndarray | Sequence[int], offsets: np.ndarray, mode: str = "mean",
                      weights: np.ndarray | None = None, out: np.ndarray | None = None,
                      status: np.ndarray | None = None, epoch: int = 0, deadline_s: float | None = None,
                      cancel: CancelFlag | None = None) -> np.ndarray:
        """As Table.lookup_pooled, with the same bits: bag b, ids[offsets[b]:offsets[b + 1]], pooled into out[b] in the
        order of its ids. Raises IdError, ArrayError, OptionError, BagError, ClosedError."""
        self._expect_open()
        return self._lookup_pooled(ids, offsets, mode, weights, out, status, epoch, deadline_s,
                                   cancel._core if cancel else None)
