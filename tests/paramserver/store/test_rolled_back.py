"""What a rollback abandoned stays out of bases, and a shard that cannot take it back says so or loads again."""

import pytest
from paramserver.epoch import Epoch, read_epochs, write_epoch
from paramserver.errors import EpochError, StoreDamaged, StoreError
from paramserver.publish import Publisher, StoreMember, previous_state, rollback

from tests.paramserver.store.making import VERSION, delta_of, expected, open_store, rows_at, table_file

pytestmark = pytest.mark.usefixtures("each_table")


@pytest.fixture
def cluster(tmp_path):
    return tmp_path / "cluster"


def one(sequence):
    return delta_of(sequence, ids=(sequence,))


def publish(cluster, *stores, sequence):
    for store in stores:
        store.stage(one(sequence))
    epochs = read_epochs(cluster)
    write_epoch(cluster, Epoch(len(epochs) + 1, VERSION, {"item": sequence}))
    for store in stores:
        store.adopt(cluster)


def numbers(store):
    return [epoch.number for epoch in store.epochs()]


def test_no_base_is_written_of_a_state_that_was_rolled_back(cluster, store, clock):
    publish(cluster, store, sequence=1)
    store.lease(1, 15.0)
    clock.now += 6
    store.stage(one(2))
    publish(cluster, store, sequence=3)
    rollback(cluster, 1)
    assert store.adopt(cluster) == [3]
    store.lease(2, 100.0)
    clock.now += 50
    store.expire()
    assert numbers(store) == [2, 3] and store.checkpoint(VERSION) is None
    clock.now += 100
    store.expire()
    assert numbers(store) == [3] and store.checkpoint(VERSION) == 3
    store.close()
    with open_store(store.directory, clock=clock, cluster=cluster) as again:
        assert numbers(again) == [3] and again.adopt(cluster) == []
        publish(cluster, again, sequence=4)
        assert rows_at(again) == expected([one(1), one(4)])


@pytest.mark.parametrize("restarted", [False, True])
def test_a_base_of_what_was_rolled_back_serves_nothing_until_it_is_replaced(tmp_path, cluster, store, clock, restarted):
    for sequence in (1, 2):
        publish(cluster, store, sequence=sequence)
    clock.now += 11
    store.expire()
    assert store.checkpoint(VERSION) == 2
    rollback(cluster, 1)
    if restarted:
        store.close()
        store = open_store(store.directory, clock=clock, hold_s=10.0, cluster=cluster)
    assert store.adopt(cluster) == []
    clock.now += 1000
    store.expire()
    with pytest.raises(StoreDamaged, match="base holds deltas up to 2, and a rollback abandoned 2 to 2; add its sn"):
        store.stage(one(3))
    write_epoch(cluster, Epoch(4, VERSION, {"item": 3}))
    assert store.adopt(cluster) == [] and store.checkpoint(VERSION) is None
    status = store.status()
    assert "add its snapshot again" in status["epoch_problems"]["4"]
    assert status["versions"][str(VERSION)]["item"]["damage"]
    with pytest.raises(StoreError, match="a rollback abandoned 2 to 2"):
        store.add_snapshot(VERSION, {"item": table_file(tmp_path / "item.parquet")}, base_sequences={"item": 2})
    assert store.add_snapshot(VERSION, {"item": table_file(tmp_path / "item.parquet")})["state"] == "added"
    assert [store.stage(one(sequence)) for sequence in (1, 3)] == ["applied"] * 2
    assert store.adopt(cluster)[-2:] == [3, 4] and rows_at(store) == expected([one(1), one(3)])
    store.close()
    with open_store(store.directory, clock=clock, cluster=cluster) as again:
        assert rows_at(again) == expected([one(1), one(3)]) and numbers(again)[-2:] == [3, 4]


