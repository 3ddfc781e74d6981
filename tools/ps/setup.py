"""`ps init`, `ps load` and `ps serve`: from nothing to a cluster that answers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from paramserver.convert import convert_parquet, shard_folder
from paramserver.delta import check_table_name
from paramserver.errors import DeltaError, TableSchemaError, Unauthenticated
from paramserver.shard_map import MAP_FILE, ShardMap
from paramserver.snapshot import Snapshot
from tools.ps.cluster import Cluster
from tools.ps.errors import PsError
from tools.ps.progress import bar

__all__ = ["LoadOptions", "init", "load", "serve"]

EXAMPLE_ROWS, EXAMPLE_DIM = 10_000, 16
_POLL_S = 0.1
_PORT_MAX = 65_535


@dataclass(frozen=True)
class LoadOptions:
    """How Parquet becomes snapshots: `version` is the package version; `wait_s` how long to wait for servers."""

    version: int
    dtype: str | None = None
    id_column: str = "id"
    row_column: str = "row"
    wait_s: float = 30.0


def init(directory: Path, shards: int, replicas: int, first_port: int, example: bool) -> int:
    """Writes shards.json, a configuration for each server and, if asked, a table to try; ports of 127.0.0.1, free ones
    from first_port on (0: any that are free)."""
    if (directory / MAP_FILE).exists():
        raise PsError(f"{directory}: is a cluster already; `lambda-svc ps stats --cluster {directory}` shows it")
    ports = _free_ports(shards * replicas, first_port)
    addresses = [[f"127.0.0.1:{ports[shard * replicas + replica]}" for replica in range(replicas)]
                 for shard in range(shards)]
    servers = directory / "servers"
    servers.mkdir(parents=True, exist_ok=True)
    for shard, mine in enumerate(addresses):
        for replica, address in enumerate(mine):
            name = f"shard-{shard}-replica-{replica}"
            (servers / f"{name}.yaml").write_text(
                f"# One shard's server: lambda-svc ps serve {name}.yaml\n"
                f"listen: {address}\ncluster: ..\ndirectory: ../data/{name}\n"
                f"shard: {shard}\nshards: {shards}\nreplica: {replica}\n", encoding="utf-8")
    if example:
        _write_example(directory / "example.parquet")
    shard_map = ShardMap(1, tuple(tuple(f"grpc://{address}" for address in mine) for mine in addresses))
    (directory / MAP_FILE).write_text(shard_map.json(), encoding="utf-8")
    console = Console()
    console.print(f"{directory}: {shards} shard(s) x {replicas} replica(s). Next:", highlight=False, soft_wrap=True)
    source = directory / "example.parquet" if example else "TABLE.parquet"
    for line in (f"lambda-svc ps serve {servers}/*.yaml &",
                 f"lambda-svc ps load {source} --cluster {directory} --version 1",
                 f"lambda-svc ps publish --cluster {directory}"):
        console.print(f"  {line}", highlight=False, soft_wrap=True)
    return 0


def load(cluster: Cluster, sources: Sequence[str], options: LoadOptions) -> int:
    """Turns the tables of one package version into snapshots, a file a table and shard, and has every replica serve
    them. A source is FILE.parquet (the table is called as the file), NAME=FILE.parquet, or one folder of snapshots by
    shard, as `ps reshard` makes."""
    if len(sources) == 1 and Path(sources[0]).is_dir() and shard_folder(sources[0], 0).is_dir():
        folder = Path(sources[0]).resolve()
        tables = _snapshots(folder, len(cluster.map.shards), options.version)
    else:
        folder = (cluster.directory / "packages" / str(options.version)).resolve()
        tables = _converted(_named(sources), folder, len(cluster.map.shards), options)
    _wait_for_servers(cluster, options.wait_s)
    return _add(cluster, folder, tables, options.version)


def _snapshots(folder: Path, shards: int, version: int) -> list[str]:
    """The tables of a folder of snapshots by shard. Raises PsError unless it is of so many shards, each with the same
    tables, and of that package version."""
    if shard_folder(folder, shards).exists() or not shard_folder(folder, shards - 1).is_dir():
        raise PsError(f"{folder}: not the snapshots of {shards} shard(s): `lambda-svc ps reshard` makes them")
    tables = sorted(path.stem for path in shard_folder(folder, 0).glob("*.snap"))
    for shard in range(shards):
        paths = sorted(shard_folder(folder, shard).glob("*.snap"))
        if not tables or [path.stem for path in paths] != tables:
            raise PsError(f"{shard_folder(folder, shard)}: got snapshots of {[path.stem for path in paths]}, expected "
                          f"those of {tables or 'a table at least'} as in shard 0")
        for path in paths:
            found = Snapshot.open(path).header.package_version
            if found not in (0, version):
                raise PsError(f"--version: got {version}, but {path} is of package version {found}: pass --version "
                              f"{found}")
    return tables


def _converted(named: Sequence[tuple[str, Path]], folder: Path, shards: int, options: LoadOptions) -> list[str]:
    """Writes the snapshots of Parquet files into FOLDER/shard-NNNNN, and returns the tables."""
    console = Console()
    for name, path in named:
        try:
            with bar(f"{name}: Parquet to snapshots") as tell:
                made = convert_parquet(path, folder, dtype=options.dtype, id_column=options.id_column,
                                       row_column=options.row_column, shards=shards, name=name,
                                       package_version=options.version, progress=tell)
        except TableSchemaError as error:
            error.add_note("--id-column and --row-column name the columns; `lambda-svc ps load --help` shows them")
            raise
        console.print(f"{name}: {made.rows:,} rows of {made.dim} {made.dtype}, {shards} snapshot(s) in {folder}",
                      highlight=False, soft_wrap=True)
        if made.error is not None:
            console.print(f"{name}: {made.error}", highlight=False, soft_wrap=True)
    return [name for name, _ in named]


def serve(configs: Sequence[Path]) -> int:
    """Becomes the server of one configuration; runs those of several as processes of their own until SIGTERM, SIGINT or
    the first that ends, and returns the exit code."""
    command = [sys.executable, "-m", "paramserver.server"]
    if len(configs) == 1:
        os.execv(sys.executable, [*command, str(configs[0])])
    children = [subprocess.Popen([*command, str(config)]) for config in configs]
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda signum, _: asked.append(signum))
    while not asked and all(child.poll() is None for child in children):
        time.sleep(_POLL_S)  # a signal ends it early
    codes = {config: child.poll() for config, child in zip(configs, children, strict=True)}
    for child in children:
        if child.poll() is None:
            child.terminate()
    for child in children:
        child.wait()
    ended = {config: code for config, code in codes.items() if code is not None}
    for config, code in ended.items():
        print(f"lambda-svc: the server of {config} ended with {code}; the others were stopped", file=sys.stderr)
    return max((child.returncode for child in children), key=abs, default=0) if ended else 0


def _named(sources: Sequence[str]) -> list[tuple[str, Path]]:
    named: dict[str, Path] = {}
    for source in sources:
        given, sign, path = source.partition("=")
        chosen = Path(path if sign else source)
        if not chosen.exists():
            raise PsError(f"{chosen}: no such file; expected FILE.parquet, NAME=FILE.parquet or a folder of them")
        name = given if sign else chosen.stem
        try:
            check_table_name(name)
        except DeltaError as error:
            raise PsError(f"{source}: {error}; NAME=FILE names a table otherwise than its file") from error
        if name in named:
            raise PsError(f"{source}: table {name!r} is {named[name]} already; expected a name for each table: "
                          "NAME=FILE names it otherwise than its file")
        named[name] = chosen
    return list(named.items())


def _wait_for_servers(cluster: Cluster, wait_s: float) -> None:
    give_up = time.monotonic() + wait_s
    with bar("servers that answer", len(cluster.replicas)) as tell:
        while True:
            answers = cluster.ask(lambda client, _: client.action("status"))
            silent = [answer for answer in answers if answer.error is not None]
            tell(len(answers) - len(silent))
            if not silent:
                return
            for answer in silent:
                if isinstance(answer.error, Unauthenticated):  # waiting would not help
                    answer.error.add_note(f"said by {answer.replica}")
                    raise answer.error
            if time.monotonic() > give_up:
                raise PsError(f"{silent[0].replica} does not answer: {silent[0].error}\nstart it with `lambda-svc ps "
                              "serve CONFIG` and run this again: what was converted is replaced by the same bytes")
            time.sleep(_POLL_S)


def _add(cluster: Cluster, folder: Path, tables: Sequence[str], version: int) -> int:
    with bar("replicas that load it", len(cluster.replicas)) as tell:
        done: list[str] = []

        def add(client, replica) -> dict:
            paths = {name: str(shard_folder(folder, replica.shard) / f"{name}.snap") for name in tables}
            said = client.action("add_snapshot", package_version=version, tables=paths)
            done.append(replica.address)
            tell(len(done))
            return said

        answers = cluster.ask(add)
    for answer in answers:
        if answer.error is not None:
            answer.error.add_note(f"said by {answer.replica}, which read them from {folder} on its own machine")
            raise answer.error
    states = sorted({answer.value["state"] for answer in answers})
    newest = cluster.newest()
    # `publish` stays with the package version that is shown unless it is told another.
    option = f" --version {version}" if newest is not None and newest.package_version != version else ""
    Console().print(f"package version {version}: {' and '.join(states)} on {len(answers)} replica(s). Next: lambda-svc "
                    f"ps publish --cluster {cluster.directory}{option}", highlight=False, soft_wrap=True)
    return 0


def _free_ports(count: int, first: int) -> list[int]:
    ports: list[int] = []
    probes: list[socket.socket] = []
    candidate = first
    try:
        while len(ports) < count:
            if candidate > _PORT_MAX:
                raise PsError(f"--first-port: got {first}, from where on {len(ports)} ports are free; expected "
                              f"{count}, one a server: give a lower one, or 0 for any")
            probe = socket.socket()
            probes.append(probe)
            try:
                probe.bind(("127.0.0.1", candidate))
                ports.append(probe.getsockname()[1])
            except OSError as error:
                if first == 0:
                    raise PsError(f"--first-port: no {count} free ports ({os.strerror(error.errno)})") from error
            candidate += 1 if first else 0
    finally:
        for probe in probes:
            probe.close()
    return ports


def _write_example(path: Path) -> None:
    """Ids 0 to 9,999; the row of id i is i/10,000 in its first place and a wave in the others."""
    ids = np.arange(EXAMPLE_ROWS)
    rows = np.sin(ids[:, None] * (np.arange(EXAMPLE_DIM) + 1) / 100).astype(np.float32)
    rows[:, 0] = ids / EXAMPLE_ROWS
    values = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), EXAMPLE_DIM)
    pq.write_table(pa.table({"id": ids, "row": values}), path)
