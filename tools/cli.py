"""The command `lambda-svc`. Each subcommand imports what it needs when it runs, so that `--help` answers at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tools.examples import examples
from tools.ps.cli import app as ps_app
from tools.rollout import app as rollout_app
from tools.zoo import Size
from tools.zoo import app as zoo_app

__all__ = ["main"]

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False,
                  help="A recommendation ranking engine: serve models, rank candidates, measure and diagnose.",
                  epilog=examples("lambda-svc doctor", "lambda-svc demo", "lambda-svc config check service.yaml",
                                   "lambda-svc serve service.yaml",
                                   "lambda-svc rank explore --user 196 --candidates 1-1682 --top 10"))
config_app = typer.Typer(no_args_is_help=True, help="Look at configuration files.",
                         epilog=examples("lambda-svc config check service.yaml"))
app.add_typer(config_app, name="config")
app.add_typer(ps_app, name="ps")
app.add_typer(zoo_app, name="zoo")
app.add_typer(rollout_app, name="rollout")

ConfigFile = Annotated[Path, typer.Argument(help="YAML file of the service.", metavar="CONFIG")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write the figures to this file.", metavar="FILE")]


def _show_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[bool, typer.Option("--version", help="Print the version and end.", callback=_show_version,
                                    is_eager=True)] = False,
) -> None:
    pass


@app.command(epilog=examples("lambda-svc serve service.yaml", "lambda-svc serve service.yaml --no-jemalloc"))
def serve(
    config: ConfigFile,
    jemalloc: Annotated[bool, typer.Option(help="Preload the system's libjemalloc when present.")] = True,
) -> None:
    """Serve the scenarios of CONFIG over gRPC until SIGTERM; accepted requests finish first."""
    from tools.launcher import reexec_with_jemalloc

    if jemalloc:
        reexec_with_jemalloc()
    from lambda_svc import server

    raise typer.Exit(server.main(config))


@app.command(epilog=examples(
    "lambda-svc rank explore --user 196 --candidates 242,302,377",
    "lambda-svc rank explore --user 196 --candidates 1-1682 --top 10 --input bid=1.0",
))
def rank(
    scenario: Annotated[str, typer.Argument(help="Scenario of the server's configuration.")],
    user: Annotated[str, typer.Option(help="User id, 64 bits.")],
    candidates: Annotated[str, typer.Option(help="Item ids: numbers and ranges, such as 5,7,100-200.")],
    top: Annotated[int, typer.Option(help="How many to show, best first; 0 means all.", min=0)] = 10,
    server: Annotated[str, typer.Option(help="HOST:PORT of the server.")] = "127.0.0.1:8500",
    timeout_ms: Annotated[float, typer.Option(help="Deadline of the request.", min=1)] = 1000.0,
    inputs: Annotated[list[str] | None, typer.Option("--input", help="NAME=VALUE of a formula input, the same for "
                                                     "every candidate; may repeat.")] = None,
) -> None:
    """Rank candidates once and show scores, plan and stage times."""
    from tools import rank_once

    raise typer.Exit(rank_once.run(scenario, user, candidates, top, server, timeout_ms / 1000, inputs or []))


@app.command(epilog=examples("lambda-svc explain service.yaml 3f2a --top 20",
                              "lambda-svc explain service.yaml 3f2a --candidate 302",
                              "lambda-svc explain service.yaml 3f2a --beside 5"))
def explain(
    config: ConfigFile,
    request_id: Annotated[str, typer.Argument(help="As the response and the logs have it.")],
    top: Annotated[int, typer.Option(help="How many candidates to show, best first; 0 means all.", min=0)] = 10,
    candidate: Annotated[int | None, typer.Option(help="Show what this candidate was scored on.")] = None,
    beside: Annotated[int | None, typer.Option(help="Also score on this version of the model.", min=1)] = None,
) -> None:
    """Score a logged request again, on the version and plan that served it; exit code 1 when the scores differ."""
    from tools import explain as the_explain

    raise typer.Exit(the_explain.run(config, request_id, top, candidate, beside))


@app.command(epilog=examples("lambda-svc status", "lambda-svc status 10.0.0.7:8501 --json"))
def status(
    server: Annotated[str, typer.Argument(help="HOST:PORT of the server's `server.http`.",
                                          metavar="[HOST:PORT]")] = "127.0.0.1:8501",
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole document as JSON.")] = False,
) -> None:
    """Show what a running server serves: versions and their states, rates, latencies, errors.

    Exit code 0: it is ready; 1: it is not; 2: nothing there tells a status.
    """
    from tools import status as the_status

    raise typer.Exit(the_status.run(server, as_json))


@app.command(epilog=examples("lambda-svc demo", "lambda-svc demo --data generated --seed 7",
                              "lambda-svc demo --keep build/demo"))
def demo(
    data: Annotated[str, typer.Option(help="auto, movielens or generated; auto falls back to generated.")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of training, and of generated data.", min=0)] = 0,
    users: Annotated[int, typer.Option(help="How many users to show rankings for.", min=1, max=50)] = 3,
    keep: Annotated[Path | None, typer.Option(help="Keep package, features and config in this folder.")] = None,
) -> None:
    """Train on MovieLens, package, serve and rank: the whole path once, on this machine."""
    from tools import demo as the_demo

    if data not in ("auto", "movielens", "generated"):
        _fail(f"--data: got {data!r}; expected auto, movielens or generated")
    raise typer.Exit(the_demo.run(the_demo.DemoOptions(data, seed, users, keep)))


@app.command(epilog=examples("lambda-svc export din --out build/models --report build/report",
                              "lambda-svc export dlrm --size large --out build/models --version 2",
                              "lambda-svc export their/saved_model --name theirs --out build/models --user age"))
def export(
    model: Annotated[str, typer.Argument(help="Zoo model: two_tower, din, din_long, cross or dlrm. Or a "
                                         "SavedModel's folder, or a frozen graph with a SIGNATURES.json beside it.")],
    out: Annotated[Path, typer.Option(help="Model repository to publish into.")],
    size: Annotated[Size, typer.Option(help="How large (zoo).")] = Size.base,
    seed: Annotated[int, typer.Option(help="Of the weights (zoo) and of the golden requests.", min=0)] = 0,
    version: Annotated[int, typer.Option(help="Version to publish.", min=1)] = 1,
    report: Annotated[Path | None, typer.Option(help="Also measure every pass in every engine (zoo): print the report, "
                                                "and write it as Markdown and HTML into this folder.")] = None,
    onnx: Annotated[bool, typer.Option(help="Write every graph as ONNX, too, for engine onnxruntime (zoo).")] = False,
    candidates: Annotated[int, typer.Option(help="Of the report's request; 0: as many as the scenario has.",
                                            min=0)] = 0,
    name: Annotated[str | None, typer.Option(help="The model's name in the repository (paths).")] = None,
    signature: Annotated[str, typer.Option(help="Signature to export (paths).")] = "serving_default",
    user: Annotated[list[str] | None, typer.Option(help="Input of the user side; may repeat. Others are of items.",
                                                   metavar="INPUT")] = None,
    context: Annotated[list[str] | None, typer.Option(help="Input of the context side; may repeat.",
                                                      metavar="INPUT")] = None,
    head: Annotated[list[str] | None, typer.Option(help="Output that is a score; may repeat. Default: all that can be.",
                                                   metavar="OUTPUT")] = None,
    inputs: Annotated[Path | None, typer.Option(help="Golden rows: arrays by input as .npz. Default: drawn by --seed.",
                                                metavar="FILE")] = None,
    rows_min: Annotated[int, typer.Option(help="Tables of fewer rows stay in the graph (paths).", min=1)] = 1_000,
) -> None:
    """Publish a model: cut, frozen, rewritten and checked against itself; whole or not at all."""
    from tools import export as the_export
    from tools import export_loaded

    if export_loaded.is_path(model):
        if name is None:
            _fail(f"--name: {model} is a path, so the model needs a name")
        options = export_loaded.Options(name, signature, user or (), context or (), head or (), inputs, rows_min)
        raise typer.Exit(export_loaded.publish(Path(model), out, version, seed, options))
    code = the_export.publish(model, size.value, seed, out, version, onnx=onnx)
    if code == 0 and report is not None:
        code = the_export.report(model, size.value, seed, report, candidates, shown=True)
    raise typer.Exit(code)


@app.command(epilog=examples("lambda-svc adopt ranker/3 --requests ranker/3/assets.extra/tf_serving_warmup_requests",
                              "lambda-svc adopt ranker/3 --requests requests.parquet --user age --user city",
                              "lambda-svc adopt ranker.pb --requests requests.arrow --quick --report build/report"))
def adopt(
    model: Annotated[Path, typer.Argument(help="Folder of a SavedModel of TensorFlow 1 or 2, or file of a frozen graph "
                                          "with SIGNATURES.json beside it.")],
    requests: Annotated[Path, typer.Option(help="Recorded requests: TensorFlow Serving's warm-up file, Arrow or "
                                           "Parquet.", metavar="FILE")],
    signature: Annotated[str | None, typer.Option(help="Signature to export; by default the one that the requests "
                                                  "name, or serving_default.", show_default=False)] = None,
    tags: Annotated[str, typer.Option(help="Tags of the SavedModel's graph, with commas between.")] = "serve",
    user: Annotated[list[str] | None, typer.Option(help="INPUT with one value for all rows of a request; may repeat. "
                                                   "auto, the default: "
                                                   "those that are so in every request; none: no input is.",
                                                   metavar="auto|none|INPUT", show_default=False)] = None,
    rows_min: Annotated[int, typer.Option(help="Tables of at least this many rows leave the graph.", min=1)] = 1_000,
    tolerance: Annotated[float, typer.Option(help="Difference of scores in f32 that counts as equal; of scores above "
                                             "1, relative to the score.", min=0.0)] = 1e-6,
    quick: Annotated[bool, typer.Option("--quick", help="Run the plain graph and all passes, not the steps "
                                                        "between.")] = False,
    report: Annotated[Path | None, typer.Option(help="Also write the report as Markdown and HTML into this folder.",
                                                metavar="DIR")] = None,
    json_file: JsonFile = None,
) -> None:
    """Say what exporting MODEL would bring: whether it exports, whether it is equal, what passes and engines save.

    Exit code 0: it exports and scores are equal; 1: it does not, with the reason; 2: no such model or requests.
    """
    from tools.adopt import command

    raise typer.Exit(command.run(model, requests, signature=signature, tags=tags, user=tuple(user or ("auto",)),
                                 rows_min=rows_min, tolerance=tolerance, quick=quick, report=report,
                                 json_file=json_file))


@app.command(epilog=examples("lambda-svc push build/din_mmoe/1 /srv/models"))
def push(
    package: Annotated[Path, typer.Argument(help="Folder of one version, with its manifest.json.")],
    repository: Annotated[Path, typer.Argument(help="Model repository that servers read.")],
) -> None:
    """Copy a model package into a repository: verified first, visible only once it is whole.

    A version that is there and good is never overwritten; a damaged one is moved aside.
    """
    from models.package import PackageError
    from models.push import push as push_package

    def replaced(aside: Path, damage: PackageError) -> None:
        typer.echo(f"the version that was there is damaged ({damage.file}: {damage.problem}); moved to {aside}")

    try:
        typer.echo(f"pushed {push_package(package, repository, replaced=replaced)}")
    except PackageError as error:
        _fail(f"not pushed: {error}")
    except OSError as error:
        _fail(f"not pushed: {error.filename2 or error.filename or repository}: {error.strerror or error}")


@config_app.command("check", epilog=examples("lambda-svc config check service.yaml"))
def config_check(config: ConfigFile) -> None:
    """Check CONFIG whole and print every problem with its path; exit code 1 when there is one."""
    from lambda_svc.config import check

    problems = check(config)
    for problem in problems:
        typer.echo(f"{config}: {problem}")
    if problems:
        raise typer.Exit(1)
    typer.echo(f"{config}: good")


@app.command(epilog=examples("lambda-svc doctor", "lambda-svc doctor --json"))
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print findings as JSON.")] = False,
    jemalloc: Annotated[bool, typer.Option(help="Preload libjemalloc first, as `serve` does.")] = True,
) -> None:
    """Look at this machine and installation: what is there, what is missing, what to do about it."""
    from tools import doctor as the_doctor
    from tools.launcher import reexec_with_jemalloc

    if jemalloc:
        reexec_with_jemalloc()
    raise typer.Exit(the_doctor.run(as_json))


@app.command(epilog=examples("lambda-svc bench --list", "lambda-svc bench lookup --quick",
                              "lambda-svc bench rank --json rank.json"))
def bench(
    name: Annotated[str | None, typer.Argument(help="Benchmark to run; see --list.", show_default=False)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="End within 45 s.")] = False,
    json_file: JsonFile = None,
    show_list: Annotated[bool, typer.Option("--list", help="Name the benchmarks and end.")] = False,
) -> None:
    """Run a benchmark and show its figures; below target it still exits 0."""
    from tools.bench import terminal

    raise typer.Exit(terminal.show_list() if show_list else terminal.run(name, quick, json_file))


@app.command()
def version() -> None:
    """Print the version of lambda-svc."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        typer.echo(installed("lambda-svc"))
    except PackageNotFoundError:
        _fail("no version: it runs from a source tree")


def _fail(message: str) -> None:
    typer.echo(f"lambda-svc: {message}", err=True)
    raise typer.Exit(1)


def main() -> None:
    """What the installed command calls: runs one subcommand and exits with its code."""
    app(prog_name="lambda-svc", args=sys.argv[1:])


if __name__ == "__main__":
    main()
