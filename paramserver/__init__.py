"""The sharded sparse parameter server: embedding tables on CPU. See table.py, and csrc/row_source.h for C++ users."""

from paramserver.errors import CallerError, OperatingError, ParamServerError, ProgrammerError
from paramserver.status import RowStatus
from paramserver.table import Table, TableStats
from paramserver.tier import Tier, TierStats

__all__ = ["CallerError", "OperatingError", "ParamServerError", "ProgrammerError", "RowStatus", "Table", "TableStats",
           "Tier", "TierStats"]
