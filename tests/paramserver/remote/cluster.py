"""Whole clusters of real server processes, as clients meet them."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from paramserver.control import ControlClient
from paramserver.delta import Delta
from paramserver.shard_map import shard_of

from tests.paramserver.server.servers import RunningServer, make_cluster, publish, table_file, write_map


class Servers:
    """`shards` x `replicas` processes with one table "item" of ids rows_of(ids), served as epoch 1.

    addresses: what the map names instead of the servers, for proxies in front of them.
    """

    def __init__(self, folder: Path, shards: int, replicas: int, ids: np.ndarray, dim: int, dtype: str = "f16",
                 limits: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self.cluster = make_cluster(folder)
        self.shards = shards
        self._limits = {"poll_ms": 50, **(limits or {})}
        places = [(s, r) for s in range(shards) for r in range(replicas)]
        with ThreadPoolExecutor(len(places)) as pool:
            self.running = dict(zip(places, pool.map(self._start, places), strict=True))
        self.map_version = 0
        self.write_map([[self.running[s, r].address for r in range(replicas)] for s in range(shards)])
        of = shard_of(ids, shards)
        for shard in range(shards):
            (folder / f"part{shard}").mkdir()
        parts = [table_file(folder / f"part{s}" / "item.parquet", ids[of == s], dim, dtype) for s in range(shards)]
        with ThreadPoolExecutor(len(places)) as pool:
            list(pool.map(lambda place: self.add_table(place, parts[place[0]]), places))
        publish(self.cluster, 1, 1, item=0)

    def write_map(self, addresses: list[list[str]]) -> None:
        """A new map of these addresses."""
        self.map_version += 1
        write_map(self.cluster, addresses, self.map_version)

    def add_table(self, place: tuple[int, int], table: Path) -> None:
        """Give a server the snapshot of package version 1."""
        with ControlClient(self.running[place].address) as client:
            client.action("add_snapshot", package_version=1, tables={table.stem: str(table)})

    def push(self, delta: Delta) -> None:
        """Stage a delta on every server."""
        for server in self.running.values():
            with ControlClient(server.address) as client:
                client.push(delta, split=True)

    def restart(self, place: tuple[int, int]) -> None:
        """Start a server that ended, on its old port."""
        port = self.running[place].address.rpartition(":")[2]
        self.running[place] = self._start(place, port)

    def stop(self) -> None:
        """End them all."""
        with ThreadPoolExecutor(len(self.running)) as pool:
            list(pool.map(lambda server: server.kill() if server.process.poll() is None else None,
                          self.running.values()))

    def _start(self, place: tuple[int, int], port: str = "0") -> RunningServer:
        shard, replica = place
        name = f"s{shard}r{replica}"
        (self.folder / name).mkdir(exist_ok=True)
        return RunningServer(self.folder, {"listen": f"127.0.0.1:{port}", "directory": str(self.folder / name),
                                           "cluster": str(self.cluster), "shard": shard, "shards": self.shards,
                                           "replica": replica, "limits": self._limits}, name)
