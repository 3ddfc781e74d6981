"""What `lambda-svc export` does: publishes a zoo model, and reports what each pass and engine does to it."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import typer
from rich.console import Console

__all__ = ["publish", "report"]


def publish(name: str, size: str, seed: int, out: Path, version: int, *, onnx: bool = False) -> int:
    """Writes the package and says where; returns the exit code. A model that cannot be exported leaves nothing."""
    from models.errors import ModelsError
    from models.notices import without_notices

    started = time.perf_counter()
    try:
        with without_notices():
            from models import zoo
            from models.export import export
        path = export(zoo.get(name, size).servable(seed), out, version, onnx=onnx)
    except (ModelsError, OSError) as error:
        typer.echo(f"lambda-svc: not exported: {error}", err=True)
        return 1
    megabytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 1e6
    typer.echo(f"exported {path} ({megabytes:,.1f} MB, {time.perf_counter() - started:.1f} s)")
    return 0


def report(name: str, size: str, seed: int, out: Path, candidates: int, *, shown: bool = False) -> int:
    """Measures the model's passes in every engine and writes NAME.md and NAME.html into `out`; `shown` prints the
    first as well. Returns the exit code. 0 candidates: as many as its scenario has."""
    from models.errors import ModelsError
    from models.notices import without_notices

    console = Console()
    try:
        with console.status("loading TensorFlow") as status, without_notices():
            from models import zoo
            from tools.engines.report import measure_report
            from tools.engines.report_text import html, markdown

            entry = zoo.get(name, size)
            plain, feeds = entry.dense(seed)
            n = candidates or entry.definition.candidates
            found = measure_report(entry.name, plain, feeds(n, np.random.default_rng(0)), n, status.update)
        texts = {"md": markdown(found), "html": html(found)}
        out.mkdir(parents=True, exist_ok=True)
        for suffix, text in texts.items():
            (out / f"{entry.name}.{suffix}").write_text(text)
    except (ModelsError, OSError) as error:
        typer.echo(f"lambda-svc: no report: {error}", err=True)
        return 1
    if shown:
        typer.echo(texts["md"])
    for suffix in texts:
        typer.echo(f"wrote {out / f'{entry.name}.{suffix}'}")
    return 0
