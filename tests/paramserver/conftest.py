"""Every kind of table that must keep the contract: the plain-Python reference, and the native core per instruction set
and stored type."""

from collections.abc import Callable
from typing import Any

import pytest
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


@pytest.fixture(params=[f"{kind}-{dtype}" for kind in KINDS for dtype in ("f32", "f16")])
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """make(dim, **options) gives a table of the parameter's kind and stored type."""
    kind, dtype = request.param.split("-")
    return lambda dim, **options: table_of(kind, dim, **{"dtype": dtype, **options})


@pytest.fixture(params=INSTRUCTION_SETS)
def native(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """native(dim, **options) gives a native table on one instruction set."""
    return lambda dim, **options: table_of(request.param, dim, **options)
