"""What rows cost in memory and on disk, and how many hosts hold a set of tables.

The figures are those of the store: a row of RAM is its stored bytes without padding beyond 4 bytes; an id costs a slot
of 16 bytes in an index that is between 0.68 and 0.85 full; a cold row takes a slot in a file of 4096-byte pages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["DTYPES", "Budget", "Sizing", "disk_bytes", "hosts_for", "index_bytes", "parse_bytes", "row_bytes",
           "show_bytes"]

#: How rows may be stored, and the bytes of one number.
DTYPES = {"f32": 4, "f16": 2, "bf16": 2, "int8": 1}
INDEX_SLOT_BYTES = 16
#: The share of its slots that an index has taken after a load with a known number of rows.
INDEX_LOAD = 0.7
PAGE_BYTES = 4096
#: What a tiered table keeps beside each row that it holds in RAM.
HOT_ROW_BYTES = 41
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


@dataclass(frozen=True)
class Sizing:
    """One table: `rows` of `dim` numbers stored as `dtype`."""

    name: str
    rows: int
    dim: int
    dtype: str

    @property
    def payload_bytes(self) -> int:
        """The stored rows alone."""
        return self.rows * row_bytes(self.dtype, self.dim)

    @property
    def ram_bytes(self) -> int:
        """Everything in RAM: rows and index."""
        return self.payload_bytes + index_bytes(self.rows)

    def hot_bytes(self, hot_rows: float) -> int:
        """The budget (`ram_bytes_max`) with room for `hot_rows` rows; a table that is all in RAM needs no tier."""
        if hot_rows >= self.rows:
            return self.payload_bytes
        return math.ceil(hot_rows) * (row_bytes(self.dtype, self.dim) + HOT_ROW_BYTES)

    def rows_in(self, ram_bytes_max: int) -> int:
        """The rows that a budget has room for."""
        return min(self.rows, ram_bytes_max // (row_bytes(self.dtype, self.dim) + HOT_ROW_BYTES))

    def tiered_bytes(self, hot_rows: float) -> int:
        """RAM of a table with room for `hot_rows` rows: the index holds every id."""
        return index_bytes(self.rows) + self.hot_bytes(hot_rows)


@dataclass(frozen=True)
class Budget:
    """What each host gives to tables: `ram_bytes` of it, of which `ram_share` may be filled (the rest is for undo
    indexes, growth and the process), `replicas` copies of every shard."""

    ram_bytes: int
    ram_share: float = 0.8
    replicas: int = 2


def row_bytes(dtype: str, dim: int) -> int:
    """Bytes of one stored row; int8 rows carry a float32 scale and a float32 bias. A multiple of 4."""
    plain = DTYPES[dtype] * dim + (8 if dtype == "int8" else 0)
    return (plain + 3) // 4 * 4


def index_bytes(rows: int) -> int:
    """Bytes of an index of `rows` ids: 22.9 a row."""
    return math.ceil(rows * INDEX_SLOT_BYTES / INDEX_LOAD)


def disk_bytes(sizing: Sizing) -> int:
    """Bytes of the snapshot that cold rows are read from: ids, and slots that do not straddle pages."""
    slot = row_bytes(sizing.dtype, sizing.dim)
    slots_per_page = PAGE_BYTES // slot
    pages = (math.ceil(sizing.rows / slots_per_page) if slots_per_page
             else sizing.rows * math.ceil(slot / PAGE_BYTES))
    return sizing.rows * 8 + pages * PAGE_BYTES


def hosts_for(ram_bytes: float, budget: Budget) -> tuple[int, int]:
    """(shards, hosts) that hold `ram_bytes`, each shard on `replicas` hosts."""
    shards = max(1, math.ceil(ram_bytes / (budget.ram_bytes * budget.ram_share)))
    return shards, shards * budget.replicas


def parse_bytes(text: str | int) -> int:
    """A number of bytes such as 4096, "64GiB", "1.5 GB" or "800M". Raises ValueError naming what was expected."""
    if isinstance(text, int):
        return text
    number, unit = text.strip().rstrip("B").strip(), ""
    while number and not number[-1].isdigit():
        number, unit = number[:-1], number[-1] + unit
    try:
        value = float(number) * _UNITS[unit.strip()]
    except (ValueError, KeyError) as error:
        raise ValueError(f"got {text!r}; expected a number of bytes such as 4096, 64GiB or 1.5GB") from error
    return int(value)


def show_bytes(value: float) -> str:
    """A number of bytes for a reader: 3.2 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB" if value < 100 else f"{value:,.0f} TiB"
