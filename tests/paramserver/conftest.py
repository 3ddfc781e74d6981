"""The tables that the contract suite runs on, as fixtures."""

from collections.abc import Callable
from typing import Any

import pytest
from paramserver.arrays import DTYPES

from tests.paramserver.kinds import INSTRUCTION_SETS, KINDS, table_of


@pytest.fixture(params=[f"{kind}-{dtype}" for kind in KINDS for dtype in DTYPES])
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """make(dim, **options) gives a table of the parameter's kind and stored type."""
    kind, dtype = request.param.split("-")
    return lambda dim, **options: table_of(kind, dim, **{"dtype": dtype, **options})


@pytest.fixture(params=INSTRUCTION_SETS)
def native(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """native(dim, **options) gives a native table on one instruction set."""
    return lambda dim, **options: table_of(request.param, dim, **options)
