"""The contract suite of all tables, on the remote client."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from paramserver.arrays import DTYPES
from paramserver.remote import Cluster

from tests.paramserver.remote.kind import SHARDS, RemoteKind
from tests.paramserver.server.native_servers import address_of, native_server
from tests.paramserver.server.servers import make_cluster, publish
from tests.paramserver.test_contract import *  # noqa: F403  (the tests, to be collected here with this `make`)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[Any], Cluster]]:
    """Two servers and a client of them."""
    servers = [native_server() for _ in range(SHARDS)]
    for shard, server in enumerate(servers):
        server.set_place(1, shard, SHARDS)
    folder = make_cluster(tmp_path_factory.mktemp("contract"), [[address_of(server)] for server in servers])
    publish(folder, 1, 1, t=0)
    with Cluster(folder, deadline_ms=20_000) as cluster:
        yield servers, cluster
    for server in servers:
        server.stop(0)


@pytest.fixture(params=DTYPES)
def make(request: pytest.FixtureRequest, shards: tuple[list[Any], Cluster]) -> Callable[..., Any]:
    """make(dim, **options) gives a remote table of the parameter's stored type."""
    servers, cluster = shards
    return lambda dim, **options: RemoteKind(servers, cluster, dim, **{"dtype": request.param, **options})
