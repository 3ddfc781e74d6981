"""A service whose tables live on shards ranks as one that loaded them, and says so when a shard is gone."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from lambda_svc import config as config_file
from lambda_svc.client import RankingClient
from lambda_svc.errors import ConfigError, PackageRejected
from lambda_svc.server import RankingServer, load_plans
from paramserver import Table
from paramserver.shard_map import shard_of
from tests.lambda_svc.world import MODEL, World, config_text
from tests.paramserver.server.native_servers import address_of, native_server
from tests.paramserver.server.servers import make_cluster, publish

SHARDS, REMOTE = 2, ("item", "genre")


class Shards:
    """The world's tables `item` and `genre` on two shards in this process, as epoch 1. dim: what they say it is."""

    def __init__(self, world_dir, folder, dim=4):
        tables = {name: Table.load(world_dir / "repository" / MODEL / "1" / f"tables/{name}.parquet")
                  for name in REMOTE}
        said = {name: {"dim": dim, "dtype": "f32", "default_row": table.default_row.tolist()}
                for name, table in tables.items()}
        self.servers = [native_server(control=lambda *_: (0, json.dumps({"epoch": 1, "tables": said})))
                        for _ in range(SHARDS)]
        for shard, server in enumerate(self.servers):
            server.set_place(1, shard, SHARDS)
            server.publish(1, [(name, part_of(table, shard).capsule, False) for name, table in tables.items()])
        self.cluster = make_cluster(folder, [[address_of(server)] for server in self.servers])
        publish(self.cluster, 1, 1, **dict.fromkeys(REMOTE, 0))

    def stop(self):
        for server in self.servers:
            server.stop(0)


def part_of(table, shard):
    """A shard's part of a table, at epoch 1."""
    part = Table(table.name, table.dim, default_row=table.default_row)
    ids = table.ids()
    mine = ids[shard_of(ids, SHARDS) == shard]
    part.upsert(mine, table.lookup(mine))
    part.publish(1, 0)
    return part


@pytest.fixture
def shards(world_dir, tmp_path):
    started = Shards(world_dir, tmp_path)
    yield started
    started.stop()


@pytest.fixture
def config(world_dir, tmp_path):
    """The world's files in a folder of the test's own, with the cluster in the config."""
    shutil.copytree(world_dir / "repository", tmp_path / "repository")
    for name in ("users.parquet", "items.parquet"):
        shutil.copy(world_dir / name, tmp_path / name)
    path = tmp_path / "config.yaml"
    path.write_text(config_text(tmp_path) + "paramserver: {cluster: cluster, hot_cache_bytes_max: 0}\n")
    return path


def ranked(client: RankingClient, world: World, user: int):
    return client.rank("rank", user, list(world.items))


def test_tables_on_shards_give_the_scores_of_tables_in_the_process(shards, config, world, client):
    loaded = config_file.load(config)
    plans = load_plans(loaded)
    assert plans["rank"].model.remote == set(REMOTE)
    with RankingServer(loaded, plans) as running, RankingClient(f"127.0.0.1:{running.port}") as remote:
        remote.wait_ready(10)
        for user in (3, 4, 10**9):
            here, there = ranked(client, world, user), ranked(remote, world, user)
            np.testing.assert_array_equal(there.candidate_ids, here.candidate_ids)
            np.testing.assert_array_equal(there.rank_scores, here.rank_scores)
            assert there.coverage == here.coverage


def test_a_shard_that_is_gone_lowers_the_coverage(shards, config, world):
    loaded = config_file.load(config)
    with RankingServer(loaded, load_plans(loaded)) as running, RankingClient(f"127.0.0.1:{running.port}") as remote:
        remote.wait_ready(10)
        whole = ranked(remote, world, 3).coverage
        shards.servers[0].stop(0)
        asked, answered = ranked(remote, world, 3).coverage["table/item"]
        assert asked == whole["table/item"][0] and 0 < answered < whole["table/item"][1]


def test_a_cluster_that_serves_another_dim_keeps_the_version_out(world_dir, config, tmp_path):
    other = Shards(world_dir, tmp_path, dim=5)
    with pytest.raises(PackageRejected, match=r"table 'item': the cluster at .* serves dim 5, the manifest says 4"):
        load_plans(config_file.load(config))
    other.stop()


def test_a_cluster_that_is_not_there_is_told_by_its_path(config, tmp_path):
    with pytest.raises(ConfigError, match=r"paramserver\.cluster: no such folder: .*cluster"):
        config_file.load(config)
    (tmp_path / "cluster").mkdir()
    with pytest.raises(ConfigError, match=r"paramserver: .*shards\.json"):
        load_plans(config_file.load(config))
