"""What `lambda-svc explain` does: a logged request is scored again on the version that served it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from lambda_svc.explain import Explained, LoggedRequest

__all__ = ["run"]

TOLERANCE = 1e-6
_VALUES_SHOWN = 8


def run(config: Path, request_id: str, top: int, candidate: int | None, beside: int | None) -> int:
    """Prints; returns the exit code: 1 when the request is not there, cannot be scored again, or scores otherwise."""
    from lambda_svc import config as config_file
    from lambda_svc.errors import LambdaError
    from lambda_svc.explain import explain, find_request

    try:
        loaded = config_file.load(config)
        if loaded.request_log is None:
            raise LambdaError(f"{config} has no request_log; nothing was kept")
        request = find_request(loaded.request_log.folder, request_id)
        again = explain(loaded, request)
        other = None if beside is None else explain(loaded, request, beside)
    except LambdaError as error:
        typer.echo(f"lambda-svc: {error}", err=True)
        return 1
    console = Console()
    _head(console, request, again)
    if candidate is not None:
        return _one(console, request, again, candidate)
    console.print(_scores(request, again, other, top))
    return 0 if again.difference <= TOLERANCE else 1


def _head(console: Console, request: LoggedRequest, again: Explained) -> None:
    f = request.fields
    console.print(f"[bold]{f['request_id']}[/]  scenario {f['scenario']}, user {f['user_id']}, "
                  f"{len(request.candidate_ids)} candidates", highlight=False)
    console.print(f"served by {f['model']} version {f['version']}, {f['engine']} {f['precision']}, variant "
                  f"{f['variant']}, slices of {f['slice_rows']}", highlight=False)
    verdict = "the same" if again.difference <= TOLERANCE else "NOT the same"
    console.print(f"scored again: {verdict}, within {again.difference:.1e}", highlight=False)
    if again.remote:
        console.print(f"rows of {', '.join(again.remote)} come from shards as they are now", highlight=False)


def _scores(request: LoggedRequest, again: Explained, other: Explained | None, top: int) -> Table:
    heads = list(request.heads)
    beside = [] if other is None else [f"v{other.version} {head}" for head in other.heads]
    table = Table("place", "candidate", "rank score", *heads, "again", *beside)
    for place, position in enumerate(request.positions[:top] if top else request.positions):
        apart = max(abs(float(again.heads[head][position]) - float(request.heads[head][place])) for head in heads)
        row = [f"{request.heads[head][place]:.4f}" for head in heads] + [f"{apart:.0e}" if apart else "same"]
        row += [] if other is None else [f"{scores[position]:.4f}" for scores in other.heads.values()]
        table.add_row(str(place + 1), str(request.candidate_ids[position]), f"{request.rank_scores[place]:.4f}", *row)
    return table


def _one(console: Console, request: LoggedRequest, again: Explained, candidate: int) -> int:
    """What one candidate was scored on."""
    if candidate not in request.candidate_ids:
        typer.echo(f"lambda-svc: --candidate: got {candidate}; it was not among the request's candidates", err=True)
        return 1
    row = request.candidate_ids.index(candidate)
    table = Table("side", "slot", "values", "rows")
    for (side, slot), values in request.slots.items():
        at = row if side == "item" else 0
        cells = _cells(values, at)
        words = sorted({f"{name}: {_counted(status, values, at)}" for (s, name), status in again.statuses.items()
                        if s == slot})
        table.add_row(side, slot, _shown(cells), "; ".join(words))
    console.print(table)
    known = "stored" if request.fields["known"][row] else "not stored: scored on defaults"
    scores = ", ".join(f"{head} {scores[row]:.6f}" for head, scores in again.heads.items())
    console.print(f"features {known}; {scores}", highlight=False)
    return 0


def _cells(values, row: int) -> np.ndarray:
    if values.offsets is not None:
        return values.values[values.offsets[row]:values.offsets[row + 1]]
    cells = np.atleast_1d(values.values[row])
    return cells if values.lengths is None else cells[:values.lengths[row]]


def _shown(cells: np.ndarray) -> str:
    more = f" and {len(cells) - _VALUES_SHOWN} more" if len(cells) > _VALUES_SHOWN else ""
    return ", ".join(f"{cell:.6g}" if cells.dtype.kind == "f" else str(cell) for cell in cells[:_VALUES_SHOWN]) + more


def _counted(status: np.ndarray, values, row: int) -> str:
    """How many of a row's ids were found how: "3 hit, 1 default"."""
    from lambda_svc.explain import status_word

    width = 1 if values.values.ndim == 1 else values.values.shape[1]
    cells = (status[values.offsets[row]:values.offsets[row + 1]] if values.offsets is not None
             else status[row * width:(row + 1) * width])
    words = [word for cell in cells if (word := status_word(int(cell)))]
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words)) or "none"
