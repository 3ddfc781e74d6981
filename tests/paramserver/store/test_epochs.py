"""Epochs of a shard: over several tables, held by leases, rolled back while held, and what comes after a rollback."""

import pytest
from paramserver.epoch import Epoch, write_epoch
from paramserver.errors import DeltaError, EpochError, OptionError, SequenceGap, StoreDamaged, StoreError

from tests.paramserver.store.making import (
    VERSION,
    add,
    delta_of,
    expected,
    large_delta,
    open_store,
    rows_at,
    serving,
)

pytestmark = pytest.mark.usefixtures("each_table")


def reopened(store, clock):
    store.close()
    return open_store(store.directory, clock=clock, hold_s=10.0)


def numbers(store):
    return [epoch.number for epoch in store.epochs()]


def publish(store, number, sequence, **fields):
    store.publish(Epoch(number, VERSION, {"item": sequence}, **fields))


def test_an_epoch_shows_all_its_tables_at_once_or_is_refused(tmp_path):
    with serving(tmp_path / "shard", tables=("item", "user")) as store:
        store.stage(delta_of(1))
        with pytest.raises(SequenceGap, match="lacks deltas 1 to 2 of table 'user'") as gap:
            store.publish(Epoch(1, VERSION, {"item": 1, "user": 2}))
        assert gap.value.missing == (1, 2) and store.epochs() == []
        assert rows_at(store) == expected([])
        status = store.status()
        assert status["wanted_epoch"] == 1 and status["versions"][str(VERSION)]["user"]["lag"] == 2
        for sequence in (1, 2):
            store.stage(delta_of(sequence, table="user"))
        store.publish(Epoch(1, VERSION, {"item": 1, "user": 2}))
        assert rows_at(store, table="user") == expected([delta_of(1, table="user"), delta_of(2, table="user")])
        status = store.status()
        assert status["wanted_epoch"] == 0 and status["versions"][str(VERSION)]["user"]["lag"] == 0


@pytest.mark.parametrize(("epoch", "says"), [
    (Epoch(3, 77, {"item": 0}), r"version 77 does not serve here, serving are \[4\]"),
    (Epoch(3, VERSION, {"user": 0}), r"names tables \['user'\], package version 4 has \['item'\]"),
    (Epoch(3, VERSION, {"item": 0, "user": 0}), "name every one"),
    (Epoch(2, VERSION, {"item": 0}), "this shard is at 2"),
    (Epoch(1, VERSION, {"item": 0}), "this shard is at 2"),
])
def test_an_epoch_that_can_never_be_shown_says_why(store, epoch, says):
    store.stage(delta_of(1))
    publish(store, 2, 1)
    with pytest.raises(EpochError, match=says):
        store.publish(epoch)
    publish(store, 2, 1)
    assert numbers(store) == [2]


def test_epochs_live_as_long_as_their_leases_and_the_newest_always(store, clock):
    for sequence in (1, 2, 3):
        store.stage(delta_of(sequence))
        publish(store, sequence, sequence)
    store.lease(1, 30.0, "ranker-1")
    store.lease(1, 20.0, "ranker-2")
    clock.now += 10.5
    assert store.expire() == [2] and numbers(store) == [1, 3]
    assert rows_at(store, 1) == expected([delta_of(1)])
    with pytest.raises(EpochError, match=r"epoch 2 is not held here, held are \[1, 3\]"):
        store.lease(2, 1.0)
    store.lease(1, 5.0, "ranker-1")
    assert store.expire(clock.now + 18) == []
    assert store.expire(clock.now + 20) == [1]
    assert store.expire(clock.now + 10**9) == [] and numbers(store) == [3]
    with reopened(store, clock) as again:
        assert numbers(again) == [3]


@pytest.mark.parametrize("ttl_s", [-1, 86_401, float("nan"), "1", True])
def test_a_lease_has_a_limit(store, ttl_s):
    publish(store, 1, 0)
    with pytest.raises(OptionError, match="ttl_s is"):
        store.lease(1, ttl_s)


def test_a_rollback_is_instant_and_abandons_what_came_after(store, clock):
    deltas = [delta_of(1), delta_of(2, ids=(2, 3), deletes=(-20,)), large_delta(3)]
    for delta in deltas:
        store.stage(delta)
    publish(store, 1, 1)
    publish(store, 2, 3)
    publish(store, 3, 1)
    assert rows_at(store) == rows_at(store, 1) == expected(deltas[:1])
    assert rows_at(store, 2) == expected(deltas)
    # Readers that lease the epoch that was rolled back still see it, so nothing can be built beside it yet.
    with pytest.raises(StoreError, match="delta 4 .* must wait: 2 to 3 were abandoned"):
        store.stage(delta_of(4))
    assert store.status()["versions"][str(VERSION)]["item"]["waits_for_leases"]
    store.lease(2, 60.0)
    clock.now += 11
    assert store.expire() == [1]
    with pytest.raises(StoreError, match="must wait"):
        store.stage(delta_of(4))
    clock.now += 60
    assert store.expire() == [2]
    assert store.tables(VERSION)["item"].sequence == 1
    for sequence in (2, 3):
        with pytest.raises(DeltaError, match="abandoned by a rollback: numbers are not used twice, the next is 4"):
            store.stage(delta_of(sequence))
        with pytest.raises(EpochError, match=rf"sequence {sequence} of table 'item' is not held any more"):
            publish(store, 4, sequence)
    with pytest.raises(SequenceGap) as gap:
        store.stage(delta_of(6))
    assert gap.value.missing == (4, 5)
    assert store.stage(delta_of(4)) == "applied"
    publish(store, 4, 4)
    assert rows_at(store) == expected([deltas[0], delta_of(4)])
    with reopened(store, clock) as again:
        assert rows_at(again) == expected([deltas[0], delta_of(4)])
        assert again.status()["versions"][str(VERSION)]["item"]["log_deltas"] == 2
        assert not list(again.directory.glob("payloads/*/*/*"))


