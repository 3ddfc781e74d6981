"""Every kind of table that must keep the contract: the plain-Python reference, the native core on each set of
instructions that this CPU runs, and a table in shared memory, written by its owner and read through a mapping."""

import itertools
import os
import tempfile
from pathlib import Path
from typing import Any

from paramserver import Table
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
KINDS = ["reference", *INSTRUCTION_SETS, "mapped"]


def table_of(kind: str, dim: int, **options: Any) -> Any:
    """A table of one kind, with the options that all kinds take."""
    if kind == "reference":
        return ReferenceTable("t", dim, **options)
    if kind == "mapped":
        return SharedTable(dim, **options)
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
