"""Clusters of servers inside the test's process, ended after each test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from paramserver.remote import Cluster

from tests.paramserver.remote.fakes import FakeShard
from tests.paramserver.server.servers import make_cluster, publish, write_map


@pytest.fixture
def fake() -> Iterator[Callable[..., FakeShard]]:
    """fake(script) starts a shard that answers as told."""
    started: list[FakeShard] = []

    def start(script: Callable[..., Any]) -> FakeShard:
        started.append(FakeShard(script))
        return started[-1]

    yield start
    for shard in started:
        shard.stop()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """client(addresses[shard][replica], **options) gives a Cluster of them, at epoch 1 and map version 1."""
    opened: list[Cluster] = []

    def connect(addresses: list[list[str]], epoch: int = 1, **options: Any) -> Cluster:
        folder = make_cluster(tmp_path)
        write_map(folder, addresses, 1)
        if epoch:
            publish(folder, epoch, 1, item=0)
        opened.append(Cluster(folder, **options))
        return opened[-1]

    yield connect
    for cluster in opened:
        cluster.close()
