"""The main job, end to end: train, export, push, serve, rank, and the proof that what is served is what was trained.

`lambda-svc demo` runs it; every step is what a team would do with its own data, through public names only.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from lambda_svc.errors import LambdaError

__all__ = ["DemoOptions", "run"]


@dataclass(frozen=True)
class DemoOptions:
    """What the demo does. `keep` names a folder that keeps everything made; None uses one that is removed."""

    data: Literal["auto", "movielens", "generated"] = "auto"
    seed: int = 0
    users: int = 3
    keep: Path | None = None


def run(options: DemoOptions, console: Console | None = None) -> int:
    """Runs the demo; returns the exit code, 1 when the proof does not hold."""
    from models.errors import ModelsError

    console = console or Console()
    try:
        return _run(options, console)
    except (LambdaError, ModelsError, OSError) as error:
        console.print(f"[bold red]demo:[/] {error}", highlight=False)
        return 1


def _run(options: DemoOptions, console: Console) -> int:
    from tools.demo.offline import train_and_push
    from tools.demo.proof import prove
    from tools.demo.serving import SCENARIO, served
    from tools.demo.showcase import show_rankings

    started = time.perf_counter()
    with ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lambda-svc-demo-")))
        folder.mkdir(parents=True, exist_ok=True)
        offline = train_and_push(folder, options, console)
        client = stack.enter_context(served(folder, offline, console))
        show_rankings(client, offline, options.users, console)
        holds = prove(client, offline, console)
    verdict = "[green]Everything holds[/]" if holds else "[bold red]Something does not hold, see above[/]"
    seconds = time.perf_counter() - started
    console.print(f"\n{verdict}: trained, exported, pushed, served and ranked in {seconds:.0f} s.")
    if options.keep:
        program = Path(sys.executable).with_name("lambda-svc")
        console.print(
            f"Kept in {folder}. Serve it, and ask it from another terminal:",
            f"  {program} serve {folder}/service.yaml",
            f"  {program} rank {SCENARIO} --user {offline.features.users['id'][0]} --candidates 1-100",
            sep="\n", highlight=False, soft_wrap=True,
        )
    else:
        console.print("To keep the package and serve it yourself: lambda-svc demo --keep build/demo", highlight=False)
    return 0 if holds else 1
