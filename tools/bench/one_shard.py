"""A cluster of one shard for benchmarks: its server in a process of its own, a table and an epoch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paramserver import Table
from paramserver.control import ControlClient
from paramserver.epoch import Epoch, write_epoch
from paramserver.shard_map import MAP_FILE, ShardMap

__all__ = ["one_shard"]


@contextmanager
def one_shard(folder: Path, table: Table) -> Iterator[Path]:
    """Serves a copy of `table`, published as epoch 1 of package version 1; gives the cluster's directory."""
    cluster = folder / "cluster"
    cluster.mkdir()
    config = folder / "shard.yaml"
    config.write_text("listen: 127.0.0.1:0\ncluster: cluster\ndirectory: shard\n", encoding="utf-8")
    command = [sys.executable, "-m", "paramserver.server", str(config), "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = json.loads(server.stdout.readline())["address"]
        (cluster / MAP_FILE).write_text(ShardMap(1, ((address,),)).json(), encoding="utf-8")
        path = folder / f"{table.name}.parquet"
        table.save(path)
        with ControlClient(address, timeout_s=600) as control:
            control.action("add_snapshot", package_version=1, tables={table.name: str(path)})
        write_epoch(cluster, Epoch(1, 1, {table.name: 0}))
        yield cluster
    finally:
        server.terminate()
        server.wait()
