"""What became of one id in a lookup. The numbers are those of csrc/row_source.h."""

import enum

__all__ = ["RowStatus"]


class RowStatus(enum.IntEnum):
    """One id's answer, as written into a `status` array (uint8). Only HIT and COLD rows are the id's own."""

    HIT = 0  #: answered from RAM
    COLD = 1  #: answered from the cold tier
    DEFAULT = 2  #: unknown id: the table's default row
    FILTERED = 3  #: known but not admitted yet: the default row
    UNAVAILABLE = 4  #: could not be asked: the default row, and it is not a miss
    DEADLINE = 5  #: not read in time: the default row
