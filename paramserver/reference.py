"""ReferenceTable: what Table does, in plain Python. It is the contract's other half, and a fake for users' tests."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from paramserver import arrays, quantize
from paramserver.errors import BagError, EpochError
from paramserver.status import RowStatus

__all__ = ["ReferenceTable"]


@dataclass(frozen=True)
class _Entry:
    """What a delta made of an id: a row, an absent id (no row), or one that is not admitted yet."""

    sequence: int
    time_s: float
    row: np.ndarray | None = None
    pending: int = 0


class ReferenceTable:
    """Dicts of ids to rows, a whole one for each sequence, with Table's arguments, results and errors. Slow, not
    thread-safe, no capsule."""

    def __init__(self, name: str, dim: int, *, dtype: str = "f32", rows_hint: int = 0,
                 default_row: np.ndarray | Sequence[float] | None = None, huge_pages: bool = True,
                 base_sequence: int = 0, ttl_s: float = 0.0, base_time_s: float | None = None,
                 admit_after: int = 1, apply_rows_per_s: float = 0.0) -> None:
        arrays.check_options(dim, dtype, rows_hint)
        arrays.check_lifetime(base_sequence, ttl_s, admit_after, apply_rows_per_s)
        self.name = name
        self.dim = int(dim)
        self.dtype = dtype
        self._ttl_s = ttl_s
        self._base_time_s = arrays.as_time_s(base_time_s)
        self._admit_after = admit_after
        self._base = base_sequence
        self._states: dict[int, dict[int, _Entry]] = {base_sequence: {}}
        self._times: dict[int, float] = {base_sequence: 0}
        self._epochs: dict[int, int] = {}
        self._newest_epoch = 0
        self._takes_deltas = False
        row = arrays.as_default_row(default_row, dim)
        row = np.zeros(dim, np.float32) if row is None else row
        self._default = quantize.store_rows(row[None], dtype, "default_row")[0]

    @property
    def default_row(self) -> np.ndarray:
        """The row of unknown ids, as stored: float32[dim], a copy."""
        return self._loaded(self._default)

    @property
    def stored_row_bytes(self) -> int:
        """As Table.stored_row_bytes."""
        return self._default.nbytes

    @property
    def sequence(self) -> int:
        """As Table.sequence."""
        return max(self._states)

    def __len__(self) -> int:
        return sum(entry.row is not None for entry in self._at(0).values())

    def upsert(self, ids: np.ndarray | Sequence[int], rows: np.ndarray) -> int:
        """As Table.upsert."""
        ids = arrays.as_ids(ids)
        stored = quantize.store_rows(arrays.as_rows(rows, ids.size, self.dim), self.dtype)
        base = self._upsertable()
        before = len(base)
        time_s = self._base_time_s
        base.update({i: _Entry(self._base, time_s, row) for i, row in zip(ids.tolist(), stored.copy(), strict=True)})
        self._times[self._base] = time_s if base else 0
        return len(base) - before

    def delete(self, ids: np.ndarray | Sequence[int]) -> int:
        """As Table.delete."""
        ids = arrays.as_ids(ids)
        base = self._upsertable()
        return sum(base.pop(i, None) is not None for i in ids.tolist())

    def add_stored(self, ids: np.ndarray | Sequence[int], stored: np.ndarray,
                   times_s: np.ndarray | None = None) -> int:
        """As Table.add_stored, times kept as they are."""
        ids = arrays.as_ids(ids)
        stored = arrays.as_stored(stored, ids.size, self.stored_row_bytes)
        quantize.store_rows(quantize.load_rows(stored, self.dtype, self.dim), self.dtype)
        times_s = arrays.as_times(times_s, ids.size)
        times = [self._base_time_s] * ids.size if times_s is None else times_s.tolist()
        base = self._upsertable()
        before = len(base)
        base.update({i: _Entry(self._base, *one) for i, *one in zip(ids.tolist(), times, stored.copy(), strict=True)})
        self._times[self._base] = self._base_time_s if base else 0
        return len(base) - before

    def sweep(self, now_s: float | None = None) -> int:
        """As Table.sweep."""
        now_s = arrays.as_time_s(now_s)
        limit = min(now_s, self._times[self.sequence]) if self._admit_after > 1 else now_s
        newest = self._states[self.sequence]
        gone = {i: e for i, e in newest.items() if self._ttl_s and e.time_s + self._ttl_s <= limit}
        for state in self._states.values():
            for i, entry in gone.items():
                if state.get(i) is entry:
                    del state[i]
        return sum(entry.row is not None for entry in gone.values())

    def apply(self, sequence: int, ids: np.ndarray | Sequence[int], rows: np.ndarray,
              deletes: np.ndarray | Sequence[int] = (), time_s: float | None = None, after: int | None = None) -> None:
        """As Table.apply."""
        ids = arrays.as_ids(ids)
        stored = quantize.store_rows(arrays.as_rows(rows, ids.size, self.dim), self.dtype).copy()
        deletes = arrays.as_ids(deletes)
        sequence = arrays.check_epoch("sequence", sequence)
        after = sequence - 1 if after is None else arrays.check_epoch("after", after)
        if after != self.sequence or sequence <= after:
            raise EpochError(f"delta {sequence} builds on sequence {after}, but the table is at {self.sequence}: "
                             f"expected sequence {self.sequence + 1}")
        time_s = max(arrays.as_time_s(time_s), self._times[after])
        state = dict(self._states[after])
        for i, row in zip(ids.tolist(), stored, strict=True):
            state[i] = self._written(state.get(i), _Entry(sequence, time_s, row))
        for i in deletes.tolist():
            state.pop(i, None)
        self._states[sequence], self._times[sequence], self._takes_deltas = state, time_s, True

    def publish(self, epoch: int, sequence: int) -> None:
        """As Table.publish."""
        epoch, sequence = arrays.check_epoch("epoch", epoch), arrays.check_epoch("sequence", sequence)
        self._held(sequence)
        if self._epochs.get(epoch) == sequence:
            return
        if epoch <= self._newest_epoch:
            raise EpochError(f"epoch {epoch} cannot be published after epoch {self._newest_epoch}: expected a larger "
                             "number")
        self._epochs[epoch] = sequence
        self._newest_epoch, self._takes_deltas = epoch, True
        self._forget()

    def retire(self, epoch: int) -> None:
        """As Table.retire."""
        epoch = arrays.check_epoch("epoch", epoch)
        if epoch not in self._epochs:
            raise self._unknown(epoch)
        if epoch == self._newest_epoch:
            raise EpochError(f"epoch {epoch} is the newest, which lookups without an epoch read: publish another first")
        del self._epochs[epoch]
        self._forget()

    def revert(self, sequence: int) -> None:
        """As Table.revert."""
        sequence = arrays.check_epoch("sequence", sequence)
        self._held(sequence)
        for epoch, shown in self._epochs.items():
            if shown > sequence:
                raise EpochError(f"cannot revert to sequence {sequence}: epoch {epoch} still shows sequence {shown}")
        self._states = {one: state for one, state in self._states.items() if one <= sequence}

    def epochs(self) -> list[tuple[int, int]]:
        """As Table.epochs."""
        return sorted(self._epochs.items())

    def lookup(self, ids: np.ndarray | Sequence[int], out: np.ndarray | None = None,
               status: np.ndarray | None = None, epoch: int = 0, deadline_s: float | None = None) -> np.ndarray:
        """As Table.lookup; a deadline that has passed answers every id."""
        ids = arrays.as_ids(ids)
        out = arrays.out_rows(out, ids.size, self.dim)
        status = arrays.out_status(status, ids.size)
        for i, row in enumerate(self._found(ids, status, epoch, deadline_s)):
            out[i] = row
        return out

    def lookup_pooled(self, ids: np.ndarray | Sequence[int], offsets: np.ndarray, mode: str = "mean",
                      weights: np.ndarray | None = None, out: np.ndarray | None = None,
                      status: np.ndarray | None = None, epoch: int = 0,
                      deadline_s: float | None = None) -> np.ndarray:
        """As Table.lookup_pooled."""
        ids = arrays.as_ids(ids)
        offsets = arrays.as_offsets(offsets)
        arrays.pooling(mode)
        weights = arrays.as_weights(weights, ids.size)
        out = arrays.out_rows(out, offsets.size - 1, self.dim)
        status = arrays.out_status(status, ids.size)
        if offsets[0] != 0 or np.any(offsets[1:] < offsets[:-1]) or offsets[-1] != ids.size:
            raise BagError(f"offsets {offsets.tolist()} do not cut {ids.size} ids into bags")
        rows = self._found(ids, status, epoch, deadline_s)
        for b in range(len(out)):
            first, end = int(offsets[b]), int(offsets[b + 1])
            out[b] = _pool(rows[first:end], None if weights is None else weights[first:end], mode, self.dim)
        return out

    def lookup_stored(self, ids: np.ndarray | Sequence[int], epoch: int = 0,
                      status: np.ndarray | None = None) -> np.ndarray:
        """As Table.lookup_stored."""
        ids = arrays.as_ids(ids)
        status = arrays.out_status(status, ids.size)
        state = self._at(epoch)
        rows = [self._row(state.get(i), status, k) for k, i in enumerate(ids.tolist())]
        return np.array(rows, np.uint8).reshape(ids.size, self.stored_row_bytes)

    def ids(self, epoch: int = 0) -> np.ndarray:
        """As Table.ids."""
        return np.array(sorted(i for i, entry in self._at(epoch).items() if self._live(entry)), np.int64)

    def row_times(self, ids: np.ndarray | Sequence[int], epoch: int = 0) -> np.ndarray | None:
        """As Table.row_times."""
        state = self._at(epoch)
        entries = [state.get(i) for i in arrays.as_ids(ids).tolist()]
        times = [0 if entry is None or entry.row is None else int(entry.time_s) for entry in entries]
        return np.array(times, np.uint32) if self._ttl_s else None

    def why(self, id: int, epoch: int = 0) -> dict[str, Any]:
        """As Table.why; nothing is said of the place."""
        entry = self._at(epoch).get(int(arrays.as_ids([id])[0]))
        times = {"time_s": entry.time_s, "expires_s": entry.time_s + self._ttl_s} if entry and self._ttl_s else {}
        return {"kind": "absent" if entry is None else "pending" if entry.row is None else "ram", "place": None,
                "sequence": entry and entry.sequence, "pending": entry.pending if entry else 0,
                "time_s": None, "expires_s": None} | times

    def save(self, path: str | Path) -> None:
        """As Table.save."""
        from paramserver import parquet

        parquet.save(self, path)

    @classmethod
    def load(cls, path: str | Path, name: str | None = None, dtype: str | None = None) -> Self:
        """As Table.load."""
        from paramserver import parquet

        return parquet.load(cls, path, name, dtype)

    def _upsertable(self) -> dict[int, _Entry]:
        if self._takes_deltas:
            raise EpochError("this table takes deltas: use apply instead of upsert and delete")
        return self._states[self._base]

    def _written(self, old: _Entry | None, new: _Entry) -> _Entry:
        if old is not None and self._ttl_s and old.time_s + self._ttl_s <= new.time_s:
            old = None
        if old is not None and old.row is not None:
            return new
        if old is not None and old.sequence == new.sequence:
            return old
        deltas = 1 + (old.pending if old else 0)
        return new if deltas >= self._admit_after else _Entry(new.sequence, new.time_s, None, deltas)

    def _held(self, sequence: int) -> None:
        if sequence not in self._states:
            raise EpochError(f"the table does not hold sequence {sequence}: it holds {sorted(self._states)}")

    def _unknown(self, epoch: int) -> EpochError:
        return EpochError(f"the table does not hold epoch {epoch}: it holds {sorted(self._epochs) or 'none'}")

    def _at(self, epoch: int) -> dict[int, _Entry]:
        epoch = arrays.check_epoch("epoch", epoch) or (max(self._epochs) if self._epochs else 0)
        if epoch and epoch not in self._epochs:
            raise self._unknown(epoch)
        return self._states[self._epochs[epoch] if epoch else self._base]

    def _forget(self) -> None:
        oldest = min(self._epochs.values())
        self._states = {one: state for one, state in self._states.items() if one >= oldest}

    def _live(self, entry: _Entry | None) -> bool:
        return entry is not None and entry.row is not None and not self._expired(entry)

    def _expired(self, entry: _Entry) -> bool:
        return self._ttl_s > 0 and entry.time_s + self._ttl_s <= time.time()

    def _found(self, ids: np.ndarray, status: np.ndarray | None, epoch: int,
               deadline_s: float | None) -> list[np.ndarray]:
        late = arrays.as_deadline_ns(deadline_s) <= time.monotonic_ns()
        epoch = arrays.check_epoch("epoch", epoch)
        lost = epoch != 0 and epoch not in self._epochs
        if late or lost:
            if status is not None:
                status[:] = RowStatus.DEADLINE if late else RowStatus.UNAVAILABLE
            return [self._loaded(self._default)] * ids.size
        state = self._at(epoch)
        return [self._loaded(self._row(state.get(i), status, k)) for k, i in enumerate(ids.tolist())]

    def _row(self, entry: _Entry | None, status: np.ndarray | None, at: int) -> np.ndarray:
        hit = self._live(entry)
        if status is not None:
            waits = entry is not None and entry.pending and not self._expired(entry)
            status[at] = RowStatus.HIT if hit else RowStatus.FILTERED if waits else RowStatus.DEFAULT
        return entry.row if hit else self._default

    def _loaded(self, stored: np.ndarray) -> np.ndarray:
        return quantize.load_rows(stored[None], self.dtype, self.dim)[0]


def _pool(rows: list[np.ndarray], weights: np.ndarray | None, mode: str, dim: int) -> np.ndarray:
    total = np.zeros(dim, np.float32)
    divisor = np.float32(0)
    for i, row in enumerate(rows):
        weight = np.float32(1 if weights is None else weights[i])
        total = total + weight * row
        divisor = divisor + (weight * weight if mode == "sqrtn" else weight)
    if not rows or mode == "sum":
        return total
    divisor = np.sqrt(divisor) if mode == "sqrtn" else divisor
    return total / divisor if divisor != 0 else np.zeros(dim, np.float32)
