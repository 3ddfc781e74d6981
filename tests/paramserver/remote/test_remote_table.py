"""A remote table beside the table that its shards serve: the same rows, statuses and bits."""

import gc
import json
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from paramserver import RowStatus, Table
from paramserver.errors import ClosedError, OptionError, ShardMapError
from paramserver.hot_cache import HotRowCache
from paramserver.remote import Cluster
from paramserver.shard_map import shard_of

from tests.paramserver.remote.test_faults import until
from tests.paramserver.server.native_servers import address_of, native_server
from tests.paramserver.server.servers import make_cluster, publish, rows_of, write_map

DIM = 5
IDS = np.concatenate([np.arange(-500, 500) * 7_919_003_211, [2**63 - 1, -(2**63)]]).astype(np.int64)


def shard_table(ids, dtype="f32", dim=DIM):
    table = Table("item", dim, dtype=dtype, default_row=np.full(dim, -1, np.float32))
    table.upsert(ids, rows_of(ids, dim))
    table.publish(1, 0)
    return table


class Shards:
    """Servers in this process, one a shard, of one table's rows."""

    def __init__(self, folder, shards, ids=IDS, dtype="f32", version=1):
        self.whole = shard_table(ids, dtype)
        self.servers = [native_server() for _ in range(shards)]
        places = shard_of(ids, shards)
        for shard, server in enumerate(self.servers):
            server.set_place(version, shard, shards)
            server.publish(1, [("item", shard_table(ids[places == shard], dtype).capsule, False)])
        self.addresses = [[address_of(server)] for server in self.servers]
        self.cluster = make_cluster(folder, self.addresses, version)
        publish(self.cluster, 1, 1, item=0)


@pytest.fixture
def shards(tmp_path):
    made = Shards(tmp_path, 3)
    yield made
    for server in made.servers:
        server.stop(0)


@pytest.fixture
def remote(shards):
    with Cluster(shards.cluster, deadline_ms=20_000) as cluster:
        yield cluster


def some_ids(n, seed=1):
    """Known and unknown ids, many of them more than once."""
    random = np.random.default_rng(seed)
    return random.choice(np.concatenate([IDS, random.integers(-2**63, 2**63 - 1, 300)]), n)


@pytest.mark.parametrize("n", [0, 1, 31, 33, 5000])
def test_rows_and_statuses_are_those_of_the_table(shards, remote, n):
    table = remote.table("item", DIM, default_row=[-1] * DIM)
    ids = some_ids(n)
    status, expected = np.full(n, 9, np.uint8), np.full(n, 9, np.uint8)
    np.testing.assert_array_equal(table.lookup(ids, status=status), shards.whole.lookup(ids, status=expected))
    np.testing.assert_array_equal(status, expected)
    stats = table.stats()
    assert stats.unique_ids == np.unique(ids).size and stats.messages <= 3 and stats.ids == n


@pytest.mark.parametrize("mode", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "int8"])
def test_bags_have_the_bits_of_the_table(tmp_path, mode, dtype):
    shards = Shards(tmp_path, 2, dtype=dtype)
    ids = some_ids(900)
    offsets = np.concatenate([[0, 0], np.sort(np.random.default_rng(2).integers(0, 900, 60)), [900]]).astype(np.int32)
    weights = np.random.default_rng(3).standard_normal(900).astype(np.float32)
    with Cluster(shards.cluster, deadline_ms=20_000) as cluster:
        for wire in {"f32", dtype} - {"int8"}:  # an int8 row is rounded anew for the wire
            table = cluster.table("item", DIM, wire=wire)
            for w in (None, weights):
                for out in (np.float32, np.float16):
                    got = table.lookup_pooled(ids, offsets, mode, w, out=np.empty((offsets.size - 1, DIM), out))
                    want = shards.whole.lookup_pooled(ids, offsets, mode, w,
                                                      out=np.empty((offsets.size - 1, DIM), out))
                    assert got.tobytes() == want.tobytes(), (wire, out)
    for server in shards.servers:
        server.stop(0)


def test_narrow_wires_round_and_no_more(shards, remote):
    exact = shards.whole.lookup(IDS)
    for wire, off in (("f16", 0), ("bf16", 2.0), ("int8", 0.05)):
        rows = remote.table("item", DIM, wire=wire).lookup(IDS)
        assert np.abs(rows - exact).max() <= off, wire


