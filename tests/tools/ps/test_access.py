"""Tokens, replicas that lack an epoch, and what is written where nobody looks: without a running shard."""

import json
import time

import pytest

from paramserver.errors import Unauthenticated
from paramserver.shard_map import ShardMap
from tests.paramserver.server.native_servers import address_of, native_server
from tools.ps.cluster import Access, Cluster
from tools.ps.progress import bar

TOKEN = "t" * 20


@pytest.fixture
def cluster_of(tmp_path):
    """cluster_of(*controls): the directory of a cluster of one shard, a replica for each control function."""
    started = []

    def make(*controls, **options):
        for number, control in enumerate(controls):
            folder = tmp_path / str(number)
            folder.mkdir()
            started.append(native_server(folder, control, **options))
        (tmp_path / "shards.json").write_text(ShardMap(1, (tuple(map(address_of, started)),)).json())
        return tmp_path

    yield make
    for server in started:
        server.stop(0)


def lacks_the_epoch(action, body, file):
    return 1, json.dumps({"error": "EpochError", "message": "held here are [1]"})


def has_it(action, body, file):
    return 0, json.dumps({"epoch": 2})


def test_a_replica_that_lacks_the_epoch_is_passed_over(cluster_of):
    (answer,) = Cluster(cluster_of(lacks_the_epoch, has_it)).ask_one_per_shard("get", epoch=2)
    assert answer.value == {"epoch": 2} and answer.replica.number == 1


def test_a_wrong_token_is_not_waited_for(ps, cluster_of, tmp_path):
    directory = cluster_of(has_it, tokens=[TOKEN], control_tokens=[TOKEN])
    (tmp_path / "wrong").write_text("x" * 20)
    assert ps("init", tmp_path / "other", "--example", "--first-port", 0).exit_code == 0
    began = time.monotonic()
    result = ps("load", tmp_path / "other" / "example.parquet", "--cluster", directory, "--version", 1, "--wait-s", 60,
                "--token-file", tmp_path / "wrong")
    assert result.exit_code == 1 and "pass --token-file FILE" in result.output, result.output
    assert "start it with" not in result.output and time.monotonic() - began < 30
    (answer,) = Cluster(directory, Access(tmp_path / "wrong")).ask(lambda client, _: client.action("status"))
    assert isinstance(answer.error, Unauthenticated)


def test_a_bar_leaves_nothing_in_a_file(capfd):
    with bar("rows", 10) as tell:
        tell(10)
    assert capfd.readouterr() == ("", "")