def test_a_shard_that_let_the_target_go_loads_its_tables_again(cluster, store, clock):
    for sequence in (1, 2):
        publish(cluster, store, sequence=sequence)
    clock.now += 11
    store.expire()
    store.lease(2, 20.0, "ranker")
    rollback(cluster, 1)
    assert store.adopt(cluster) == [] and rows_at(store) == expected([one(1), one(2)])
    assert "no epoch holds it any more" in store.status()["epoch_problems"]["3"]
    clock.now += 21
    assert store.adopt(cluster) == [3] and numbers(store) == [3]
    assert rows_at(store) == expected([one(1)]) and store.status()["epoch_problems"] == {}
    publish(cluster, store, sequence=3)
    assert rows_at(store) == expected([one(1), one(3)])
    with open_store_again(store, clock) as again:
        assert rows_at(again) == expected([one(1), one(3)])


def open_store_again(store, clock):
    store.close()
    return open_store(store.directory, clock=clock, hold_s=10.0)


def test_epochs_that_were_made_anew_are_not_those_shown(cluster, store, clock):
    for sequence in (1, 2):
        publish(cluster, store, sequence=sequence)
    folder = cluster / "epochs"
    folder.rename(cluster / "lost")
    with pytest.raises(StoreError, match="has no epochs, but this shard shows epoch 2"):
        store.adopt(cluster)
    write_epoch(cluster, Epoch(1, VERSION, {"item": 1}))
    with pytest.raises(StoreDamaged, match="is at epoch 1, but this shard shows epoch 2"):
        store.adopt(cluster)
    write_epoch(cluster, Epoch(2, VERSION, {"item": 1}))
    with open_store_again(store, clock) as again:
        for _ in range(2):
            with pytest.raises(StoreDamaged, match=r'"sequences": {"item": 1}.* this shard shows .*{"item": 2}'):
                again.adopt(cluster)
            assert "made anew" in again.status()["diverged"]
        folder.rename(cluster / "wrong")
        (cluster / "lost").rename(folder)
        assert again.adopt(cluster) == [] and again.diverged == ""
        publish(cluster, again, sequence=3)
        assert numbers(again)[-1] == 3


def test_a_damaged_file_below_what_is_shown_is_passed_over(cluster, store, clock):
    for sequence in (1, 2):
        publish(cluster, store, sequence=sequence)
    (cluster / "epochs" / f"{1:020d}.json").write_text("{")
    store.close()
    with open_store(store.directory, clock=clock, cluster=cluster) as again:
        assert again.adopt(cluster) == [] and "1.json" in again.status()["epoch_problems"]["1"]
        again.stage(one(3))
        write_epoch(cluster, Epoch(3, VERSION, {"item": 3}))
        assert again.adopt(cluster) == [3]


def test_a_damaged_file_above_what_is_shown_stops_epochs_but_no_start(cluster, store, clock):
    publish(cluster, store, sequence=1)
    write_epoch(cluster, Epoch(3, VERSION, {"item": 1}))
    damaged = cluster / "epochs" / f"{2:020d}.json"
    damaged.write_text("{")
    store.close()
    with open_store(store.directory, clock=clock, cluster=cluster) as again:
        with pytest.raises(StoreDamaged, match="2.json"):
            again.adopt(cluster)
        assert numbers(again) == [1]
        damaged.unlink()
        assert again.adopt(cluster) == [3]


def test_epochs_that_nobody_could_show_are_not_published(tmp_path, cluster, store, clock):
    publisher = Publisher(cluster, [StoreMember(store)], shards=1)
    for sequence in (1, 2):
        publisher.push_delta(one(sequence))
        publisher.publish(VERSION, {"item": sequence})
        store.adopt(cluster)
    clock.now += 9
    publisher.rollback(1)
    clock.now += 9
    assert store.adopt(cluster) == [3]
    assert previous_state(read_epochs(cluster)) is None
    with pytest.raises(EpochError, match="sequence 2 of table 'item' cannot be shown: epoch 3, a rollback, abandon"):
        publisher.publish(VERSION, {"item": 2})
    with pytest.raises(EpochError, match="abandoned 2 to 2"):
        rollback(cluster, 2)
    store.add_snapshot(5, {"item": table_file(tmp_path / "five.parquet")}, base_sequences={"item": 7})
    with pytest.raises(EpochError, match="sequence 6 of table 'item' is below 7, the base of"):
        publisher.publish(5, {"item": 6})
    assert publisher.publish(5, {"item": 7}).number == 4
    assert previous_state(read_epochs(cluster)).number == 3
