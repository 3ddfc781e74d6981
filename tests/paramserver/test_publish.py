"""Publication over shards and replicas: every member has it, or nobody sees it; who was away catches up."""

import numpy as np
import pytest
from paramserver import durable
from paramserver.delta import Delta
from paramserver.epoch import newest_epoch, read_epochs
from paramserver.errors import (
    DeltaError,
    EpochError,
    OptionError,
    RemoteError,
    SequenceConflict,
    SequenceGap,
    ShardMapError,
    StoreError,
)
from paramserver.publish import Publisher, StoreMember, catch_up, rollback

from tests.paramserver.store.making import VERSION, Clock, delta_of, expected, rows_at, serving

SHARDS, REPLICAS = 3, 2


class Flaky(StoreMember):
    """A member that can be unreachable."""

    down = False

    def stage(self, delta):
        return self._reached().stage(delta)

    def status(self):
        return self._reached().status()

    def _reached(self):
        if self.down:
            raise RemoteError(f"{self.name} does not answer")
        return super()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def members(tmp_path, clock):
    stores = [serving(tmp_path / f"{shard}-{replica}", shard=shard, shards=SHARDS, clock=clock, hold_s=10.0)
              for shard in range(SHARDS) for replica in range(REPLICAS)]
    yield [Flaky(store, f"shard-{store.shard}-{i % REPLICAS}") for i, store in enumerate(stores)]
    for store in stores:
        store.close()


@pytest.fixture
def publisher(tmp_path, members):
    return Publisher(tmp_path / "cluster", members, shards=SHARDS)


def adopt(publisher, members):
    return [member.store.adopt(publisher._cluster) for member in members]


def rows(members, epoch=0):
    """{id: row} over all shards, each replica the same."""
    whole = {}
    for shard in range(SHARDS):
        replicas = [rows_at(m.store, epoch) for m in members if m.shard == shard]
        assert all(replica == replicas[0] for replica in replicas)
        whole |= replicas[0]
    return whole


def wide(sequence):
    return delta_of(sequence, ids=range(0, 60, sequence), deletes=(-sequence,))


def test_a_publication_reaches_every_shard_and_replica(publisher, members):
    said = publisher.push_delta(wide(1))
    assert said == {member.name: "applied" for member in members}
    assert set(publisher.push_delta(wide(1)).values()) == {"already"}
    assert rows(members) == expected([]) and newest_epoch(publisher._cluster) is None
    epoch = publisher.publish(VERSION, {"item": 1})
    assert (epoch.number, newest_epoch(publisher._cluster)) == (1, epoch)
    assert adopt(publisher, members) == [[1]] * len(members)
    assert rows(members) == expected([wide(1)])


def test_an_empty_part_still_counts(publisher, members):
    only = Delta("item", VERSION, 1, np.array([5]), np.ones((1, 3), np.float32), np.array([], np.int64))
    publisher.push_delta(only)
    assert {m.store.tables(VERSION)["item"].sequence for m in members} == {1}


def test_one_member_without_the_delta_stops_the_publication(publisher, members):
    publisher.push_delta(wide(1))
    for member in members[:-1]:
        member.stage(wide(2).split(SHARDS)[member.shard])
    with pytest.raises(SequenceGap, match="shard-2-1 lacks deltas 2 to 2 of table 'item'") as gap:
        publisher.publish(VERSION, {"item": 2})
    assert gap.value.missing == (2, 2) and read_epochs(publisher._cluster) == []
    assert adopt(publisher, members) == [[]] * len(members)


@pytest.mark.parametrize("call", ["write_synced", "link_into_place"])
def test_an_interrupted_publication_is_visible_on_no_shard(publisher, members, monkeypatch, call):
    publisher.push_delta(wide(1))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(durable, call, lambda *unused: (_ for _ in ()).throw(KeyboardInterrupt))
        publisher.publish(VERSION, {"item": 1})
    assert adopt(publisher, members) == [[]] * len(members) and rows(members) == expected([])
    assert publisher.publish(VERSION, {"item": 1}).number == 1


def test_a_refusal_by_one_member_comes_after_all_were_tried(publisher, members):
    members[0].stage(delta_of(1, ids=(), salt=9).split(SHARDS)[0])
    with pytest.raises(SequenceConflict) as conflict:
        publisher.push_delta(wide(1))
    assert conflict.value.__notes__ == ["said by shard-0-0, a replica of shard 0"]
    assert [m.store.tables(VERSION)["item"].sequence for m in members] == [1] * len(members)


