"""Which server tells a client what tables there are."""

import json

import pytest

from paramserver.epoch import Epoch, write_epoch
from paramserver.errors import RemoteError, UnknownTable
from paramserver.remote import Cluster
from paramserver.shard_map import ShardMap
from tests.paramserver.server.native_servers import address_of, native_server


def shows(epoch, **dims):
    tables = {name: {"dim": dim, "dtype": "f32", "ttl_s": 0.0, "default_row": [0.0] * dim}
              for name, dim in dims.items()}
    return lambda action, body, file: (0, json.dumps({"epoch": epoch, "tables": tables}))


def silent(action, body, file):
    return 2, json.dumps({"error": "StoreError", "message": "no answer"})


@pytest.fixture
def client(tmp_path):
    """client(*controls): a client of one shard with a replica for each control function, at epoch 2."""
    started, clusters = [], []

    def make(*controls):
        started.extend(native_server(tmp_path, control) for control in controls)
        (tmp_path / "shards.json").write_text(ShardMap(1, (tuple(map(address_of, started)),)).json())
        write_epoch(tmp_path, Epoch(2, 1, {"item": 0}))
        clusters.append(Cluster(tmp_path))
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.close()
    for server in started:
        server.stop(0)


@pytest.mark.parametrize("first", [shows(0), shows(1, older=3), silent])
def test_a_replica_without_the_newest_epoch_does_not_hide_its_tables(client, first):
    cluster = client(first, shows(2, item=5))
    assert cluster.table("item").dim == 5 and cluster.tables() == {"item": 5}


def test_when_none_shows_the_newest_the_least_behind_tells(client):
    cluster = client(shows(0), shows(1, item=4), shows(0))
    assert cluster.tables() == {"item": 4}
    with pytest.raises(UnknownTable, match="no table 'other'.* item"):
        cluster.table("other")


def test_no_answer_is_an_error(client):
    with pytest.raises(RemoteError, match="no server of the map answers.*no answer"):
        client(silent, silent).tables()
