"""Embedding lookups against the ceiling of this machine's memory.

100,000 uniform ids, fresh each round, in a table of 16 million rows of 32 float32 (2 million with --quick), one thread,
variants in turn in one process. The ceiling copies the same number of rows addressed directly by row number, with the
same prefetching and huge pages: what is left of a lookup once finding the row is free.

Times are the thread's own (CPU time, cache misses included): the calls run on one thread and never block, so on a quiet
host that is the time on the clock, and on a busy one the turns of its neighbours are left out.

Bytes, counted in cache lines per id: the ceiling reads 2 lines of row and writes 2 of output, which it must read first:
6 transfers, 38 MB in all. A lookup reads one line of slots more (1.025 at the index's load), 45 MB: by bytes alone its
floor is 7/6 of the ceiling's time. By pages the floor is twice it: the ceiling touches one random page an id, a lookup
two, and beyond the reach of the TLB a page costs more than a line. What two pages cost is measured beside it: the same
gather, each row being known only once a random line of an array of the index's size has been read; no hash to compare,
no probing, no status. No table whose ids lie apart from its rows can be faster than that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from paramserver import Table
from paramserver.ceiling import ArrayGather
from tools.bench.figures import Figure, figure, interleave

__all__ = ["run"]

IDS = 100_000
DIM = 32
BAG = 20
TARGET = 0.6
FILL_ROWS = 1 << 18


def run(quick: bool) -> list[Figure]:
    """Measures lookups per row type and pooled, each beside the ceiling; --quick takes a table of 2M rows, not 16M."""
    millions = 2 if quick else 16
    rounds = 15 if quick else 31
    samples = interleave(_variants(millions * 1_000_000), rounds, warmup=2).samples
    at = f"rows={millions}M"
    ceiling = f"lookup.ms/ceiling/{at}"
    figures = [_ratio(f"lookup.ceiling_ratio/{at}", samples["ceiling"], samples["f32"], ceiling, TARGET),
               _ratio(f"lookup.ceiling_ratio_f16/{at}", samples["ceiling"], samples["f16"], ceiling, None),
               _ratio(f"lookup.ceiling_ratio_two_pages/{at}", samples["ceiling"], samples["two_pages"], ceiling, None),
               _ratio(f"lookup.two_pages_ratio/{at}", samples["two_pages"], samples["f32"],
                      f"lookup.ms/two_pages/{at}", None),
               figure(ceiling, samples["ceiling"], "ms", better="lower", scale=1e3)]
    for name in ("two_pages", "f32", "f16", "pooled", "unknown"):
        figures.append(figure(f"lookup.ms/{name}/{at}", samples[name], "ms", better="lower", scale=1e3))
    rates = [IDS / seconds for seconds in samples["f32"]]
    figures.append(figure(f"lookup.ids_per_s/{at}", rates, "ids/s"))
    return [*figures, *_dict_figures(rounds)]


def _variants(rows: int) -> dict[str, Callable[[], float]]:
    """The calls to be measured; each returns the seconds of its call alone, the drawing of its ids left out."""
    rng = np.random.default_rng(7)
    ceiling = ArrayGather(rows, DIM)
    tables = {dtype: _filled(dtype, rows) for dtype in ("f32", "f16")}
    out = np.zeros((IDS, DIM), np.float32)
    pooled = np.zeros((IDS // BAG, DIM), np.float32)
    offsets = np.arange(0, IDS + 1, BAG, dtype=np.int32)
    f32, f16 = tables["f32"], tables["f16"]

    def draw() -> np.ndarray:
        return rng.integers(0, rows, IDS)

    return {
        "ceiling": lambda: _seconds(ceiling.gather, draw(), out),
        "two_pages": lambda: _seconds(ceiling.gather_two_pages, draw(), out),
        "f32": lambda: _seconds(f32.lookup, _ids_of(draw()), out),
        "f16": lambda: _seconds(f16.lookup, _ids_of(draw()), out),
        "pooled": lambda: _seconds(f32.lookup_pooled, _ids_of(draw()), offsets, "mean", None, pooled),
        "unknown": lambda: _seconds(f32.lookup, _ids_of(draw() + rows), out),
    }


def _dict_figures(rounds: int) -> Iterator[Figure]:
    """What a dict of ids to rows of one numpy array takes, on a table small enough for a dict: 200,000 rows."""
    rows = 200_000
    rng = np.random.default_rng(8)
    table = _filled("f32", rows)
    places = dict(zip(_ids_of(np.arange(rows)).tolist(), range(rows), strict=True))
    array = table.lookup(_ids_of(np.arange(rows)))
    out = np.zeros((IDS, DIM), np.float32)

    def by_dict(ids: np.ndarray) -> None:
        np.take(array, [places[one] for one in ids.tolist()], axis=0, out=out)

    samples = interleave({
        "table": lambda: _seconds(table.lookup, _ids_of(rng.integers(0, rows, IDS)), out),
        "dict": lambda: _seconds(by_dict, _ids_of(rng.integers(0, rows, IDS))),
    }, rounds).samples
    yield figure("lookup.ms/dict_and_numpy/rows=0.2M", samples["dict"], "ms", better="lower", scale=1e3)
    yield _ratio("lookup.times_dict/rows=0.2M", samples["dict"], samples["table"],
                 "lookup.ms/dict_and_numpy/rows=0.2M", None)


def _ratio(name: str, of: tuple[float, ...], seconds: tuple[float, ...], base: str, target: float | None) -> Figure:
    return figure(name, [a / b for a, b in zip(of, seconds, strict=True)], "x", of=base, target=target)


def _ids_of(numbers: np.ndarray) -> np.ndarray:
    """Row numbers to distinct ids over all 64 bits, negatives included: multiplying by an odd number is a bijection."""
    return numbers.astype(np.int64) * np.int64(0x1E3779B97F4A7C15)


def _filled(dtype: str, rows: int) -> Table:
    table = Table(f"bench_{dtype}", DIM, dtype=dtype, rows_hint=rows)
    values = np.ones((FILL_ROWS, DIM), np.float32)
    for first in range(0, rows, FILL_ROWS):
        numbers = np.arange(first, min(rows, first + FILL_ROWS))
        table.upsert(_ids_of(numbers), values[: len(numbers)])
    return table


def _seconds(call: Callable[..., object], *arguments: object) -> float:
    """The seconds of this thread that one call takes."""
    start = time.thread_time()
    call(*arguments)
    return time.thread_time() - start
