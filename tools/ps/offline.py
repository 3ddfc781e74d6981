"""`ps snapshot`, `ps restore`, `ps reshard` and `ps diff`: states of a cluster as folders of files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from paramserver.convert import shard_folder
from paramserver.diff import diff as diff_states
from paramserver.epoch import newest_epoch, write_epoch
from paramserver.reshard import reshard as reshard_snapshots
from paramserver.server.config import load_config
from paramserver.snapshot import Snapshot
from paramserver.store import restore as restore_store
from tools.ps.cluster import Cluster
from tools.ps.errors import PsError
from tools.ps.progress import bar

__all__ = ["diff", "reshard", "restore", "snapshot"]


def snapshot(cluster: Cluster, folder: Path, epoch: int) -> int:
    """Has one replica of each shard write an epoch's state (0: the newest) to FOLDER/shard-NNNNN."""
    target = folder.resolve()
    if target.exists():
        raise PsError(f"{target}: is there already: a snapshot takes a folder of its own")
    if epoch == 0:
        newest = cluster.newest()
        if newest is None:
            raise PsError(f"{cluster.directory}: no epoch yet: `lambda-svc ps publish` makes one")
        epoch = newest.number
    with bar("shards written", len(cluster.map.shards)) as tell:
        for shard in range(len(cluster.map.shards)):
            cluster.ask_one_per_shard("snapshot", [shard], directory=str(shard_folder(target, shard)), epoch=epoch)
            tell(shard + 1)
    Console().print(f"epoch {epoch}: {len(cluster.map.shards)} shard(s) in {target}", highlight=False, soft_wrap=True)
    return 0


def restore(folder: Path, configs: Sequence[Path]) -> int:
    """Fills the directories of servers that do not run from a snapshot's folder; the cluster's directory gets the
    epoch when it has none."""
    console = Console()
    with bar("servers restored", len(configs)) as tell:
        for done, path in enumerate(configs, 1):
            config = load_config(path)
            source = shard_folder(folder, config.shard)
            if not source.is_dir() or shard_folder(folder, config.shards).exists():
                raise PsError(f"{folder}: no snapshot of shard {config.shard} of {config.shards}, which {path} is: "
                              "`lambda-svc ps reshard` makes other numbers of shards")
            with restore_store(source, config.directory, durability=config.durability) as store:
                epoch = store.epochs()[-1]
            if newest_epoch(config.cluster) is None:
                write_epoch(config.cluster, epoch)
            tell(done)
            console.print(f"{path}: epoch {epoch.number} of package version {epoch.package_version} in "
                          f"{config.directory}", highlight=False, soft_wrap=True)
    return 0


def reshard(source: Path, target: Path, shards: int) -> int:
    """Deals the snapshots of SOURCE/shard-NNNNN out to another number of shards, counted and fingerprinted."""
    sources = sorted(path for path in source.glob("shard-*") if path.is_dir())
    if not sources:
        raise PsError(f"{source}: no shard-NNNNN folders: `lambda-svc ps snapshot` and `ps load` make them")
    with bar("rows") as tell:
        made = reshard_snapshots(sources, target, shards, progress=tell)
    console = Console()
    console.print(f"{len(sources)} to {made.shards} shard(s) in {made.destination}; counts and fingerprints are the "
                  "same before and after:", highlight=False, soft_wrap=True)
    for name, rows in made.rows.items():
        console.print(f"  {name}: {rows:,} rows, fingerprint {made.fingerprints[name]:#x}", highlight=False)
    return 0


def diff(first: str, second: str, *, cluster: Cluster | None, tables: Sequence[str], show: int, as_json: bool) -> int:
    """Compares two states row by row: snapshot files, snapshot folders, or numbers of epochs that the cluster holds.
    Returns 1 when they differ, as diff does."""
    found = []
    with _folder_of(first, cluster) as one, _folder_of(second, cluster) as other:
        for name, mine, others in _pairs(one, other, tables):
            with bar(f"{name}: rows") as tell:
                states = diff_states(mine, others, progress=tell)
                ids = {"added": [], "removed": [], "changed": []}
                for batch in states:
                    for kind, shown in ids.items():
                        shown += getattr(batch, kind)[:max(0, show - len(shown))].tolist()
            found.append((name, states.summary, ids))
    if as_json:
        print(json.dumps([{"table": name, **asdict(summary), "ids": ids} for name, summary, ids in found]))
    else:
        _show(found)
    return int(any(not summary.equal for _, summary, _ in found))


def _show(found: Sequence[tuple]) -> None:
    console = Console()
    shown = Table("table and shard", "same", "changed", "added", "removed", "largest change", "mean change",
                  box=SIMPLE_HEAD)
    for name, one, _ in found:
        shown.add_row(name, f"{one.same:,}", f"{one.changed:,}", f"{one.added:,}", f"{one.removed:,}",
                      f"{one.max_change:.4g}", f"{one.mean_change:.4g}")
    console.print(shown)
    for name, one, ids in found:
        if one.default_row_changed:
            console.print(f"{name}: the default row differs", highlight=False)
        for kind, some in ids.items():
            if some:
                console.print(f"{name}: {kind}: {', '.join(map(str, some))}"
                              f"{' ...' if getattr(one, kind) > len(some) else ''}", highlight=False, soft_wrap=True)


@contextmanager
def _folder_of(state: str, cluster: Cluster | None) -> Iterator[Path]:
    """A folder or file of snapshots; an epoch's number is written to one that is removed again."""
    if not state.isdigit():
        path = Path(state)
        if not path.exists():
            raise PsError(f"{state}: no such file or folder; expected a snapshot, or an epoch's number with --cluster")
        yield path
        return
    if cluster is None:
        raise PsError(f"epoch {state}: of which cluster? pass --cluster DIR")
    with tempfile.TemporaryDirectory(prefix="lambda-svc-diff-", dir=cluster.directory) as folder:
        target = Path(folder) / "state"
        snapshot(cluster, target, int(state))
        yield target


def _pairs(one: Path, other: Path, tables: Sequence[str]) -> Iterator[tuple[str, Snapshot, Snapshot]]:
    mine, others = _files(one, tables), _files(other, tables)
    if set(mine) != set(others) or not mine:
        differ = sorted(set(mine) ^ set(others))
        raise PsError(f"{one} and {other} hold different tables or shards: {', '.join(differ) or 'none at all'}")
    for name in sorted(mine):
        yield name, Snapshot.open(mine[name]), Snapshot.open(others[name])


def _files(path: Path, tables: Sequence[str]) -> dict[str, Path]:
    if path.is_file():
        return {"table": path}
    files = sorted(path.glob("*.snap")) + sorted(path.glob("shard-*/*.snap"))
    return {str(file.relative_to(path).with_suffix("")): file for file in files
            if not tables or file.stem in tables}
