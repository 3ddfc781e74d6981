"""`lambda-svc rollout`: bring a version to a growing share of users, or take it back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import typer

from tools.examples import examples

if TYPE_CHECKING:
    from lambda_svc.config import ServiceConfig
    from lambda_svc.rollout import Rollout

__all__ = ["app"]

T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, help="Bring a version to a growing share of users, judged against stable.",
                  epilog=examples("lambda-svc rollout start service.yaml explore_rank --version 5",
                                   "lambda-svc rollout status service.yaml",
                                   "lambda-svc rollout promote service.yaml explore_rank",
                                   "lambda-svc rollout abort service.yaml explore_rank --reason 'odd scores'"))
ConfigFile = Annotated[Path, typer.Argument(help="YAML file of the service.", metavar="CONFIG")]
Scenario = Annotated[str, typer.Argument(help="Scenario of the configuration.")]
Json = Annotated[bool, typer.Option("--json", help="Print the documents instead of a table.")]


@app.command(epilog=examples("lambda-svc rollout start service.yaml explore_rank --version 5",
                              "lambda-svc rollout start service.yaml explore_rank --version 5 --shadow "
                              "--steps 1,10,100 --hold-s 3600"))
def start(
    config: ConfigFile,
    scenario: Scenario,
    version: Annotated[int, typer.Option(help="Published version to try.", min=1)],
    steps: Annotated[str, typer.Option(help="Per cents of users, rising.")] = "5,20,50,100",
    hold_s: Annotated[float, typer.Option(help="How long a step lasts at least, seconds.", min=0)] = 600.0,
    shadow: Annotated[bool, typer.Option(help="First score beside stable, for nobody.")] = False,
    error_rate: Annotated[float, typer.Option(help="Share of failed requests above stable's that is allowed.")] = 0.01,
    latency_ratio: Annotated[float, typer.Option(help="p95 over stable's that is allowed.")] = 1.5,
    calibration: Annotated[float, typer.Option(help="Shift of the mean predicted that is allowed, relative.")] = 0.05,
    drift: Annotated[float, typer.Option(help="Stability index of scores that is allowed.")] = 0.2,
    requests_min: Annotated[int, typer.Option(help="Requests of each before it is judged.", min=1)] = 200,
) -> None:
    """Put a version on trial: servers judge it, move it on step by step, or roll it back with the reason."""
    limits = dict(error_rate=error_rate, latency_ratio=latency_ratio, calibration=calibration, drift=drift,
                  requests_min=requests_min)
    try:
        shares = [float(step) for step in steps.split(",")]
    except ValueError:
        _fail(f"--steps: got {steps!r}; expected per cents such as 5,20,50,100")

    def begin(loaded: ServiceConfig) -> Rollout:
        from lambda_svc.rollout import operate

        return operate.start(loaded, scenario, version, shadow=shadow, steps=shares, hold_s=hold_s, limits=limits)

    _done(_with(config, begin))


@app.command(epilog=examples("lambda-svc rollout promote service.yaml explore_rank",
                              "lambda-svc rollout promote service.yaml explore_rank --whole"))
def promote(
    config: ConfigFile,
    scenario: Scenario,
    whole: Annotated[bool, typer.Option(help="To all users and to the end, whatever step it is at.")] = False,
) -> None:
    """Move a version on trial to its next step now."""
    def move(loaded: ServiceConfig) -> Rollout:
        from lambda_svc.rollout import operate

        return operate.promote(loaded, scenario, whole)

    _done(_with(config, move))


@app.command(epilog=examples("lambda-svc rollout abort service.yaml explore_rank --reason 'odd scores'"))
def abort(
    config: ConfigFile,
    scenario: Scenario,
    reason: Annotated[str, typer.Option(help="Kept in the document.")] = "by an operator",
) -> None:
    """Send everyone back to stable; the version does not come to serve by itself any more."""
    def end(loaded: ServiceConfig) -> Rollout:
        from lambda_svc.rollout import operate

        return operate.abort(loaded, scenario, reason)

    _done(_with(config, end))


@app.command(epilog=examples("lambda-svc rollout status service.yaml", "lambda-svc rollout status service.yaml --json"))
def status(config: ConfigFile, as_json: Json = False) -> None:
    """Show the last rollout of every scenario."""
    def read(loaded: ServiceConfig) -> list[Rollout]:
        from lambda_svc.rollout import RolloutFiles

        files = RolloutFiles(loaded.repository)
        return [found for name in loaded.scenarios if (found := files.read(name)) is not None]

    found = _with(config, read)
    if as_json:
        typer.echo(json.dumps([rollout.model_dump(mode="json") for rollout in found], indent=2))
        return
    if not found:
        typer.echo("no scenario has had a rollout")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("scenario", "version", "state", "users", "since", "reason")
    for rollout in found:
        ago = time.time() - rollout.step_started_s
        users = "beside" if rollout.shadow else f"{100 * rollout.share:g}%" if rollout.state == "running" else ""
        table.add_row(rollout.scenario, str(rollout.version), rollout.state.replace("_", " "), users,
                      f"{ago / 60:.0f} min", rollout.reason)
    Console().print(table)


def _with(config: Path, act: Callable[[ServiceConfig], T]) -> T:
    from lambda_svc import config as config_file
    from lambda_svc.errors import LambdaError

    try:
        return act(config_file.load(config))
    except LambdaError as error:
        _fail(str(error))


def _done(rollout: Rollout) -> None:
    where = "scored beside stable" if rollout.shadow else f"{100 * rollout.share:g}% of users"
    typer.echo(f"{rollout.scenario}: version {rollout.version} is {rollout.state.replace('_', ' ')}"
               f"{f', {where}' if rollout.state == 'running' else ''}")


def _fail(message: str) -> NoReturn:
    typer.echo(f"lambda-svc: {message}", err=True)
    raise typer.Exit(1)
