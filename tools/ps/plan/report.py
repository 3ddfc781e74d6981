"""`ps plan` on a terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tools.ps.plan.curve import Curve, Fleet, curve, fleets
from tools.ps.plan.plan_file import PlanFile
from tools.ps.plan.plot import bars, svg
from tools.ps.plan.sizing import Budget, Sizing, disk_bytes, index_bytes, row_bytes, show_bytes

__all__ = ["run"]

_SHOWN = ("f32", "f16", "int8")


def run(plan: PlanFile, *, svg_file: Path | None = None, json_file: Path | None = None) -> int:
    """Prints bytes per row, hit rates per RAM budget and hosts, and writes the files asked for; returns 0."""
    console = Console()
    budget = Budget(plan.host_ram_bytes, plan.host_ram_share, plan.replicas)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        curves = [curve(table, plan) for table in progress.track(plan.tables, description="hit rates")]
    hosts = fleets(curves, budget)
    console.print(_bytes_table([one.sizing for one in curves]))
    for one in curves:
        console.print(f"\n[bold]{one.sizing.name}[/]: popularity {one.law}", highlight=False, soft_wrap=True)
        console.print("hit rate by RAM for hot rows: # LRU, - best possible", highlight=False)
        if one.first_touches:
            console.print(f"first lookups of an id, misses of an LRU that starts empty: {one.first_touches:.3f}",
                          highlight=False)
        console.print("\n".join(bars(one)), highlight=False, markup=False)
    console.print(_hosts_table(hosts, budget))
    if svg_file is not None:
        svg_file.write_text(svg(curves), encoding="utf-8")
    if json_file is not None:
        json_file.write_text(json.dumps(_document(curves, hosts), indent=2) + "\n", encoding="utf-8")
    return 0


def _bytes_table(sizings: Sequence[Sizing]) -> Table:
    table = Table("table", "rows", "as", "row", "index", f"row + index as {', '.join(_SHOWN)}", "all in RAM", "disk",
                  title="bytes a row, and in all", title_justify="left", box=SIMPLE_HEAD)
    for one in sizings:
        index = index_bytes(one.rows) / one.rows
        by_dtype = " ".join(f"{row_bytes(name, one.dim) + index:.0f}" for name in _SHOWN)
        table.add_row(one.name, f"{one.rows:,}", f"{one.dim} {one.dtype}", str(row_bytes(one.dtype, one.dim)),
                      f"{index:.1f}", by_dtype, show_bytes(one.ram_bytes), show_bytes(disk_bytes(one)))
    return table


def _hosts_table(hosts: Sequence[Fleet], budget: Budget) -> Table:
    title = (f"\nshards for hosts of {show_bytes(budget.ram_bytes)}, {budget.ram_share:.0%} of it filled, "
             f"{budget.replicas} replicas")
    table = Table("hit rate from RAM, at best", "RAM of index and hot rows", "shards", "hosts", title=title,
                  title_justify="left", box=SIMPLE_HEAD)
    for one in hosts:
        table.add_row("all rows" if one.hit_rate >= 1 else f"{one.hit_rate:.0%}", show_bytes(one.ram_bytes),
                      f"{one.shards:,}", f"{one.hosts:,}")
    return table


def _document(curves: Sequence[Curve], hosts: Sequence[Fleet]) -> dict:
    tables = [{"name": one.sizing.name, "rows": one.sizing.rows, "dim": one.sizing.dim, "dtype": one.sizing.dtype,
               "row_bytes": row_bytes(one.sizing.dtype, one.sizing.dim), "ram_bytes": one.sizing.ram_bytes,
               "disk_bytes": disk_bytes(one.sizing), "popularity": one.law, "first_touches": one.first_touches,
               "points": [asdict(point) for point in one.points]} for one in curves]
    return {"tables": tables, "fleets": [asdict(one) for one in hosts]}
