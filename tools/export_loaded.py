"""What `lambda-svc export PATH` does: a SavedModel or a frozen graph becomes a package."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import typer

__all__ = ["Options", "is_path", "publish"]


@dataclass(frozen=True)
class Options:
    """What is wanted of a model as it came; `inputs` is an .npz file of golden rows by input."""

    name: str
    signature: str = "serving_default"
    user: Sequence[str] = ()
    context: Sequence[str] = ()
    heads: Sequence[str] = ()
    inputs: Path | None = None
    rows_min: int = 1_000


def is_path(model: str) -> bool:
    """Whether `model` is a path, and not the name of a zoo model."""
    return "/" in model or model.endswith(".pb") or Path(model).is_dir()


def publish(model: Path, out: Path, version: int, seed: int, options: Options) -> int:
    """Writes the package and says what is in it; returns the exit code. What cannot be exported leaves nothing."""
    from models.errors import FreezeError, ModelsError
    from models.notices import without_notices

    started = time.perf_counter()
    try:
        inputs = None if options.inputs is None else dict(np.load(options.inputs, allow_pickle=False))
        with without_notices():
            from models.export_loaded import export_loaded
            from models.loaders import load_frozen, load_saved_model
        loaded = load_saved_model(model) if model.is_dir() else load_frozen(model)
        done = export_loaded(loaded, out, options.name, version, signature=options.signature, user=options.user,
                             context=options.context, heads=options.heads, inputs=inputs, rows_min=options.rows_min,
                             seed=seed)
    except (ModelsError, OSError, ValueError) as error:
        typer.echo(f"lambda-svc: not exported: {error}", err=True)
        if isinstance(error, FreezeError):
            typer.echo(f"copy its folder to {out / options.name / str(version)} to serve it as it came", err=True)
        return 1
    for output, why in done.left_out.items():
        typer.echo(f"output {output} is no head: {why}")
    for table, why in done.kept.items():
        typer.echo(f"table {table} stays in the graph: {why}")
    if done.plain_only:
        typer.echo(f"no rewritten variant: {done.plain_only}")
    megabytes = sum(file.stat().st_size for file in done.path.rglob("*") if file.is_file()) / 1e6
    typer.echo(f"exported {done.path} ({', '.join(done.heads)}; {megabytes:,.1f} MB, "
               f"{time.perf_counter() - started:.1f} s)")
    return 0
