"""Every kind of table that must keep the contract: the plain-Python reference, and the native core on each set of
instructions that this CPU runs."""

from typing import Any

from paramserver import Table
from paramserver.errors import InstructionSetError
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
KINDS = ["reference", *INSTRUCTION_SETS]


def table_of(kind: str, dim: int, **options: Any) -> Any:
    """A table of one kind, with the options that all kinds take."""
    if kind == "reference":
        return ReferenceTable("t", dim, **options)
    return Table("t", dim, instruction_set=kind, **options)
