"""`lambda-svc adopt` on a terminal: exit codes, progress, files."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console

__all__ = ["EQUAL", "NOT", "USAGE", "run"]

EQUAL, NOT, USAGE = 0, 1, 2


def run(model: Path, requests: Path, *, signature: str | None, tags: str, user: tuple[str, ...], rows_min: int,
        tolerance: float, quick: bool, report: Path | None, json_file: Path | None) -> int:
    """Examines the model, prints the report and writes the files asked for. Returns the exit code: 0 when the model
    exports and is equal, 1 when not, 2 for what cannot be a model or requests for it."""
    from models.errors import SavedModelError, SignatureError
    from models.notices import without_notices

    for what, path in (("the model", model), ("--requests", requests)):
        if not path.exists():
            return _refuse(f"{what}: {path} does not exist")
    outputs = [*([] if report is None else [report / model.name]), *([] if json_file is None else [json_file])]
    for path in outputs:
        there = next(folder for folder in path.absolute().parents if folder.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            return _refuse(f"{path} cannot be written: {there} is no folder that may be written to")
    console = Console(stderr=True)
    logging.getLogger("tensorflow").setLevel(logging.ERROR)  # it calls its own loaders deprecated
    with console.status("loading TensorFlow") as status, without_notices():
        from tools.adopt.errors import RequestsError
        from tools.adopt.examine import Options, examine
        from tools.adopt.text import html, markdown

        options = Options(model, requests, signature, tuple(tags.split(",")), user, rows_min, tolerance, quick)
        try:
            found = examine(options, status.update)
        except (SavedModelError, SignatureError, RequestsError) as error:
            return _refuse(str(error))
    text = markdown(found)
    typer.echo(text)
    files = {} if report is None else {report / f"{model.name}.{suffix}": content for suffix, content in (
        ("md", text), ("html", html(found)))}
    if json_file is not None:
        files[json_file] = json.dumps(_document(found), indent=2) + "\n"
    for path, content in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        except OSError as error:
            return _refuse(f"{path} cannot be written: {error.strerror}")
        typer.echo(f"wrote {path}")
    return EQUAL if found.exports and found.equal else NOT


def _document(found) -> dict:
    from tools.adopt.verdict import figures

    seen = found.deviation
    return {
        "host": found.host, "model": found.options.model.name, "signature": found.recorded.signature.name,
        "requests": len(found.recorded.requests), "exports": found.exports, "refusal": found.refusal,
        "equal": found.equal, "largest_difference": seen and seen.largest, "unequal": list(found.unequal),
        "user": list(found.user), "constant": [line.name for line in found.inputs if line.constant],
        "figures": [asdict(one) for one in figures(found)],
    }


def _refuse(message: str) -> int:
    typer.echo(f"lambda-svc: {message}", err=True)
    return USAGE
