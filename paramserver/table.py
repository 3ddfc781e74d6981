"""The embedding table: a thin shell that checks its arguments and hands them to the native core (csrc/table.h)."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self

import numpy as np

from paramserver import _core, arrays
from paramserver.errors import ArrayError, OptionError
from paramserver.lookups import StoredLookups
from paramserver.status import RowStatus
from paramserver.tier import Tier, TierStats

__all__ = ["Table", "TableStats"]

_KINDS = ("absent", "ram", "base", "spill")


@dataclass(frozen=True)
class TableStats:
    """A table's size at one moment, and what was asked of it."""

    rows: int  #: live ids after the newest delta applied, published or not
    rows_retired: int  #: superseded rows waiting until no reader can hold them
    rows_pending: int  #: ids that fewer than `admit_after` deltas have contained
    bytes_index: int  #: memory of the index, and of old ones that a reader might still hold
    bytes_rows: int  #: memory of rows as far as ever used, and of the list of free ones
    bytes_undo: int  #: memory of what older epochs need beside it
    bytes_peak: int  #: the most that all of it ever was, old and new index while growing included
    huge_pages: bool  #: the kernel accepted the advice to use 2 MiB pages for index and rows
    instruction_set: str  #: "scalar", "avx2" or "avx512"
    lookups: int  #: calls of lookup and lookup_pooled
    statuses: dict[str, int]  #: ids looked up, by the name of their RowStatus

    @property
    def bytes(self) -> int:
        """Memory of index, rows and undo indexes, as far as ever used."""
        return self.bytes_index + self.bytes_rows + self.bytes_undo


