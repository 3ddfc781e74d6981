"""The answer of `ps plan`: for each table and for all together, what each RAM budget answers and how many hosts it
takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tools.ps.plan.hit_rate import lru, lru_of_trace, optimum, rows_for
from tools.ps.plan.plan_file import PlanFile, TablePlan
from tools.ps.plan.popularity import Popularity, of_trace, read_trace, zipf
from tools.ps.plan.sizing import Budget, Sizing, hosts_for

__all__ = ["FRACTIONS", "HIT_RATES", "Curve", "Fleet", "Point", "curve", "fleets"]

#: Shares of a table's rows in RAM that are always looked at.
FRACTIONS = (0.001, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
#: Hit rates whose cost in hosts is always shown.
HIT_RATES = (0.8, 0.9, 0.95, 0.99, 1.0)


@dataclass(frozen=True)
class Point:
    """A budget of `hot_rows` rows: the best hit rate, LRU's, and the RAM of index and hot rows together."""

    hot_rows: int
    hot_bytes: int
    ram_bytes: int
    optimum: float
    lru: float


@dataclass(frozen=True)
class Curve:
    """One table's points, smallest budget first; `law` tells the popularity, `first_touches` is the share of a trace's
    lookups that no cache can answer (0 for a law)."""

    sizing: Sizing
    law: str
    popularity: Popularity
    points: tuple[Point, ...]
    first_touches: float = 0.0


@dataclass(frozen=True)
class Fleet:
    """What it takes to answer `hit_rate` of the lookups of every table from RAM, at best."""

    hit_rate: float
    ram_bytes: int
    shards: int
    hosts: int


def curve(table: TablePlan, plan: PlanFile, fractions: Sequence[float] = FRACTIONS) -> Curve:
    """Hit rates of one table at the usual budgets and at its own. Raises TraceError."""
    sizing = Sizing(table.name, table.rows, table.dim, table.dtype)
    budgets = {max(1, round(table.rows * fraction)) for fraction in fractions}
    if table.ram_bytes_max is not None:
        budgets.add(max(1, sizing.rows_in(table.ram_bytes_max)))
    rows = np.array(sorted(budgets))
    if table.trace is None:
        law = table.zipf or plan.zipf
        popularity = zipf(table.rows, law.s, law.q)
        recent = [lru(popularity, hot) for hot in rows]
        first_touches = 0.0
    else:
        ids = read_trace(table.trace.path, table.trace.column)
        popularity = of_trace(ids, table.rows)
        recent = lru_of_trace(ids, rows)
        first_touches = float((popularity.ranks * (popularity.share > 0)).sum() / ids.size)
    points = tuple(Point(int(hot), sizing.hot_bytes(hot), sizing.tiered_bytes(hot), optimum(popularity, hot),
                         float(least)) for hot, least in zip(rows, recent, strict=True))
    return Curve(sizing, popularity.law, popularity, points, first_touches)


def fleets(curves: Sequence[Curve], budget: Budget, hit_rates: Sequence[float] = HIT_RATES) -> list[Fleet]:
    """Hosts for each hit rate, every table tiered to answer it; 1.0 has every row in RAM."""
    def ram(rate: float) -> int:
        return sum(one.sizing.tiered_bytes(one.sizing.rows if rate >= 1 else rows_for(one.popularity, rate))
                   for one in curves)

    return [Fleet(rate, ram(rate), *hosts_for(ram(rate), budget)) for rate in hit_rates]
