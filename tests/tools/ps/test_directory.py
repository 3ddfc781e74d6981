"""Looking into one replica's directory while no server has it."""

import json

import numpy as np
import pytest

from paramserver import Table
from paramserver.epoch import Epoch
from paramserver.shard_map import shard_of
from paramserver.snapshot import write_snapshot
from paramserver.store import ShardStore

IDS = np.arange(100)
MINE = IDS[shard_of(IDS, 2) == 0]
OTHERS = IDS[shard_of(IDS, 2) == 1]


@pytest.fixture
def directory(tmp_path):
    """Shard 0 of 2 with a table `item`, published as epoch 3 of package version 9."""
    table = Table("item", 4)
    table.upsert(MINE, np.repeat(MINE.astype(np.float32)[:, None], 4, axis=1))
    write_snapshot(tmp_path / "item.snap", table, package_version=9)
    with ShardStore.open(tmp_path / "shard", shard=0, shards=2) as store:
        store.add_snapshot(9, {"item": tmp_path / "item.snap"})
        store.publish(Epoch(3, 9, {"item": 0}))
    return tmp_path / "shard"


def test_get_why_and_stats_without_a_server(ps, directory):
    found = ps("get", "item", MINE[1], -1 if shard_of(np.array([-1]), 2)[0] == 0 else MINE[2], "--directory", directory,
               "--json")
    assert found.exit_code == 0, found.output
    first = json.loads(found.stdout)[0]
    assert (first["status"], first["epoch"], first["row"]) == ("hit", 3, [float(MINE[1])] * 4)
    reason = ps("why", "item", MINE[0], "--directory", directory)
    assert reason.exit_code == 0 and "in RAM" in reason.output, reason.output
    stats = ps("stats", "--directory", directory)
    assert stats.exit_code == 0 and f"{len(MINE)}" in stats.output and "epoch 3" in stats.output


def test_an_id_of_another_shard_says_so(ps, directory):
    for words in (("get", "item", OTHERS[0]), ("why", "item", OTHERS[0])):
        result = ps(*words, "--directory", directory)
        assert result.exit_code == 1 and "shard 0 of 2: the id is another" in result.output, result.output


def test_a_directory_that_a_server_has_is_not_opened(ps, directory):
    with ShardStore.open(directory, shard=0, shards=2):
        result = ps("stats", "--directory", directory)
    assert result.exit_code == 1 and str(directory) in result.output and "one process writes" in result.output


def test_exactly_one_of_cluster_and_directory(ps, tmp_path):
    for words in ((), ("--cluster", tmp_path, "--directory", tmp_path)):
        result = ps("stats", *words)
        assert result.exit_code == 1 and "--cluster DIR for a running cluster" in result.output
    assert "no replica's directory" in ps("stats", "--directory", tmp_path).output