def test_a_restart_ends_what_a_rollback_left_standing(store, clock):
    for sequence in (1, 2):
        store.stage(delta_of(sequence))
        publish(store, sequence, sequence)
    publish(store, 3, 1)
    with reopened(store, clock) as again:
        assert numbers(again) == [1, 3]
        assert rows_at(again) == expected([delta_of(1)])
        assert again.stage(delta_of(3)) == "applied"


def test_what_was_staged_beyond_a_rolled_back_epoch_stays_staged(store, clock):
    for sequence in (1, 2, 3):
        store.stage(delta_of(sequence, ids=(sequence,)))
    publish(store, 1, 1)
    publish(store, 2, 2)
    publish(store, 3, 1)
    clock.now += 11
    store.expire()
    publish(store, 4, 3)
    assert rows_at(store) == expected([delta_of(1, ids=(1,)), delta_of(3, ids=(3,))])
    with reopened(store, clock) as again:
        assert rows_at(again) == expected([delta_of(1, ids=(1,)), delta_of(3, ids=(3,))])


def test_a_rollback_over_a_rollback(store, clock):
    for sequence in (1, 2):
        store.stage(delta_of(sequence, ids=(sequence,)))
        publish(store, sequence, sequence)
    store.lease(1, 1000.0)
    publish(store, 3, 1)
    clock.now += 11
    store.expire()
    store.stage(delta_of(3, ids=(3,)))
    publish(store, 4, 3)
    publish(store, 5, 1)
    clock.now += 11
    store.expire()
    assert store.stage(delta_of(4, ids=(4,))) == "applied"
    publish(store, 6, 4)
    assert rows_at(store) == expected([delta_of(1, ids=(1,)), delta_of(4, ids=(4,))])


def test_no_rollback_to_what_nobody_holds(store, clock):
    for sequence in (1, 2, 3):
        store.stage(delta_of(sequence))
        publish(store, sequence, sequence)
        clock.now += 11
        store.expire()
    with pytest.raises(EpochError, match=r"no epoch holds it any more; held are \[3\]"):
        publish(store, 4, 1)


def test_retiring_a_version(store, clock):
    store.stage(large_delta(1))
    publish(store, 1, 1)
    with pytest.raises(EpochError, match="epoch 1, the newest, shows"):
        store.retire(VERSION)
    add(store, version=5)
    store.publish(Epoch(2, 5, {"item": 0}))
    store.lease(1, 60.0, "ranker")
    with pytest.raises(EpochError, match="leased by ranker"):
        store.retire(VERSION)
    clock.now += 61
    store.retire(VERSION)
    assert (store.versions(), numbers(store)) == ([5], [2])
    assert len(list(store.directory.glob("bases/*"))) == 1 and not list(store.directory.glob("payloads/*"))
    with pytest.raises(EpochError, match="does not serve here"):
        store.tables(VERSION)
    with reopened(store, clock) as again:
        assert (again.versions(), numbers(again), again.status()["retired"]) == ([5], [2], [VERSION])


def test_a_version_that_was_never_here_is_not_retired(store):
    with pytest.raises(EpochError, match=r"package version 999 was never here, serving are \[4\]"):
        store.retire(999)
    assert add(store, version=999)["state"] == "added"


def test_a_shard_adopts_what_the_cluster_published(tmp_path, store, clock):
    cluster = tmp_path / "cluster"
    assert store.adopt(cluster) == []
    write_epoch(cluster, Epoch(1, VERSION, {"item": 1}))
    assert store.adopt(cluster) == [] and store.status()["wanted_epoch"] == 1
    store.stage(delta_of(1))
    assert store.adopt(cluster) == [1] and store.adopt(cluster) == []
    write_epoch(cluster, Epoch(2, 9, {"item": 0}))
    assert store.adopt(cluster) == []
    add(store, version=9)
    assert store.adopt(cluster) == [2]
    (cluster / "epochs" / f"{3:020d}.json").write_text("{")
    with pytest.raises(StoreDamaged, match="3.json"):
        store.adopt(cluster)