def test_a_newer_epoch_is_learnt_and_an_unknown_one_is_unavailable(shards, remote):
    table = remote.table("item", DIM)
    status = np.empty(2, np.uint8)
    table.lookup(IDS[:2], status=status, epoch=7)
    assert set(status.tolist()) == {RowStatus.UNAVAILABLE}
    assert table.epoch == 1
    newer = shard_table(IDS)
    newer.apply(1, IDS[:1], np.full((1, DIM), 5, np.float32))
    newer.publish(2, 1)
    for server in shards.servers:
        server.publish(2, [("item", newer.capsule, False)])
    publish(shards.cluster, 2, 1, item=1)
    remote.refresh()
    assert table.epoch == 2
    np.testing.assert_array_equal(table.lookup(IDS[:1]), np.full((1, DIM), 5))
    np.testing.assert_array_equal(table.lookup(IDS[:1], epoch=1), rows_of(IDS[:1], DIM))


def test_before_the_first_epoch_everything_is_unavailable(shards, tmp_path):
    (tmp_path / "new").mkdir()
    with Cluster(make_cluster(tmp_path / "new", shards.addresses)) as cluster:
        status = np.empty(3, np.uint8)
        rows = cluster.table("item", DIM, default_row=[4] * DIM).lookup(IDS[:3], status=status)
        assert set(status.tolist()) == {RowStatus.UNAVAILABLE} and (rows == 4).all()


def test_another_map_is_an_error_and_then_the_new_map_is_used(shards, remote):
    table = remote.table("item", DIM)
    for shard, server in enumerate(shards.servers):
        server.set_place(2, shard, 3)
    status = np.empty(4, np.uint8)
    rows = table.lookup(IDS[:4], status=status, deadline_s=0.2)
    assert set(status.tolist()) <= {RowStatus.UNAVAILABLE, RowStatus.DEADLINE} and not rows.any()
    # The map is written while a lookup waits for it.
    threading.Timer(0.1, write_map, (shards.cluster, shards.addresses, 2)).start()
    np.testing.assert_array_equal(table.lookup(IDS, status=np.empty(IDS.size, np.uint8)), rows_of(IDS, DIM))
    assert remote.map.version == 2 and table.stats().mismatches > 0


def test_shards_that_lag_behind_the_map_are_waited_for(shards, remote):
    table = remote.table("item", DIM)
    write_map(shards.cluster, shards.addresses, 2)
    remote.refresh()
    timer = threading.Timer(0.15, lambda: [s.set_place(2, i, 3) for i, s in enumerate(shards.servers)])
    timer.start()
    np.testing.assert_array_equal(table.lookup(IDS), rows_of(IDS, DIM))
    timer.join()


def test_a_bad_map_changes_nothing_and_is_told(shards, remote):
    table = remote.table("item", DIM)
    file = shards.cluster / "shards.json"
    for bad in ("{", '{"version": 3, "shards": []}', "[]"):
        file.write_text(bad)
        remote.refresh()
        assert "shards.json" in remote.problem
        np.testing.assert_array_equal(table.lookup(IDS), rows_of(IDS, DIM))
    write_map(shards.cluster, [[f"grpc://127.0.0.1:{port}"] for port in (1, 2, 3)], 1)
    remote.refresh()
    assert "raise the version" in remote.problem and len(remote.map.shards) == 3
    write_map(shards.cluster, shards.addresses, 1)
    remote.refresh()
    assert remote.problem is None
    (shards.cluster / "shards.json").unlink()
    with pytest.raises(ShardMapError, match=r"shards\.json"):
        Cluster(shards.cluster)


def test_replicas_leave_and_come_with_the_map(shards, remote):
    table = remote.table("item", DIM)
    extra = native_server()
    extra.set_place(2, 0, 3)
    extra.publish(1, [("item", shard_table(IDS[shard_of(IDS, 3) == 0]).capsule, False)])
    for shard, server in enumerate(shards.servers):
        server.set_place(2, shard, 3)
    write_map(shards.cluster, [[address_of(extra)], *shards.addresses[1:]], 2)
    remote.refresh()
    assert address_of(extra) in {lane.address for lane in remote.lanes()}
    shards.servers[0].stop(0)
    np.testing.assert_array_equal(table.lookup(IDS), rows_of(IDS, DIM))
    extra.stop(0)


