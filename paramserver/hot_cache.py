"""A cache of hot rows in front of a table that is far away (csrc/hot_cache.h)."""

from dataclasses import dataclass
from typing import Any

from paramserver.errors import OptionError
from paramserver.native_flight import native
from paramserver.reading import Reader

__all__ = ["HotCacheStats", "HotRowCache"]

#: Bytes of the smallest cache, and of the largest.
BYTES_MIN = 1 << 16
BYTES_MAX = 1 << 42


@dataclass(frozen=True)
class HotCacheStats:
    """What a cache has done so far, in ids, and its size."""

    hits: int  #: answered from the cache
    misses: int  #: asked from the table
    bypassed: int  #: passed through: the table has no epochs, or the call was late or cancelled
    inserted: int
    evicted: int  #: rows pushed out by others
    contended: int  #: rows not kept because another thread was writing there
    rows_max: int  #: rows that fit
    bytes: int  #: memory set aside, touched as it fills


class HotRowCache(Reader):
    """Rows that were answered from data are kept by (epoch, id), so a new epoch never shows an old row. Reads wait for
    nobody.

    table: anything with `name`, `dim` and a RowSource `capsule`, such as a RemoteTable. bytes_max: all of its memory,
    64 KiB to 4 TiB. kept: "f32", or "f16" or "bf16" for half the memory when the table's rows are such. row_age_max_s:
    rows older than this are asked for again, for tables with a TTL; 0: never. default_age_max_s: how long an unknown id
    is remembered as unknown; 0: not at all. Raises OptionError, MemoryExhausted.
    """

    def __init__(self, table: Any, bytes_max: int, *, kept: str = "f32", row_age_max_s: float = 0.0,
                 default_age_max_s: float = 0.0) -> None:
        if isinstance(bytes_max, bool) or not isinstance(bytes_max, int) or not BYTES_MIN <= bytes_max <= BYTES_MAX:
            raise OptionError(f"bytes_max is {bytes_max!r}, expected an integer from {BYTES_MIN} to {BYTES_MAX}")
        if kept not in ("f32", "f16", "bf16"):
            raise OptionError(f"kept is {kept!r}, expected 'f32', 'f16' or 'bf16'")
        core = native.HotRowCache(source=table.capsule, bytes_max=bytes_max, kept=("f32", "f16", "bf16").index(kept),
                                  row_age_max_ms=_ms("row_age_max_s", row_age_max_s),
                                  default_age_max_ms=_ms("default_age_max_s", default_age_max_s))
        super().__init__(table.name, table.dim, core)
        self._table = table

    def _expect_open(self) -> None:
        if isinstance(self._table, Reader):
            self._table._expect_open()

    def stats(self) -> HotCacheStats:
        """What it has done so far."""
        return HotCacheStats(**self._core.stats())


def _ms(name: str, seconds: float) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= 1e9:
        raise OptionError(f"{name} is {seconds!r}, expected seconds from 0 to 1e9")
    return -(-int(seconds * 1e6) // 1000)
