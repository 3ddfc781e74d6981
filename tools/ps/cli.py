"""The subcommands `lambda-svc ps ...`; each imports what it needs when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tools.examples import examples

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="The parameter server: load, serve, update, look inside, plan.",
                  epilog=examples("lambda-svc ps plan tables.yaml"))


@app.command(epilog=examples(
    "lambda-svc ps plan tables.yaml --svg hit_rate.svg",
    "lambda-svc ps plan --schema criteo.pbtxt --dim 128 --dtype f16 --zipf s=1.2,q=100 --host-ram 256GiB",
    "lambda-svc ps plan --rows 1000000000 --dim 64 --dtype int8 --trace ids.parquet",
))
def plan(
    file: Annotated[Path | None, typer.Argument(help="YAML file of tables and hosts.", metavar="PLAN",
                                                show_default=False)] = None,
    schema: Annotated[Path | None, typer.Option(help="Schema in protobuf text: a table for each categorical "
                                                "feature.", metavar="FILE")] = None,
    rows: Annotated[int | None, typer.Option(help="Rows of a single table.", min=1)] = None,
    scale: Annotated[float, typer.Option(help="Multiplies the rows of --schema.", min=1e-9)] = 1.0,
    dim: Annotated[int, typer.Option(help="Numbers in a row, with --schema or --rows.", min=1, max=4096)] = 32,
    dtype: Annotated[str, typer.Option(help="f32, f16, bf16 or int8, with --schema or --rows.")] = "f16",
    zipf: Annotated[str | None, typer.Option(help="Popularity P(rank r) ~ (r+q)^-s: s=NUMBER,q=NUMBER.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Ids as they were looked up: .npy, .parquet or text; its "
                                               "popularity is every table's.", metavar="FILE")] = None,
    column: Annotated[str, typer.Option(help="Column of a Parquet trace.")] = "id",
    host_ram: Annotated[str | None, typer.Option(help="RAM of a host, such as 64GiB.")] = None,
    replicas: Annotated[int | None, typer.Option(help="Copies of every shard.", min=1)] = None,
    svg: Annotated[Path | None, typer.Option(help="Also draw hit rate over RAM into this file.",
                                             metavar="FILE")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the answer to this file.",
                                                   metavar="FILE")] = None,
) -> None:
    """Say bytes per row, hit rate per RAM budget and hosts needed, before anything is built."""
    from tools.ps.plan import ask

    asked = ask.Asked(file=file, schema=schema, rows=rows, scale=scale, dim=dim, dtype=dtype, zipf=zipf, trace=trace,
                      column=column, host_ram=host_ram, replicas=replicas)
    try:
        raise typer.Exit(ask.run(asked, svg_file=svg, json_file=json_file))
    except ask.AskError as error:
        _fail(str(error))


def _fail(message: str) -> None:
    for line in message.splitlines():
        typer.echo(f"lambda-svc: {line}", err=True)
    raise typer.Exit(1)