def test_a_cache_in_front_gives_the_same_and_asks_less(shards, remote):
    cached = remote.table("item", DIM, default_row=[-1] * DIM, hot_cache_bytes_max=1 << 20,
                          row_age_max_s=0)
    assert isinstance(cached, HotRowCache)
    ids = some_ids(700)
    offsets = np.arange(0, 701, 7, dtype=np.int32)
    for _ in range(3):
        np.testing.assert_array_equal(cached.lookup(ids), shards.whole.lookup(ids))
        assert cached.lookup_pooled(ids, offsets, "mean").tobytes() == \
            shards.whole.lookup_pooled(ids, offsets, "mean").tobytes()
    stats = cached.stats()
    known = int(np.isin(ids, IDS).sum())
    assert stats.hits == 5 * known and stats.misses == 6 * 700 - 5 * known


def test_a_cache_of_a_table_whose_rows_expire_asks_for_them_again(shards):
    told = {"epoch": 1, "tables": {"item": {"dim": DIM, "ttl_s": 0.5, "default_row": [-1] * DIM}}}
    speaker = native_server(control=lambda *_: (0, json.dumps(told)))
    first, *others = shards.addresses
    write_map(shards.cluster, [[address_of(speaker), *first], *others], 1)
    cluster = Cluster(shards.cluster)
    cached = cluster.table("item", DIM, hot_cache_bytes_max=1 << 20)
    until(lambda: cached.lookup(IDS[:9]) is not None and cached.stats().misses >= 3 * 9)
    cluster.close()
    speaker.stop(0)


def test_tables_of_a_closed_cluster_say_so(shards):
    cluster = Cluster(shards.cluster)
    table = cluster.table("item", DIM)
    cached = cluster.table("item", DIM, hot_cache_bytes_max=1 << 20, row_age_max_s=0)
    native_reader = HotRowCache(_Holder("item", DIM, table.capsule), 1 << 20)
    assert table.lookup(IDS[:1]).any() and cached.lookup(IDS[1:2]).any()
    cluster.close()
    cluster.close()
    for reader in (table, cached):
        with pytest.raises(ClosedError):
            reader.lookup(IDS[:1])
        with pytest.raises(ClosedError):
            reader.lookup_pooled(IDS[:1], np.array([0, 1], np.int32))
        with pytest.raises(ClosedError):
            _ = reader.capsule
    status = np.empty(1, np.uint8)
    native_reader.lookup(IDS[:1], status=status)
    assert status.tolist() == [RowStatus.UNAVAILABLE]
    with pytest.raises(ClosedError):
        cluster.table("item", DIM)


def test_a_cluster_that_only_native_code_reads_stays_open_and_is_watched(shards):
    cluster = Cluster(shards.cluster, poll_ms=10)
    readers = [HotRowCache(_Holder("item", DIM, cluster.table("item", DIM).capsule), 1 << 20)]
    watching = [one for one in threading.enumerate() if one.name == "paramserver-cluster-watch"]
    del cluster
    gc.collect()
    np.testing.assert_array_equal(readers[0].lookup(IDS[:50]), rows_of(IDS[:50], DIM))
    publish(shards.cluster, 2, 1, item=0)
    until(lambda: readers[0].epoch == 2)
    readers.clear()
    gc.collect()
    for thread in watching:
        thread.join(10)
        assert not thread.is_alive()


@dataclass
class _Holder:
    """A table of which only the capsule is known."""

    name: str
    dim: int
    capsule: Any


@pytest.mark.parametrize(("options", "message"), [
    ({"wire": "f64"}, "wire is 'f64'"), ({"deadline_ms": 0}, "deadline_ms is 0"), ({"hedge_ms": -1}, "hedge_ms is -1"),
    ({"lookups_max": True}, "lookups_max is True"),
])
def test_options_out_of_range_are_refused(shards, options, message):
    with pytest.raises(OptionError, match=message):
        Cluster(shards.cluster, **options)
