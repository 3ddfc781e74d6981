"""A server process with two tables of one shard, and clients of it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.paramserver.server.flight_client import WireClient
from tests.paramserver.server.servers import RunningServer, make_cluster, publish, table_file

IDS = np.arange(-500, 20_000, dtype=np.int64)
DIMS = {"item": 32, "user": 5}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RunningServer]]:
    """start(**config) gives a running server; directory, cluster and listen have defaults. All are stopped at the end.
    """
    running: list[RunningServer] = []

    def run(name: str = "server", **config: Any) -> RunningServer:
        addresses = [[f"grpc://127.0.0.1:{shard + 1}"] for shard in range(config.get("shards", 1))]
        made = {"listen": "127.0.0.1:0", "directory": str(tmp_path / name),
                "cluster": str(make_cluster(tmp_path, addresses)), **config}
        running.append(RunningServer(tmp_path, made, name))
        return running[-1]

    yield run
    for server in running:
        if server.process.poll() is None:
            server.kill()


@pytest.fixture
def connect() -> Iterator[Callable[..., WireClient]]:
    """connect(server, ...) gives a client, closed at the end."""
    clients: list[WireClient] = []

    def make(server: RunningServer, **options: Any) -> WireClient:
        clients.append(WireClient(server.address, **options))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Table files of package version 7."""
    return {name: str(table_file(tmp_path / f"{name}.parquet", IDS, dim)) for name, dim in DIMS.items()}


@pytest.fixture
def serving(start: Callable[..., RunningServer], connect: Callable[..., WireClient], files: dict[str, str],
            tmp_path: Path) -> tuple[RunningServer, WireClient]:
    """A server that serves package version 7 as epoch 1, and a client."""
    server = start()
    client = connect(server)
    assert client.action("add_snapshot", package_version=7, tables=files)["state"] == "added"
    publish(tmp_path / "cluster", 1, 7, item=0, user=0)
    return server, client


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, WireClient]]:
    """As `serving`, with metrics, for the tests of a module that change nothing."""
    folder = tmp_path_factory.mktemp("shared")
    cluster = make_cluster(folder, [["grpc://127.0.0.1:1"]])
    server = RunningServer(folder, {"listen": "127.0.0.1:0", "directory": str(folder / "server"),
                                    "cluster": str(cluster), "metrics": "127.0.0.1:0"})
    client = WireClient(server.address)
    tables = {name: str(table_file(folder / f"{name}.parquet", IDS, dim)) for name, dim in DIMS.items()}
    client.action("add_snapshot", package_version=7, tables=tables)
    publish(cluster, 1, 7, item=0, user=0)
    yield server, client
    client.close()
    server.stop()
