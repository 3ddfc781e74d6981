"""Every kind of table that must keep the contract: the plain-Python reference, the native core on each set of
instructions that this CPU runs, a table in shared memory, written by its owner and read through a mapping, and a tiered
table with next to no RAM."""

import itertools
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from paramserver import RowStatus, Table, Tier
from paramserver.errors import InstructionSetError
from paramserver.mapped import MappedTable
from paramserver.reference import ReferenceTable


def instruction_sets_here() -> list[str]:
    """The instruction sets that this CPU runs; those it lacks are left out of the parameters, not skipped."""
    here = []
    for name in ("scalar", "avx2", "avx512"):
        try:
            Table("probe", 1, instruction_set=name)
        except InstructionSetError:
            continue
        here.append(name)
    return here


INSTRUCTION_SETS = instruction_sets_here()
KINDS = ["reference", *INSTRUCTION_SETS, "mapped", "tiered"]


class ColdTable(Table):
    """A table with RAM for a row or a few, the others in files. COLD is told as HIT: both are answers from data, and
    which of them it is must make no difference to the contract."""

    def __init__(self, name: str, dim: int, **options: Any) -> None:
        ram_bytes_max = 300 + (8 * dim if isinstance(dim, int) else 0)
        tier = Tier(ram_bytes_max=ram_bytes_max, directory=tempfile.gettempdir(), proposals_max=16)
        super().__init__(name, dim, tier=tier, **options)

    def lookup(self, ids: Any, *args: Any, **kwargs: Any) -> np.ndarray:
        return told_as_hits(super().lookup, 2, ids, args, kwargs)

    def lookup_pooled(self, ids: Any, *args: Any, **kwargs: Any) -> np.ndarray:
        return told_as_hits(super().lookup_pooled, 5, ids, args, kwargs)

    def lookup_stored(self, ids: Any, *args: Any, **kwargs: Any) -> np.ndarray:
        return told_as_hits(super().lookup_stored, 2, ids, args, kwargs)


def told_as_hits(call: Any, place: int, ids: Any, args: tuple, kwargs: dict) -> np.ndarray:
    """The result of a lookup whose `status`, the argument at `place` when ids are at 0, says HIT for COLD."""
    result = call(ids, *args, **kwargs)
    status = kwargs.get("status", args[place - 1] if len(args) >= place else None)
    if status is not None:
        status[status == RowStatus.COLD] = RowStatus.HIT
    return result


def table_of(kind: str, dim: int, **options: Any) -> Any:
    """A table of one kind, with the options that all kinds take."""
    if kind == "reference":
        return ReferenceTable("t", dim, **options)
    if kind == "mapped":
        return SharedTable(dim, **options)
    if kind == "tiered":
        return ColdTable("t", dim, **options)
    return Table("t", dim, instruction_set=kind, **options)


class SharedTable:
    """A Table in shared memory, whose lookups go through a MappedTable of its file."""

    _names = itertools.count()

    def __init__(self, dim: int, **options: Any) -> None:
        folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
        path = Path(folder) / f"lambda_svc_contract_{os.getpid()}_{next(self._names)}"
        self._owner = Table("t", dim, shared=path, **options)
        mapped = MappedTable(path)
        self.lookup, self.lookup_pooled = mapped.lookup, mapped.lookup_pooled
        self.lookup_stored = mapped.lookup_stored

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owner, name)

    def __len__(self) -> int:
        return len(self._owner)
