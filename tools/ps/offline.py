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
from rich.table import Column, Table

from paramserver.convert import shard_folder
from paramserver.diff import diff as diff_states
from paramserver.epoch import epoch_numbers, newest_epoch, read_epoch, write_epoch
from paramserver.reshard import reshard as reshard_snapshots
from paramserver.server.config import ServerConfig, load_config
from paramserver.server.table_options import table_options
from paramserver.snapshot import Snapshot
from paramserver.store import restore as restore_store
from paramserver.store.bases import read_manifest
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
    _write(cluster, target, epoch)
    Console().print(f"epoch {epoch}: {len(cluster.map.shards)} shard(s) in {target}", highlight=False, soft_wrap=True)
    return 0


def _write(cluster: Cluster, target: Path, epoch: int) -> None:
    with bar("shards written", len(cluster.map.shards)) as tell:
        for shard in range(len(cluster.map.shards)):
            cluster.ask_one_per_shard("snapshot", [shard], directory=str(shard_folder(target, shard)), epoch=epoch)
            tell(shard + 1)


def restore(folder: Path, configs: Sequence[Path]) -> int:
    """Fills the directories of servers that do not run from a snapshot's folder; the cluster's directory gets the
    epoch when it has none. Nothing is written when one of them cannot be."""
    if not folder.is_dir():
        raise PsError(f"{folder}: no such folder; expected one that `lambda-svc ps snapshot` made")
    console, chosen = Console(), [(path, load_config(path)) for path in configs]
    for path, config in chosen:
        _expect_shard(folder, path, config)
    with bar("servers restored", len(configs)) as tell:
        for done, (path, config) in enumerate(chosen, 1):
            # With the server's own options: a tiered table is larger than this machine's memory.
            with restore_store(shard_folder(folder, config.shard), config.directory, durability=config.durability,
                               options=table_options(config), reserve_bytes=config.limits.reserve_bytes) as store:
                epoch = store.epochs()[-1]
            if newest_epoch(config.cluster) is None:
                write_epoch(config.cluster, epoch)
            tell(done)
            console.print(f"{path}: epoch {epoch.number} of package version {epoch.package_version} in "
                          f"{config.directory}", highlight=False, soft_wrap=True)
    return 0


def _expect_shard(folder: Path, path: Path, config: ServerConfig) -> None:
    """Raises PsError unless the folder has the configuration's shard, and its epoch is one of the cluster's past: a
    server that shows another than the cluster's serves nothing."""
    source = shard_folder(folder, config.shard)
    if not source.is_dir() or shard_folder(folder, config.shards).exists():
        raise PsError(f"{folder}: no snapshot of shard {config.shard} of {config.shards}, which {path} is: "
                      "`lambda-svc ps reshard` makes other numbers of shards")
    epoch, newest = read_manifest(source).epoch, newest_epoch(config.cluster)
    if epoch is None or newest is None:
        return
    number = epoch.number
    # Files of epochs that nobody holds are removed, so one that is not there may have been the same.
    same = number not in epoch_numbers(config.cluster) or read_epoch(config.cluster, number) == epoch
    if newest.number < number or not same:
        raise PsError(f"{folder}: holds epoch {number}, but {config.cluster}, which is at epoch {newest.number}, has "
                      f"{'none of that number' if newest.number < number else 'another one'}: expected a snapshot of "
                      "this cluster's past, or a cluster without epochs/")


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
        for name, mine, others in _pairs((first, one), (second, other), tables):
            with bar(f"{name}: checksums") as tell:
                for state in (mine, others):
                    state.verify(tell)
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
    # Names are told apart by their ends, which a narrow terminal must not cut off.
    names = Column("table and shard", min_width=max(len(name) for name, _, _ in found))
    shown = Table(names, "same", "changed", "added", "removed", "largest change", "mean change", box=SIMPLE_HEAD,
                  padding=(0, 1, 0, 0))
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
    with tempfile.TemporaryDirectory(prefix="lambda-svc-diff-", dir=cluster.directory.resolve()) as folder:
        target = Path(folder) / "state"
        _write(cluster, target, int(state))
        yield target


def _pairs(one: tuple[str, Path], other: tuple[str, Path],
           tables: Sequence[str]) -> Iterator[tuple[str, Snapshot, Snapshot]]:
    """The tables of two states, each as it was called and where it lies."""
    mine, others = _files(one[1], tables), _files(other[1], tables)
    if not mine and not others:
        what = f"of {', '.join(tables)} " if tables else ""
        raise PsError(f"{one[0]} and {other[0]}: no snapshots {what}in either; expected NAME.snap, or shard-NNNNN with "
                      "such files")
    if set(mine) != set(others):
        differ = sorted(set(mine) ^ set(others))
        raise PsError(f"{one[0]} and {other[0]} hold different tables or shards, {', '.join(differ)} only one of them: "
                      "--table NAME compares what both have, `lambda-svc ps reshard` makes equal numbers of shards")
    for name in sorted(mine):
        yield name, Snapshot.open(mine[name]), Snapshot.open(others[name])


def _files(path: Path, tables: Sequence[str]) -> dict[str, Path]:
    if path.is_file():
        return {"table": path}
    files = sorted(path.glob("*.snap")) + sorted(path.glob("shard-*/*.snap"))
    return {str(file.relative_to(path).with_suffix("")): file for file in files
            if not tables or file.stem in tables}
