"""A progress bar on stderr for what takes more than a moment: gone when it is done, and never in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

__all__ = ["bar"]


@contextmanager
def bar(what: str, total: int | None = None) -> Iterator[Callable[[int, int | None], None]]:
    """Shows `what` with a bar; the function that it gives takes (done, in all), and may be called from any thread."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn())
    console = Console(stderr=True)
    # Written to a file it would be nothing but empty lines.
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)

        def tell(done: int, of: int | None = None) -> None:
            progress.update(task, completed=done, total=total if of is None else of)

        yield tell
