"""`lambda-svc zoo`: models with random weights for load tests and benchmarks."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from tools.examples import examples

__all__ = ["Size", "app"]

app = typer.Typer(no_args_is_help=True, help="Models with random weights, one per scenario, for load tests.",
                  epilog=examples("lambda-svc zoo table", "lambda-svc zoo export din build/zoo --size small"))


class Size(str, Enum):
    """How large a model is."""

    small = "small"
    base = "base"
    large = "large"


@app.command(epilog=examples("lambda-svc zoo table"))
def table() -> None:
    """Show parameters and FLOPs per model and size, counted in the graphs; takes about 20 s."""
    from rich.console import Console
    from rich.table import Column, Table

    from models.notices import without_notices

    console = Console()
    with console.status("loading TensorFlow"), without_notices():
        from models import zoo
    columns = ("dense", "tables", "candidates", "GFLOP")
    shown = Table("model", Column("scenario", no_wrap=True), "size", *(Column(c, justify="right") for c in columns),
                  caption="Millions of parameters; FLOPs of a request's matrix products, the user tiled in the graph.")
    with console.status("building") as status:
        for entry in (zoo.get(name, size) for name in zoo.NAMES for size in zoo.SIZES):
            status.update(f"building {entry.name}")
            at = zoo.measure(entry)
            first = (entry.definition.name, entry.definition.scenario) if entry.size == zoo.SIZES[0] else ("", "")
            figures = (f"{at.dense_parameters / 1e6:,.3f}", f"{at.table_parameters / 1e6:,.3f}", f"{at.candidates:,}",
                       f"{at.flops / 1e9:,.2f}")
            shown.add_row(*first, entry.size, *figures, end_section=entry.size == zoo.SIZES[-1])
    console.print(shown)


@app.command(epilog=examples("lambda-svc zoo export din build/zoo",
                             "lambda-svc zoo export dlrm build/zoo --size large --seed 7 --version 2"))
def export(
    name: Annotated[str, typer.Argument(help="two_tower, din, din_long, cross or dlrm.")],
    out: Annotated[Path, typer.Argument(help="Model repository to write into.")],
    size: Annotated[Size, typer.Option(help="How large.")] = Size.small,
    seed: Annotated[int, typer.Option(help="Of the weights and of the golden requests.", min=0)] = 0,
    version: Annotated[int, typer.Option(help="Version to publish.", min=1)] = 1,
) -> None:
    """Write the package of a zoo model: graph, tables, golden rows. Equal arguments give equal bytes."""
    from tools.export import publish

    raise typer.Exit(publish(name, size.value, seed, out, version))


@app.command(epilog=examples("lambda-svc zoo report din build/report",
                             "lambda-svc zoo report cross build/report --candidates 100"))
def report(
    name: Annotated[str, typer.Argument(help="two_tower, din, din_long, cross or dlrm.")],
    out: Annotated[Path, typer.Argument(help="Folder for NAME.md and NAME.html.")],
    size: Annotated[Size, typer.Option(help="How large.")] = Size.base,
    candidates: Annotated[int, typer.Option(help="Of a request; 0: as many as its scenario has.", min=0)] = 0,
) -> None:
    """Measure what each pass saves in each engine, and write it as Markdown and HTML; takes about a minute."""
    from tools.export import report as write_report

    raise typer.Exit(write_report(name, size.value, 0, out, candidates))
