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
from paramserver.shard_map import MAP_FILE, ShardMap
from tools.ps.cluster import Cluster
from tools.ps.errors import PsError
from tools.ps.progress import bar

__all__ = ["LoadOptions", "init", "load", "serve"]

EXAMPLE_ROWS, EXAMPLE_DIM = 10_000, 16
_POLL_S = 0.1


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
    console = Console()
    shards = len(cluster.map.shards)
    if len(sources) == 1 and Path(sources[0]).is_dir() and shard_folder(sources[0], 0).is_dir():
        folder = Path(sources[0]).resolve()
        if shard_folder(folder, shards).exists() or not shard_folder(folder, shards - 1).is_dir():
            raise PsError(f"{folder}: not the snapshots of {shards} shard(s): `lambda-svc ps reshard` makes them")
    else:
        folder = (cluster.directory / "packages" / str(options.version)).resolve()
        for name, path in _named(sources):
            with bar(f"{name}: Parquet to snapshots") as tell:
                made = convert_parquet(path, folder, dtype=options.dtype, id_column=options.id_column,
                                       row_column=options.row_column, shards=shards, name=name,
                                       package_version=options.version, progress=tell)
            console.print(f"{name}: {made.rows:,} rows of {made.dim} {made.dtype}, {shards} snapshot(s) in {folder}",
                          highlight=False, soft_wrap=True)
            if made.error is not None:
                console.print(f"{name}: {made.error}", highlight=False, soft_wrap=True)
    _wait_for_servers(cluster, options.wait_s)
    return _add(cluster, folder, options.version)


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
    named = []
    for source in sources:
        name, sign, path = source.partition("=")
        chosen = Path(path if sign else source)
        if not chosen.exists():
            raise PsError(f"{chosen}: no such file; expected FILE.parquet, NAME=FILE.parquet or a folder of them")
        named.append((name if sign else chosen.stem, chosen))
    return named


def _wait_for_servers(cluster: Cluster, wait_s: float) -> None:
    give_up = time.monotonic() + wait_s
    with bar("servers that answer", len(cluster.replicas)) as tell:
        while True:
            answers = cluster.ask(lambda client, _: client.action("status"))
            silent = [answer for answer in answers if answer.error is not None]
            tell(len(answers) - len(silent))
            if not silent:
                return
            if time.monotonic() > give_up:
                raise PsError(f"{silent[0].replica} does not answer: {silent[0].error}\nstart it with `lambda-svc ps "
                              "serve CONFIG` and run this again: what was converted is replaced by the same bytes")
            time.sleep(_POLL_S)


def _add(cluster: Cluster, folder: Path, version: int) -> int:
    with bar("replicas that load it", len(cluster.replicas)) as tell:
        done: list[str] = []

        def add(client, replica) -> dict:
            tables = {path.stem: str(path) for path in sorted(shard_folder(folder, replica.shard).glob("*.snap"))}
            said = client.action("add_snapshot", package_version=version, tables=tables)
            done.append(replica.address)
            tell(len(done))
            return said

        answers = cluster.ask(add)
    for answer in answers:
        if answer.error is not None:
            answer.error.add_note(f"said by {answer.replica}; the snapshots must be readable at {folder} there")
            raise answer.error
    states = sorted({answer.value["state"] for answer in answers})
    Console().print(f"package version {version}: {' and '.join(states)} on {len(answers)} replica(s). Next: lambda-svc "
                    f"ps publish --cluster {cluster.directory}", highlight=False, soft_wrap=True)
    return 0


def _free_ports(count: int, first: int) -> list[int]:
    ports: list[int] = []
    probes: list[socket.socket] = []
    candidate = first
    while len(ports) < count:
        probe = socket.socket()
        try:
            probe.bind(("127.0.0.1", candidate))
            ports.append(probe.getsockname()[1])
            probes.append(probe)
        except OSError as error:
            probe.close()
            if candidate == 0 or candidate >= 65_535:
                raise PsError(f"--first-port: no {count} free ports from {first} on ({os.strerror(error.errno)})"
                              ) from error
        candidate += 1 if first else 0
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
