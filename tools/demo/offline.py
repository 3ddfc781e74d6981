"""Steps 1 to 3: the offline job. Reads ratings, trains, exports a package and pushes it into a repository."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from models.features import FeatureSet, features_for
from models.movielens import load
from models.notices import without_notices
from models.push import push
from tools.demo.text import heading

if TYPE_CHECKING:
    from models.train import Evaluation, Trained
    from tools.demo import DemoOptions

__all__ = ["Offline", "progress_bar", "train_and_push"]


@dataclass(frozen=True)
class Offline:
    """What the offline job leaves behind: the trained model, its features and the repository it was pushed into."""

    trained: Trained
    features: FeatureSet
    repository: Path


def progress_bar(console: Console) -> Progress:
    """A bar with counts and elapsed time."""
    columns = (TextColumn("   {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def train_and_push(folder: Path, options: DemoOptions, console: Console) -> Offline:
    """Runs steps 1 to 3 below `folder`."""
    heading(console, 1, "Read ratings")
    dataset = load(options.data, options.seed)
    console.print(f"   {dataset.origin}", highlight=False)
    console.print(f"   {len(dataset.ratings):,} ratings, {len(dataset.users):,} users, {len(dataset.items):,} films")

    heading(console, 2, "Train DIN with MMoE heads, last 20% by time held out")
    with console.status("   loading TensorFlow"):
        with without_notices():  # the first import of tensorflow
            from models.export import export
            from models.train import evaluate, train
            from models.trained import servable
    with progress_bar(console) as bar:
        task = bar.add_task("training", total=None)
        trained = train(
            dataset,
            seed=options.seed,
            progress=lambda at: bar.update(
                task, total=at.epochs * at.steps, completed=(at.epoch - 1) * at.steps + at.step,
                description=f"epoch {at.epoch}/{at.epochs}, loss {at.loss:.4f}",
            ),
        )
    with console.status("   evaluating on the held-out part"):
        evaluation = evaluate(trained)
    _print_quality(console, evaluation)

    heading(console, 3, "Export, push")
    with console.status("   cutting tables, freezing, scoring golden rows"):
        package = export(servable(trained), folder / "exported", version=1)
    repository = folder / "repository"
    repository.mkdir(exist_ok=True)
    pushed = push(package, repository)
    _print_package(console, pushed)
    return Offline(trained, features_for(dataset), repository)


def _print_quality(console: Console, evaluation: Evaluation) -> None:
    table = Table("test AUC", "liked", "95% interval over users", box=None, pad_edge=False, padding=(0, 3))
    low, high = evaluation.interval
    table.add_row("[bold]DIN MMoE[/]", f"[bold]{evaluation.auc:.4f}[/]", f"{low:.4f} .. {high:.4f}")
    names = {"count": "train count", "item_mean": "smoothed item mean", "logistic": "logistic: item mean, past mean"}
    for name, auc in evaluation.baselines.items():
        table.add_row(names.get(name, name), f"{auc:.4f}", "")
    console.print(_indented(table))
    console.print(f"   engaged: AUC {evaluation.auc_engaged:.4f}", highlight=False)


def _print_package(console: Console, pushed: Path) -> None:
    from models.package import read_manifest

    manifest = read_manifest(pushed)
    graph = manifest.files[manifest.graph.file].bytes
    console.print(f"   {manifest.model} version {manifest.version}: graph {graph / 1024:.0f} KiB, tables (rows x dim):")
    for table in manifest.tables:
        console.print(f"     {table.name} {table.rows:,} x {table.dim}", highlight=False)


def _indented(renderable):
    from rich.padding import Padding

    return Padding(renderable, (0, 0, 0, 3))