class Table(StoredLookups):
    """Rows of `dim` numbers by 64-bit id, in RAM. Any thread may read beside a writer; a reader sees each row whole,
    old or new, and never waits. Writers take turns. Calls release the GIL.

    A table is filled with upsert and delete; from its first apply or publish on it takes deltas, one sequence after
    another, which nobody sees until publish() shows them as an epoch.

    name: how the table is called in plans and messages. dim: 1 to 4096. dtype: how rows are stored, "f32", "f16",
    "bf16", or "int8" with a scale and a bias in each row.
    rows_hint: rows to make room for at once, so that a bulk load never grows the index. default_row: float32[dim], the
    row of unknown ids, zeros when None; it is rounded to the table's dtype. huge_pages: ask the kernel for 2 MiB pages.
    instruction_set: "scalar", "avx2" or "avx512"; None takes the environment's PARAMSERVER_ISA, else the CPU's widest:
    results are the same bits with each. base_sequence: the sequence that the base state is; the first delta's is one
    more. ttl_s: a row expires this many seconds after the time of the delta that wrote it, and is then unknown; 0:
    never. base_time_s: when the base state was written, seconds since 1970, for ttl_s; None: now. admit_after: an id
    that is new to the table is stored by the k-th delta that contains it, and `filtered` before. apply_rows_per_s: the
    fastest that a delta is applied, so that lookups keep the memory's bandwidth; 0: as fast as it goes.
    shared: a file, best in /dev/shm, that the table lies in, so that other processes of the host can read it with
    paramserver.mapped.MappedTable; space is taken whole, segment by segment. It is gone when the table is. None: memory
    of this process alone.
    tier: keeps RAM within a budget, and rows that are not asked for in files, which no other process can read; None:
    all rows in RAM.
    Raises OptionError, ArrayError, RowValueError, MemoryExhausted, InstructionSetError; with `shared`, StoreLocked when
    another process owns the file, and StoreError when it cannot be made.
    """

    def __init__(self, name: str, dim: int, *, dtype: str = "f32", rows_hint: int = 0,
                 default_row: np.ndarray | Sequence[float] | None = None, huge_pages: bool = True,
                 instruction_set: str | None = None, base_sequence: int = 0, ttl_s: float = 0.0,
                 base_time_s: float | None = None, admit_after: int = 1, apply_rows_per_s: float = 0.0,
                 shared: str | PathLike[str] | None = None, tier: Tier | None = None) -> None:
        arrays.check_options(dim, dtype, rows_hint)
        arrays.check_lifetime(base_sequence, ttl_s, admit_after, apply_rows_per_s)
        self._name = name
        self._dim = int(dim)
        self._dtype = dtype
        self._ttl_s = float(ttl_s)
        row = arrays.as_default_row(default_row, dim)
        if tier is not None and shared is not None:
            raise OptionError("shared and tier exclude each other: other processes cannot read a tier's files")
        stored, file = arrays.DTYPES.index(dtype), None if shared is None else fspath(shared)
        self._core = _core.Table(self._dim, stored, int(rows_hint), row, huge_pages, instruction_set,
                                 int(base_sequence), float(ttl_s), arrays.as_time_s(base_time_s), int(admit_after),
                                 float(apply_rows_per_s), file, name,
                                 None if tier is None else tier.native())
        self._tiered = tier is not None

    @property
    def name(self) -> str:
        """How the table is called in plans and messages."""
        return self._name

    @property
    def dtype(self) -> str:
        """How rows are stored: "f32", "f16", "bf16" or "int8"."""
        return self._dtype

    @property
    def ttl_s(self) -> float:
        """Seconds after which a row expires; 0: never."""
        return self._ttl_s

    @property
    def native(self) -> Any:
        """The native table (csrc/table.h), for what fills tables from files."""
        return self._core

    @property
    def sequence(self) -> int:
        """The sequence of the newest delta applied, base_sequence before the first."""
        return self._core.sequence()

    def __len__(self) -> int:
        """Live ids that a lookup without an epoch sees; those that expired count until sweep() frees them."""
        return len(self._core)

    def __repr__(self) -> str:
        return f"Table({self._name!r}, dim={self._dim}, dtype={self._dtype!r}, rows={len(self)})"

    def upsert(self, ids: np.ndarray | Sequence[int], rows: np.ndarray) -> int:
        """Insert or replace rows float32[n, dim] of ids int64|uint64[n], each row at once for every reader; the last of
        equal ids wins. Returns how many ids were new. Raises IdError, ArrayError, RowValueError (NaN, infinity, too
        large for the dtype) before anything is written, EpochError once the table takes deltas, and MemoryExhausted
        with a part written."""
        ids = arrays.as_ids(ids)
        return self._core.upsert(ids, arrays.as_rows(rows, ids.size, self._dim))

    def delete(self, ids: np.ndarray | Sequence[int]) -> int:
        """Forget ids int64|uint64[n]; their memory is used again. Returns how many were here. Raises IdError, and
        EpochError once the table takes deltas."""
        return self._core.delete(arrays.as_ids(ids))

    def add_stored(self, ids: np.ndarray | Sequence[int], stored: np.ndarray,
                   times_s: np.ndarray | None = None) -> int:
        """As upsert, of rows uint8[n, stored_row_bytes] as lookup_stored gives them: nothing is rounded again. times_s:
        uint32[n], when each row was written, seconds since 1970, for ttl_s (kept to a 63rd of it). Quickest in
        the order of a snapshot. Returns how many ids were new. Raises as upsert."""
        ids = arrays.as_ids(ids)
        stored = arrays.as_stored(stored, ids.size, self.stored_row_bytes)
        return self._core.add_rows(ids, stored, arrays.as_times(times_s, ids.size))

    def sweep(self, now_s: float | None = None) -> int:
        """Free the rows that have expired, of a table with ttl_s; returns how many. A lookup does not see them either
        way. now_s: seconds since 1970, None: now. With admit_after, rows wait until the newest delta's time has passed
        them too, so that replicas that sweep at other times still agree."""
        return self._core.sweep(arrays.as_time_s(now_s))

    def apply(self, sequence: int, ids: np.ndarray | Sequence[int], rows: np.ndarray,
              deletes: np.ndarray | Sequence[int] = (), time_s: float | None = None,
              after: int | None = None) -> None:
        """Apply one delta, all or nothing: rows float32[n, dim] of ids int64|uint64[n], the last of equal ids winning,
        then deletes int64|uint64[m]. Nobody sees it before an epoch of this sequence, or of a later one, is published.

        sequence: one more than the table's. after: what the delta builds on when the sequences between were abandoned;
        it must be the table's sequence. time_s: when it was written, seconds since 1970, None: now; rows never count as
        older than those of the delta before. Raises EpochError (naming what is expected), IdError, ArrayError,
        RowValueError, MemoryExhausted; the table is then as it was.
        """
        ids = arrays.as_ids(ids)
        rows = arrays.as_rows(rows, ids.size, self._dim)
        sequence = arrays.check_epoch("sequence", sequence)
        after = sequence - 1 if after is None else arrays.check_epoch("after", after)
        self._core.apply(sequence, after, ids, rows, arrays.as_ids(deletes), arrays.as_time_s(time_s))

    def publish(self, epoch: int, sequence: int) -> None:
        """Show the state after `sequence` as `epoch`, which must be newer than all before; from now on it is what a
        lookup without an epoch sees. An older sequence that an epoch still holds is a rollback. The same epoch and
        sequence again change nothing. Raises EpochError."""
        self._core.publish(arrays.check_epoch("epoch", epoch), arrays.check_epoch("sequence", sequence))

    def retire(self, epoch: int) -> None:
        """Let go of an epoch that is not the newest; what only it could see is freed. Raises EpochError."""
        self._core.retire(arrays.check_epoch("epoch", epoch))

    def revert(self, sequence: int) -> None:
        """Undo the deltas after `sequence`, none of which an epoch may show: the table's sequence is then this one.
        Waits for lookups that run. Raises EpochError."""
        self._core.revert(arrays.check_epoch("sequence", sequence))

    def ids(self, epoch: int = 0) -> np.ndarray:
        """The live ids at an epoch, int64[n], ascending: a copy of one moment. Raises EpochError."""
        return self._core.ids(arrays.check_epoch("epoch", epoch))

    def row_times(self, ids: np.ndarray | Sequence[int], epoch: int = 0) -> np.ndarray | None:
        """When the row of each id int64|uint64[n] was written, uint32[n], seconds since 1970, 0 for ids that have none;
        None for a table without ttl_s. Raises IdError, EpochError."""
        ids = arrays.as_ids(ids)
        if not self._ttl_s:
            return None
        times = np.empty(ids.size, np.uint32)
        _core.row_times(self._core, ids, arrays.check_epoch("epoch", epoch), times)
        return times

    def why(self, id: int, epoch: int = 0) -> dict[str, Any]:
        """What is known of one id at an epoch, for people who ask why a lookup answered as it did:

        kind: "ram", "base" or "spill" (where its row lies), "pending" or "absent"; place: the row or slot number;
        sequence: of the delta that wrote this, base_sequence for the base state, None when nothing is known of it;
        pending: how many deltas contained an id that is not admitted yet; time_s and expires_s: seconds since 1970,
        None for a table without ttl_s. Raises IdError, EpochError.
        """
        epoch = arrays.check_epoch("epoch", epoch)
        kind, place, sequence, pending, time_s, expires_s = self._core.why(int(arrays.as_ids([id])[0]), epoch)
        known = kind != 0 or pending != 0
        return {
            "kind": "pending" if pending else _KINDS[kind],
            "place": place if kind else None,
            "sequence": sequence if known else None,
            "pending": pending,
            "time_s": time_s if known and expires_s else None,
            "expires_s": expires_s if known and expires_s else None,
        }

    def add_base(self, ids: np.ndarray | Sequence[int], first_slot: int = 0,
                 times_s: np.ndarray | None = None) -> None:
        """Take base rows without reading them: ids[i] lies in slot first_slot + i of the tier's base file, and was
        written at times_s[i] (uint32[n], seconds since 1970; None: with the base). Ids must not be in the table.
        Raises IdError, ArrayError, OptionError without a tier, EpochError once the table takes deltas."""
        ids = arrays.as_ids(ids)
        if times_s is not None and (times_s.dtype != np.uint32 or times_s.shape != ids.shape):
            raise ArrayError(f"times_s is {times_s.dtype}{list(times_s.shape)}, expected uint32[{ids.size}]")
        _core.add_base(self._core, ids, first_slot, times_s)

    def maintain(self) -> None:
        """Move rows that lookups asked for into RAM now, as the tier's keeper does by itself, and let go of what
        nobody needs. Nothing without a tier."""
        _core.maintain(self._core)

    def tier_stats(self) -> TierStats | None:
        """What the tier has done and holds; None for a table that is all in RAM."""
        return TierStats.of(self._core) if self._tiered else None

    def stats(self) -> TableStats:
        """The table's size now, and what was asked of it."""
        *rest, statuses = self._core.stats()
        return TableStats(*rest, {one.name.lower(): statuses[one] for one in RowStatus})

    def save(self, path: str | Path) -> None:
        """Write the table to a Parquet file (see paramserver.parquet.save), which appears whole or not at all."""
        from paramserver import parquet

        parquet.save(self, path)

    @classmethod
    def load(cls, path: str | Path, name: str | None = None, dtype: str | None = None) -> Self:
        """Read a table from a Parquet file (see paramserver.parquet.load). name: the file's stem when None; dtype: what
        the file says when None."""
        from paramserver import parquet

        return parquet.load(cls, path, name, dtype)