def test_with_all_required_one_member_down_stops_everything(publisher, members):
    members[3].down = True
    with pytest.raises(RemoteError, match="shard-1-1 does not answer"):
        publisher.push_delta(wide(1))
    with pytest.raises(RemoteError):
        publisher.publish(VERSION, {"item": 0})
    members[3].down = False
    assert sorted(publisher.push_delta(wide(1)).values()) == ["already"] * 5 + ["applied"]


def test_with_one_per_shard_a_replica_is_left_behind_and_catches_up(publisher, members, clock):
    publisher = Publisher(publisher._cluster, members, shards=SHARDS, require="one_per_shard")
    members[3].down = True
    for sequence in (1, 2, 3):
        assert publisher.push_delta(wide(sequence))["shard-1-1"].startswith("RemoteError")
    publisher.publish(VERSION, {"item": 3})
    members[3].down = False
    assert adopt(publisher, members) == [[1], [1], [1], [], [1], [1]]
    assert members[3].status()["versions"][str(VERSION)]["item"]["lag"] == 3
    assert catch_up(members[3], members[2]) == 3 and catch_up(members[3], members[2]) == 0
    assert adopt(publisher, members)[3] == [1]
    assert rows(members) == expected([wide(1), wide(2), wide(3)])


def test_one_per_shard_still_needs_one_and_tolerates_no_refusal(publisher, members):
    publisher = Publisher(publisher._cluster, members, shards=SHARDS, require="one_per_shard")
    members[2].down = members[3].down = True
    with pytest.raises(RemoteError):
        publisher.push_delta(wide(1))
    members[2].down = members[3].down = False
    with pytest.raises(DeltaError, match="dim is 8"):
        publisher.push_delta(delta_of(2, dim=8))


def test_catching_up_passes_over_what_was_abandoned_and_needs_the_log(publisher, members, clock):
    publisher.push_delta(wide(1))
    publisher.publish(VERSION, {"item": 1})
    members[3].down = True
    publisher = Publisher(publisher._cluster, members, shards=SHARDS, require="one_per_shard")
    publisher.push_delta(wide(2))
    publisher.publish(VERSION, {"item": 2})
    up = [member for member in members if not member.down]
    adopt(publisher, up)
    publisher.rollback(1)
    adopt(publisher, up)
    clock.now += 11
    for member in up:
        member.store.expire()
    publisher.push_delta(wide(3))
    publisher.publish(VERSION, {"item": 3})
    members[3].down = False
    adopt(publisher, members)
    assert catch_up(members[3], members[2]) == 1
    adopt(publisher, members)
    assert rows(members) == expected([wide(1), wide(3)])
    clock.now += 601
    members[2].store.expire()
    assert members[2].store.checkpoint(VERSION) == 4
    assert members[2].next_delta(VERSION, "item", 3) is None
    with pytest.raises(SequenceGap, match="start the replica from a snapshot"):
        members[2].next_delta(VERSION, "item", 1)
    with pytest.raises(ShardMapError, match="shard-0-0 is of shard 0, shard-1-0 of 1"):
        catch_up(members[0], members[2])


def test_a_rollback_is_a_new_epoch_and_needs_one_that_is_held(publisher, members, clock):
    for sequence in (1, 2):
        publisher.push_delta(wide(sequence))
        publisher.publish(VERSION, {"item": sequence})
        adopt(publisher, members)
    with pytest.raises(EpochError, match="epoch 2 is the newest"):
        rollback(publisher._cluster, 2)
    with pytest.raises(EpochError, match="no such epoch"):
        rollback(publisher._cluster, 9)
    epoch = publisher.rollback(1)
    assert (epoch.number, dict(epoch.sequences), dict(epoch.abandoned)) == (3, {"item": 1}, {"item": 2})
    assert adopt(publisher, members) == [[3]] * len(members)
    assert rows(members) == expected([wide(1)]) and rows(members, 2) == expected([wide(1), wide(2)])
    with pytest.raises(EpochError, match="roll back to an epoch instead"):
        publisher.publish(VERSION, {"item": 0})
    clock.now += 601
    for member in members:
        member.store.expire()
    with pytest.raises(EpochError, match=r"holds epochs \[3\], not 1 any more"):
        publisher.rollback(1)


def test_what_is_asked_of_the_publisher_is_checked(tmp_path, publisher, members):
    with pytest.raises(OptionError, match="require is 'most'"):
        Publisher(tmp_path, members, shards=SHARDS, require="most")
    for some, shards in ((members[2:], SHARDS), (members, SHARDS + 1), (members, SHARDS - 1)):
        with pytest.raises(ShardMapError, match="members are of shards"):
            Publisher(tmp_path, some, shards=shards)
    with pytest.raises(StoreError, match="lacks package version 8"):
        publisher.publish(8, {"item": 0})
    with pytest.raises(EpochError, match="name every one"):
        publisher.publish(VERSION, {"item": 0, "user": 0})
