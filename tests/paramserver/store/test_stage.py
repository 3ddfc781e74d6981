"""Staging: all or nothing, once, in order, by the right shard and for the right version."""

import pytest
from paramserver.epoch import Epoch
from paramserver.errors import (
    ClosedError,
    DeltaError,
    RetiredVersion,
    RowValueError,
    SequenceConflict,
    SequenceGap,
    StoreError,
    UnknownTable,
)
from paramserver.shard_map import shard_of

from tests.paramserver.store.making import VERSION, add, delta_of, expected, large_delta, open_store, rows_at, serving

pytestmark = pytest.mark.usefixtures("each_table")


@pytest.fixture
def store(tmp_path):
    with serving(tmp_path / "shard") as store:
        yield store


def reopened(store, **options):
    store.close()
    return open_store(store.directory, **options)


@pytest.mark.parametrize("make", [delta_of, large_delta])
def test_a_delta_is_seen_once_an_epoch_names_it_and_after_a_restart(store, make):
    deltas = [make(1), delta_of(2, ids=(7,), deletes=(1, -20, 999))]
    assert [store.stage(d) for d in deltas] == ["applied", "applied"]
    assert rows_at(store) == expected([])
    store.publish(Epoch(1, VERSION, {"item": 1}))
    assert rows_at(store) == expected(deltas[:1])
    store.publish(Epoch(2, VERSION, {"item": 2}))
    assert (rows_at(store), rows_at(store, 1)) == (expected(deltas), expected(deltas[:1]))
    with reopened(store) as again:
        assert (rows_at(again), rows_at(again, 1)) == (expected(deltas), expected(deltas[:1]))
        assert [again.stage(d) for d in deltas] == ["already", "already"]


@pytest.mark.parametrize("restarted", [False, True])
def test_the_same_again_is_already_here_and_another_one_is_a_conflict(store, restarted):
    store.stage(delta_of(1))
    store = reopened(store) if restarted else store
    with store:
        assert store.stage(delta_of(1)) == "already"
        for other in (delta_of(1, salt=5), delta_of(1, deletes=(9,)), delta_of(1, ids=(2, 1)), delta_of(1, time_s=1)):
            with pytest.raises(SequenceConflict, match="took another one"):
                store.stage(other)
        assert store.status()["versions"][str(VERSION)]["item"]["sequence"] == 1


def test_a_gap_names_what_is_missing(store):
    with pytest.raises(SequenceGap, match="lacks 1 to 2") as gap:
        store.stage(delta_of(3))
    assert gap.value.missing == (1, 2)
    store.stage(delta_of(1))
    with pytest.raises(SequenceGap) as gap:
        store.stage(delta_of(2**62))
    assert gap.value.missing == (2, 2**62 - 1)


def test_what_does_not_fit_changes_nothing(store):
    with pytest.raises(DeltaError, match="dim is 5, expected 3"):
        store.stage(delta_of(1, dim=5))
    with pytest.raises(UnknownTable, match=r"'usr' is not in package version 4, its tables are \['item'\]"):
        store.stage(delta_of(1, table="usr"))
    assert store.stage(delta_of(1)) == "applied"


def test_a_number_that_the_table_cannot_hold_is_refused_and_not_logged(tmp_path):
    with serving(tmp_path / "shard", options={"dtype": "f16"}) as store:
        with pytest.raises(RowValueError):
            store.stage(delta_of(1, salt=1e6))
        assert store.stage(delta_of(1, salt=1)) == "applied"
        with reopened(store, options={"dtype": "f16"}) as again:
            assert again.stage(delta_of(1, salt=1)) == "already"


def test_ids_of_another_shard_are_refused(tmp_path):
    with serving(tmp_path / "shard", shard=1, shards=3) as store:
        whole = delta_of(1, ids=range(30), deletes=range(100, 120))
        with pytest.raises(DeltaError, match=r"ids\[\d+\] is \d+, which belongs to shard [02] of 3, not to 1"):
            store.stage(whole)
        part = whole.split(3)[1]
        foreign = next(i for i in range(1000) if shard_of([i], 3)[0] == 2)
        with pytest.raises(DeltaError, match=rf"deletes\[0\] is {foreign}, which belongs to shard 2"):
            store.stage(delta_of(1, ids=part.ids, deletes=(foreign,)))
        with pytest.raises(DeltaError, match="belongs to shard"):
            store.stage(delta_of(1, ids=whole.ids, version=99))
        assert store.stage(part) == "applied"


