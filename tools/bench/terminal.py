"""`lambda-svc bench`: runs a benchmark by name, draws its table and writes its JSON."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from tools import bench
from tools.bench.figures import render, write_json

__all__ = ["run", "show_list"]


def show_list() -> int:
    """Prints every benchmark with its one-line summary; returns the exit code 0."""
    table = Table.grid(padding=(0, 2))
    for name in bench.names():
        table.add_row(f"[bold]{name}[/]", bench.summary(name))
    Console().print(table)
    return 0


def run(name: str | None, quick: bool, json_file: Path | None) -> int:
    """Runs one benchmark; returns 0 whatever its figures say, 2 for a name that does not exist."""
    console = Console()
    if name not in bench.names():
        asked = "name a benchmark" if name is None else f"no benchmark {name!r}"
        text = f"lambda-svc: {asked}; there are: {', '.join(bench.names())}"
        Console(stderr=True, soft_wrap=True).print(text, highlight=False, markup=False)
        return 2
    report = bench.run(name, quick=quick)
    console.print(render(report))
    if json_file is not None:
        write_json(json_file, [report])
    return 0