def test_a_shard_that_was_away_learns_what_was_abandoned_meanwhile(tmp_path, store):
    cluster = tmp_path / "cluster"
    for epoch in (Epoch(1, VERSION, {"item": 1}), Epoch(2, VERSION, {"item": 3}),
                  Epoch(3, VERSION, {"item": 1}, {"item": 3}), Epoch(4, VERSION, {"item": 4})):
        write_epoch(cluster, epoch)
    store.stage(delta_of(1))
    assert store.adopt(cluster) == [1, 3]
    assert store.stage(delta_of(4)) == "applied"
    assert store.adopt(cluster) == [4]
    assert rows_at(store) == expected([delta_of(1), delta_of(4)])


def rolled_back_elsewhere(tmp_path, store):
    """The cluster rolled 2 to 3 back while this shard, which shows them, was away; epoch 4 builds on 1."""
    for sequence in (1, 2, 3):
        store.stage(delta_of(sequence, ids=(sequence,)))
        write_epoch(tmp_path / "cluster", Epoch(sequence, VERSION, {"item": sequence}))
        store.adopt(tmp_path / "cluster")
    write_epoch(tmp_path / "cluster", Epoch(4, VERSION, {"item": 1}, {"item": 3}))
    write_epoch(tmp_path / "cluster", Epoch(5, VERSION, {"item": 4}))
    return expected([delta_of(1, ids=(1,)), delta_of(4, ids=(4,))])


def test_nothing_is_shown_on_top_of_what_was_abandoned(tmp_path, store, clock):
    rows = rolled_back_elsewhere(tmp_path, store)
    # A replica sends it what comes next before it has heard of the rollback.
    assert store.stage(delta_of(4, ids=(4,))) == "applied"
    assert store.adopt(tmp_path / "cluster") == [4]
    with pytest.raises(StoreError, match="epoch 5 must wait: table 'item' still has deltas that were abandoned"):
        publish(store, 5, 4)
    assert rows_at(store) == expected([delta_of(1, ids=(1,))])
    clock.now += 11
    store.expire()
    assert store.adopt(tmp_path / "cluster") == [5] and rows_at(store) == rows


def test_a_start_passes_over_what_was_abandoned_while_it_was_away(tmp_path, store, clock):
    rows = rolled_back_elsewhere(tmp_path, store)
    clock.now += 11
    store.expire()
    store.close()
    # Epoch 1 is not held any more, so an epoch that shows it again could not be shown here by a rollback.
    with open_store(store.directory, clock=clock, cluster=tmp_path / "cluster") as again:
        assert again.tables(VERSION)["item"].sequence == 1
        assert again.stage(delta_of(4, ids=(4,))) == "applied"
        assert again.adopt(tmp_path / "cluster") == [1, 4, 5] and rows_at(again) == rows


def test_ranges_that_begin_alike_are_kept_apart(tmp_path, store, clock):
    cluster = tmp_path / "cluster"

    def next_epoch(number, sequence, abandoned=None):
        write_epoch(cluster, Epoch(number, VERSION, {"item": sequence}, abandoned or {}))
        assert store.adopt(cluster) == [number]

    for sequence in (1, 2):
        store.stage(delta_of(sequence, ids=(sequence,)))
        next_epoch(sequence, sequence)
    store.lease(1, 1000.0)
    next_epoch(3, 1, {"item": 2})
    clock.now += 11
    store.expire()
    store.stage(delta_of(3, ids=(3,)))
    next_epoch(4, 3)
    next_epoch(5, 1, {"item": 3})
    clock.now += 11
    store.expire()
    store.stage(delta_of(4, ids=(4,)))
    next_epoch(6, 4)
    for _ in range(3):
        store = reopened(store, clock)
        assert store.adopt(cluster) == [] and not store.status()["versions"][str(VERSION)]["item"]["waits_for_leases"]
        assert rows_at(store) == expected([delta_of(1, ids=(1,)), delta_of(4, ids=(4,))])
        with pytest.raises(DeltaError, match="abandoned"):
            store.stage(delta_of(3, ids=(3,)))
    store.close()


def test_epochs_of_an_older_version_end_too_and_can_be_rolled_back_to_while_held(store, clock):
    for sequence in (1, 2):
        store.stage(delta_of(sequence, ids=(sequence,)))
        publish(store, sequence, sequence)
    add(store, version=5)
    store.publish(Epoch(3, 5, {"item": 0}))
    store.lease(1, 1000.0)
    clock.now += 11
    assert store.expire() == [2] and numbers(store) == [1, 3]
    publish(store, 4, 1)
    assert rows_at(store) == expected([delta_of(1, ids=(1,))])
    assert numbers(store) == [1, 4] and store.tables(VERSION)["item"].epochs() == [(1, 1), (4, 1)]
    assert store.stage(delta_of(3, ids=(3,))) == "applied"
    store.stage(delta_of(1, version=5))
    store.publish(Epoch(5, 5, {"item": 1}))
    assert rows_at(store, version=5) == expected([delta_of(1)])
    assert store.tables(5)["item"].epochs() == [(5, 1)]