def test_a_log_that_refuses_leaves_the_table_as_it_was(store, monkeypatch):
    store.stage(delta_of(1))
    for error in (StoreError("no"), KeyboardInterrupt()):
        with monkeypatch.context() as patch, pytest.raises(type(error)):
            patch.setattr(store._log, "append", lambda delta, error=error: (_ for _ in ()).throw(error))
            store.stage(delta_of(2, salt=3))
        assert store.tables(VERSION)["item"].sequence == 1
    assert store.stage(delta_of(2)) == "applied"
    store.publish(Epoch(1, VERSION, {"item": 2}))
    assert rows_at(store) == expected([delta_of(1), delta_of(2)])


def test_a_retired_version_takes_nothing(store):
    add(store, version=5)
    store.publish(Epoch(1, 5, {"item": 0}))
    store.retire(VERSION)
    for _ in range(2):
        with pytest.raises(RetiredVersion, match=f"version {VERSION} is retired; serving are .5."):
            store.stage(delta_of(1))
        store = reopened(store)
    store.close()


def test_deltas_for_a_version_to_come_are_held_and_applied_with_it(store):
    deltas = [delta_of(1, version=9), delta_of(2, ids=(3,), version=9), large_delta(1, "user")]
    assert [store.stage(d) for d in deltas[:2]] == ["held", "held"]
    assert store.stage(deltas[0]) == "already"
    with pytest.raises(SequenceConflict):
        store.stage(delta_of(2, version=9, salt=1))
    with pytest.raises(SequenceGap, match="holds 1 to 2 for that version, send 3 next") as gap:
        store.stage(delta_of(5, version=9))
    assert gap.value.missing == (3, 4)
    with reopened(store) as again:
        assert again.status()["held"] == {"9": {"item": {"first": 1, "last": 2, "deltas": 2, "log_bytes": 60}}}
        assert add(again, version=9) == {"state": "added", "refused": []}
        again.publish(Epoch(1, 9, {"item": 2}))
        assert rows_at(again, version=9) == expected(deltas[:2])
        with reopened(again) as third:
            assert rows_at(third, version=9) == expected(deltas[:2])


def test_what_was_held_but_does_not_fit_is_dropped_and_told(store):
    for delta in (delta_of(1, version=9), delta_of(2, version=9, dim=7), delta_of(3, version=9),
                  delta_of(1, version=9, table="gone")):
        assert store.stage(delta) == "held"
    refused = add(store, version=9)["refused"]
    assert len(refused) == 2
    assert "no table 'gone'" in refused[0] and "2 held deltas" in refused[1] and "dim is 7" in refused[1]
    with reopened(store) as again:
        assert again.tables(9)["item"].sequence == 1 and again.status()["held"] == {}
        assert again.stage(delta_of(2, version=9)) == "applied"


def test_what_is_held_behind_a_gap_follows_when_the_gap_closes(store):
    for sequence in (3, 4):
        assert store.stage(delta_of(sequence, ids=(sequence,), version=9)) == "held"
    add(store, version=9)
    assert store.tables(9)["item"].sequence == 0
    for sequence in (1, 2):
        store.stage(delta_of(sequence, ids=(sequence,), version=9))
    assert store.tables(9)["item"].sequence == 4


def test_held_deltas_have_a_limit(tmp_path):
    with serving(tmp_path / "shard", held_bytes_max=100) as store:
        assert store.stage(delta_of(1, version=9)) == "held"
        assert store.stage(delta_of(2, version=9)) == "held"
        with pytest.raises(StoreError, match="take 80 bytes, at most 100"):
            store.stage(delta_of(3, version=9))
        assert store.stage(delta_of(1)) == "applied"


def test_use_after_close(store):
    store.close()
    store.close()
    for call in (lambda: store.stage(delta_of(1)), lambda: store.tables(VERSION), store.epochs, store.status,
                 store.expire, lambda: store.lease(1, 1), lambda: store.retire(1), lambda: store.checkpoint(VERSION),
                 lambda: store.snapshot("x"), lambda: store.publish(Epoch(1, VERSION, {"item": 0})),
                 lambda: store.adopt("x"), lambda: store.next_delta(VERSION, "item", 0),
                 lambda: add(store, version=6), store.versions):
        with pytest.raises(ClosedError, match="closed"):
            call()

