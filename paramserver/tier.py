"""Tiers: how much of a table lies in RAM, and where the rest does (csrc/tier.h)."""

import os
from dataclasses import dataclass, fields
from pathlib import Path

from paramserver import _core
from paramserver.errors import OptionError

__all__ = ["Tier", "TierStats"]

_LIMITS = {"ram_bytes_max": (1, 2**62), "cold_reads_max": (0, 2**40), "spill_bytes_max": (0, 2**62),
           "depth_max": (1, 4096), "proposals_max": (2, 2**20), "base_offset_bytes": (0, 2**62)}


@dataclass(frozen=True)
class Tier:
    """How a table's rows are kept when RAM has no room for all of them. Rows that are asked for often lie in RAM, the
    others in files: in a base file that never changes, or, when deltas wrote them, in a spill file, which has no name
    and goes with the process. RAM is for newest rows: those that deltas supersede while older epochs are held make way
    for them, and are read from a file. Raises OptionError."""

    ram_bytes_max: int  #: of rows in RAM, with what is kept for each; index and undo indexes come on top
    directory: str | Path  #: of the spill file; a local disk
    cold_reads_max: int = 100_000  #: cold rows that one lookup reads; ids beyond it are answered DEADLINE
    direct: bool = True  #: read and write past the page cache where the file system can
    spill_bytes_max: int = 0  #: of the spill file; 0: as the file system allows
    depth_max: int = 128  #: reads in flight of one lookup
    proposals_max: int = 8192  #: rows just read that wait for the keeper; more are dropped and counted
    keeper: bool = True  #: a thread moves rows into RAM; False: only Table.maintain() does
    base_path: str | Path | None = None  #: file of base rows, such as a snapshot
    base_offset_bytes: int = 0  #: where its slots begin, a multiple of 4096

    def __post_init__(self) -> None:
        for name, (low, high) in _LIMITS.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise OptionError(f"{name} is {value!r}, expected a whole number of {low} to {high}")
        if self.base_offset_bytes % 4096:
            raise OptionError(f"base_offset_bytes is {self.base_offset_bytes}, expected a multiple of 4096")

    def native(self) -> _core.TierOptions:
        """The options as the native core takes them."""
        base = "" if self.base_path is None else os.fspath(self.base_path)
        return _core.TierOptions(self.ram_bytes_max, os.fspath(self.directory), self.spill_bytes_max,
                                 self.cold_reads_max, self.depth_max, self.proposals_max, self.direct, self.keeper,
                                 base, self.base_offset_bytes)


@dataclass(frozen=True)
class TierStats:
    """What a tier has done since its start, and what it holds now."""

    rows_ram: int  #: newest rows that lie in RAM
    rows_ram_max: int  #: rows that the budget has room for
    rows_cold_read: int  #: cold rows delivered to lookups
    reads: int  #: reads asked of the system; several rows of one page are one
    read_bytes: int  #: bytes of those reads
    reads_failed: int  #: rows that the system could not read: answered UNAVAILABLE
    reads_mismatched: int  #: slots that held another id's row: answered UNAVAILABLE
    reads_over: int  #: rows beyond cold_reads_max or the deadline: answered DEADLINE
    reads_in_flight: int  #: at this moment
    proposed: int  #: cold rows that lookups proposed for RAM
    dropped: int  #: proposals that found the queue full
    promoted: int  #: rows moved into RAM
    rejected: int  #: candidates asked for less often than the rows that would have had to go
    demoted_clean: int  #: rows moved out that lay in a file already
    demoted_dirty: int  #: rows moved out that were written to the spill file first
    spill_rows: int  #: rows in the spill file
    spill_bytes: int  #: of the spill file
    spill_bytes_written: int  #: since the start
    spill_writes_refused: int  #: for want of space
    spill_direct: bool  #: the spill file is read and written past the page cache
    base_direct: bool  #: the base file is read past the page cache
    engine: str  #: "io_uring" or "threads"

    @classmethod
    def of(cls, core: _core.Table) -> "TierStats":
        """Those of a native table with a tier."""
        told = _core.tier_stats(core)
        return cls(**{field.name: told[field.name] for field in fields(cls)})
