"""Real server processes under load while one of them is killed, stopped or stalled: zero failed lookups, and every
known id answered with its own bytes. Both replicas of a shard at once: answers within the deadline, and clean soon
after."""

import signal
import time

import numpy as np
import pytest
from paramserver import RowStatus
from paramserver.delta import Delta
from paramserver.remote import Cluster

from tests.paramserver.remote.cluster import Servers
from tests.paramserver.remote.load import Load
from tests.paramserver.remote.proxy import StallingProxy
from tests.paramserver.server.servers import publish, rows_of

DIM = 8
IDS = np.arange(-3000, 3000, dtype=np.int64) * 7_919_003_211


class Scene:
    """3 shards x 2 replicas, every server behind a proxy, and a client of them."""

    def __init__(self, folder):
        self.servers = Servers(folder, 3, 2, IDS, DIM)
        self.proxies = {place: StallingProxy(server.address) for place, server in self.servers.running.items()}
        self.servers.write_map([[self.proxies[s, r].address for r in range(2)] for s in range(3)])
        self.cluster = Cluster(self.servers.cluster, wire="f16")
        self.table = self.cluster.table("item", DIM)

    def close(self):
        self.cluster.close()
        for proxy in self.proxies.values():
            proxy.close()
        self.servers.stop()

    def until_all_up(self, seconds=30):
        ended = time.monotonic() + seconds
        while not all(lane.state == "up" for lane in self.cluster.lanes()):
            assert time.monotonic() < ended, self.cluster.lanes()
            time.sleep(0.02)

    def hurt(self, how, place):
        server = self.servers.running[place]
        if how == "kill":
            server.kill()
        elif how == "stop":
            server.process.send_signal(signal.SIGSTOP)
        else:
            self.proxies[place].stall()

    def heal(self, how, place):
        if how == "kill":
            self.servers.restart(place)
        elif how == "stop":
            self.servers.running[place].process.send_signal(signal.SIGCONT)
        else:
            self.proxies[place].resume()


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    scene = Scene(tmp_path_factory.mktemp("chaos"))
    try:
        scene.until_all_up()
        yield scene
    finally:
        scene.close()


def without_failures(load, lookups):
    load.pass_some(lookups)
    seen = load.take()
    assert seen.lookups >= lookups and seen.wrong == 0 and seen.failed == {} and seen.late == 0, seen


def fail_and_return(scene, how, place, lookups):
    with Load(scene.table, IDS, DIM) as load:
        without_failures(load, 50)
        scene.hurt(how, place)
        try:
            without_failures(load, lookups)
        finally:
            scene.heal(how, place)
        scene.until_all_up()
        without_failures(load, 50)


@pytest.mark.parametrize("how", ["kill", "stop", "stall"])
def test_any_one_process_may_fail(scene, how):
    fail_and_return(scene, how, (1, 0), 300)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "stop", "stall"])
def test_each_process_may_fail_again_and_again(scene, how):
    for _ in range(3):
        for place in list(scene.servers.running):
            fail_and_return(scene, how, place, 3000)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_without_a_shard_the_others_answer_in_time_and_it_comes_back(scene, how):
    with Load(scene.table, IDS, DIM, deadline_s=0.5) as load:
        load.pass_some(20)
        for replica in (0, 1):
            scene.hurt(how, (2, replica))
        try:
            load.pass_some(10)
            seen = load.take()
            assert seen.wrong == 0 and seen.late == 0, seen
            assert seen.failed and set(seen.failed) <= {RowStatus.UNAVAILABLE, RowStatus.DEADLINE}, seen
        finally:
            for replica in (0, 1):
                scene.heal(how, (2, replica))
        scene.until_all_up()
        load.pass_some(4)
        load.take()
        without_failures(load, 100)


def test_an_interrupted_publication_is_visible_on_no_shard(scene):
    changed = rows_of(IDS, DIM, sequence=1)
    delta = Delta(table="item", base_version=1, sequence=1, ids=IDS, rows=changed, deletes=np.empty(0, np.int64),
                  time_s=0)
    with Load(scene.table, IDS, DIM) as load:
        # The publisher dies after the shards have staged it, before the epoch's file is in its place.
        scene.servers.push(delta)
        left = scene.servers.cluster / "epochs" / ".00000000000000000002.json.tmp"
        left.write_text("{")
        without_failures(load, 100)
        left.unlink()
    status = np.empty(IDS.size, np.uint8)
    publish(scene.servers.cluster, 2, 1, item=1)
    scene.cluster.refresh()
    np.testing.assert_array_equal(scene.table.lookup(IDS, status=status), changed)
    assert set(status.tolist()) == {RowStatus.HIT}
    np.testing.assert_array_equal(scene.table.lookup(IDS, epoch=1), rows_of(IDS, DIM))
