"""Bases and snapshots: what comes in is copied and checked, the log is cut below a base, a snapshot starts a shard."""

import json
import os
import shutil
import threading
import time

import numpy as np
import pytest
from paramserver import Table, durable
from paramserver.epoch import Epoch
from paramserver.errors import (
    DeltaError,
    EpochError,
    OptionError,
    SequenceConflict,
    StoreDamaged,
    StoreError,
    StoreFull,
    TableFileError,
)
from paramserver.store import log as log_
from paramserver.store import read_manifest, restore

from tests.paramserver.store.making import (
    BASE_IDS,
    VERSION,
    add,
    delta_of,
    expected,
    large_delta,
    open_store,
    rows_at,
    rows_of,
    serving,
    table_file,
)


def grown(store, sequences):
    for sequence in sequences:
        delta = large_delta(sequence) if sequence % 2 else delta_of(sequence, ids=(sequence,), deletes=(-sequence,))
        store.stage(delta)
        store.publish(Epoch(sequence, VERSION, {"item": sequence}))
    return expected([large_delta(s) if s % 2 else delta_of(s, ids=(s,), deletes=(-s,)) for s in sequences])


def test_the_intake_keeps_a_copy_of_its_own(tmp_path, store):
    shutil.rmtree(tmp_path / "shard-files-4")
    store.close()
    with open_store(tmp_path / "shard") as again:
        assert rows_at(again) == expected([])


def test_a_version_is_added_once(tmp_path, store):
    assert add(store) == {"state": "already", "refused": []}
    with pytest.raises(StoreError, match="serves here with other files"):
        store.add_snapshot(VERSION, {"item": table_file(tmp_path / "other.parquet", salt=1)})


@pytest.mark.parametrize(("error", "says", "make"), [
    (OptionError, "tables is empty", lambda p: {}),
    (OptionError, "ends in '.csv', expected", lambda p: {"item": p / "t.csv"}),
    (DeltaError, "table is '../x'", lambda p: {"../x": p / "t.parquet"}),
    (StoreError, "No such file", lambda p: {"item": p / "none.parquet"}),
    (TableFileError, "bad.parquet", lambda p: {"bad": bad(p / "bad.parquet")}),
])
def test_what_is_no_snapshot_leaves_nothing(tmp_path, store, error, says, make):
    before = sorted(store.directory.rglob("*"))
    with pytest.raises(error, match=says):
        store.add_snapshot(5, make(tmp_path))
    assert sorted(store.directory.rglob("*")) == before and store.versions() == [VERSION]


def bad(path):
    path.write_bytes(b"PAR1 and then nothing")
    return path


def test_rows_of_other_shards_are_refused(tmp_path):
    with open_store(tmp_path / "shard", shard=1, shards=3) as store:
        with pytest.raises(TableFileError, match="belongs to shard [02] of 3, not to 1: split the file by shards"):
            store.add_snapshot(1, {"item": table_file(tmp_path / "all.parquet")})


def test_a_checkpoint_moves_the_log_into_the_base(store, clock):
    rows = grown(store, range(1, 7))
    assert store.checkpoint(VERSION) == 1
    clock.now += 11
    store.expire()
    assert store.checkpoint(VERSION) == 6 and store.checkpoint(VERSION) is None
    status = store.status()["versions"][str(VERSION)]["item"]
    assert (status["base_sequence"], status["sequence"], status["log_bytes"]) == (6, 6, 0)
    assert [p.name[-1] for p in store.directory.glob("bases/*")] == ["2"]
    assert not list(store.directory.glob("payloads/*/*/*"))
    store.stage(delta_of(7))
    store.close()
    with open_store(store.directory) as again:
        assert rows_at(again) == rows and [e.number for e in again.epochs()] == [6]
        assert again.stage(large_delta(3)) == "already"
        with pytest.raises(SequenceConflict):
            again.stage(delta_of(3))
        again.publish(Epoch(7, VERSION, {"item": 7}))
        assert rows_at(again)[1] == delta_of(7).rows[0].tolist()


def test_a_checkpoint_keeps_every_epoch_that_is_held(store, clock):
    grown(store, range(1, 4))
    store.lease(2, 60.0)
    clock.now += 11
    store.expire()
    assert store.checkpoint(VERSION) == 2
    store.close()
    with open_store(store.directory, clock=clock) as again:
        assert [e.number for e in again.epochs()] == [2, 3]
        assert rows_at(again, 2) == expected([large_delta(1), delta_of(2, ids=(2,), deletes=(-2,))])


def test_checksums_that_are_kept_have_a_limit(store, clock, monkeypatch):
    monkeypatch.setattr(log_, "CHECKSUMS_KEPT", 2)
    grown(store, range(1, 7))
    clock.now += 11
    store.expire()
    store.checkpoint(VERSION)
    assert sorted(store._log.entries(VERSION, "item")) == [5, 6]
    assert store.stage(delta_of(1, salt=99)) == "already"


@pytest.mark.parametrize("stop", ["move_into_place", "drop_payloads", "remove_others"])
def test_a_checkpoint_that_stops_halfway_loses_nothing(store, clock, monkeypatch, stop):
    rows = grown(store, range(1, 7))
    clock.now += 11
    store.expire()
    owner = {"move_into_place": durable, "drop_payloads": store._log, "remove_others": store._intake}[stop]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, stop, lambda *unused: (_ for _ in ()).throw(KeyboardInterrupt))
        store.checkpoint(VERSION)
    store.close()
    with open_store(store.directory, clock=clock, hold_s=10.0) as again:
        assert rows_at(again) == rows and len(list(again.directory.glob("bases/*"))) == 1
        assert not list(again.directory.glob("incoming/*"))
        assert again.stage(delta_of(7)) == "applied"


def test_deltas_go_on_during_a_checkpoint(store, clock, monkeypatch):
    rows = grown(store, range(1, 3))
    clock.now += 11
    store.expire()
    writing, goes_on = threading.Event(), threading.Event()
    write = store._intake.write

    def slow(*arguments):
        base = write(*arguments)
        writing.set()
        goes_on.wait(30)
        return base

    monkeypatch.setattr(store._intake, "write", slow)
    thread = threading.Thread(target=store.checkpoint, args=(VERSION,))
    thread.start()
    assert writing.wait(30)
    assert store.stage(delta_of(3)) == "applied"
    store.publish(Epoch(3, VERSION, {"item": 3}))
    # What is being written is held.
    assert store.expire(clock.now + 1000) == []
    goes_on.set()
    thread.join()
    assert store.status()["versions"][str(VERSION)]["item"]["base_sequence"] == 2
    assert rows_at(store, 2) == rows
    store.close()
    with open_store(store.directory) as again:
        assert again.tables(VERSION)["item"].sequence == 3 and rows_at(again, 2) == rows


def test_a_snapshot_starts_another_shard_directory(tmp_path, store):
    first = grown(store, range(1, 4))
    assert store.snapshot(tmp_path / "out" / "snap").number == 3
    assert store.snapshot(tmp_path / "older", epoch=2).number == 2
    second = grown(store, [4])
    assert second != first
    manifest = read_manifest(tmp_path / "out" / "snap")
    assert (manifest.epoch, manifest.tables["item"].base_sequence) == (Epoch(3, VERSION, {"item": 3}), 3)
    with restore(tmp_path / "out" / "snap", tmp_path / "new", table_class=Table, reserve_bytes=0) as new:
        assert rows_at(new) == first and [e.number for e in new.epochs()] == [3]
        assert new.stage(delta_of(3)) == "already"
        assert new.stage(delta_of(4)) == "applied"
    # An interrupted restore may be repeated, but not over something else.
    restore(tmp_path / "out" / "snap", tmp_path / "new", table_class=Table).close()
    with pytest.raises(StoreError, match="restore into an empty directory"):
        restore(tmp_path / "older", tmp_path / "new", table_class=Table)
    with pytest.raises(StoreError, match="is there already"):
        store.snapshot(tmp_path / "older")
    with pytest.raises(EpochError, match="epoch 77 is not held here"):
        store.snapshot(tmp_path / "other", epoch=77)


def test_equal_states_give_equal_snapshots(tmp_path, store):
    grown(store, range(1, 4))
    for name in ("a", "b"):
        store.snapshot(tmp_path / name)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "manifest", "no_manifest", "json", "types"])
def test_a_damaged_snapshot_is_refused(tmp_path, store, damage):
    grown(store, range(1, 3))
    store.snapshot(tmp_path / "snap")
    rows, manifest = tmp_path / "snap" / "item.snap", tmp_path / "snap" / "manifest.json"
    raw = rows.read_bytes()
    if damage == "flip":
        rows.write_bytes(raw[:100] + bytes([raw[100] ^ 1]) + raw[101:])
    elif damage == "cut":
        rows.write_bytes(raw[:-1])
    elif damage == "remove":
        rows.unlink()
    elif damage == "manifest":
        manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 2'))
    elif damage == "no_manifest":
        manifest.unlink()
    elif damage == "json":
        manifest.write_text("{")
    else:
        said = json.loads(manifest.read_text())
        said["tables"]["item"]["file"] = "../item.parquet"
        manifest.write_text(json.dumps(said))
    with pytest.raises(StoreDamaged, match="snap"):
        restore(tmp_path / "snap", tmp_path / "new", table_class=Table)


def test_a_damaged_base_is_not_opened(tmp_path, store):
    store.close()
    path = next(store.directory.glob("bases/*/item.parquet"))
    raw = bytearray(path.read_bytes())
    raw[50] ^= 1
    path.write_bytes(raw)
    with pytest.raises(StoreDamaged, match="restore it from a snapshot or a replica"):
        open_store(store.directory)


def test_an_empty_base_row_set_is_a_table_too(tmp_path):
    with open_store(tmp_path / "shard") as store:
        store.add_snapshot(1, {"item": table_file(tmp_path / "t.parquet", ids=BASE_IDS[:0])})
        store.stage(delta_of(1, version=1))
        store.publish(Epoch(1, 1, {"item": 1}))
        assert rows_at(store, version=1) == expected([delta_of(1)], base=np.array([], np.int64))


def test_a_version_may_come_as_a_snapshot_file_that_says_what_it_is_of(tmp_path, store):
    grown(store, range(1, 4))
    store.snapshot(tmp_path / "snap")
    path = tmp_path / "snap" / "item.snap"
    with open_store(tmp_path / "other") as other:
        with pytest.raises(StoreError, match="is of package version 4, not of 5"):
            other.add_snapshot(5, {"item": path})
        other.add_snapshot(VERSION, {"item": path})
        assert (other.stage(delta_of(3)), other.stage(delta_of(4))) == ("already", "applied")
        other.publish(Epoch(1, VERSION, {"item": 3}))
        assert rows_at(other) == rows_at(store)
    raw = bytearray(path.read_bytes())
    raw[-5000] ^= 1
    path.write_bytes(raw)
    with open_store(tmp_path / "third") as third, pytest.raises(StoreDamaged):
        third.add_snapshot(VERSION, {"item": path})
    raw = bytearray((found := next((tmp_path / "other").glob("bases/*/item.snap"))).read_bytes())
    raw[4200] ^= 1
    found.write_bytes(raw)
    with pytest.raises(StoreDamaged):
        open_store(tmp_path / "other")


def test_rows_expire_by_the_time_of_their_delta_across_checkpoints(tmp_path):
    options = {"ttl_s": 3600.0}
    now = int(time.time())
    with open_store(tmp_path / "shard", options=options, hold_s=0.0) as store:
        add(store)
        store.stage(delta_of(1, ids=(1,), time_s=now))
        store.publish(Epoch(1, VERSION, {"item": 1}))
        assert store.tables(VERSION)["item"].why(1)["time_s"] == now
        store.checkpoint(VERSION)
        assert read_manifest(next((tmp_path / "shard" / "bases").iterdir())).tables["item"].time_s == now
    with open_store(tmp_path / "shard", options=options) as store:
        assert store.tables(VERSION)["item"].why(1)["time_s"] == now


def test_options_may_depend_on_table_and_version(tmp_path):
    asked = []

    def options(table, version):
        asked.append((table, version))
        return {"dtype": "f16" if table == "user" else "f32"}

    with serving(tmp_path / "shard", tables=("item", "user"), options=options) as store:
        assert set(asked) == {("item", VERSION), ("user", VERSION)}
        assert [store.tables(VERSION)[name].dtype for name in ("item", "user")] == ["f32", "f16"]


def test_a_version_stays_what_it_came_as_after_a_checkpoint(tmp_path, store, clock):
    store.stage(delta_of(1))
    store.publish(Epoch(1, VERSION, {"item": 1}))
    assert store.checkpoint(VERSION) == 1
    with pytest.raises(StoreError, match="serves here with other files"):
        store.add_snapshot(VERSION, {"item": table_file(tmp_path / "item.parquet", salt=9)})
    assert store.add_snapshot(VERSION, {"item": table_file(tmp_path / "same.parquet")})["state"] == "already"


def test_sequences_of_unknown_tables_are_refused(tmp_path, store):
    with pytest.raises(OptionError, match=r"base_sequences names 'itme', the tables are \['item'\]"):
        store.add_snapshot(8, {"item": table_file(tmp_path / "item.parquet")}, base_sequences={"itme": 7})


def test_replicas_take_the_time_of_a_file_or_of_the_caller(tmp_path):
    file = table_file(tmp_path / "item.parquet")
    os.utime(file, (5_000, 5_000))
    for name, told, expected_s in (("a", {}, 5_000), ("b", {}, 5_000), ("c", {"time_s": 7_000}, 7_000)):
        with open_store(tmp_path / name) as store:
            store.add_snapshot(VERSION, {"item": file}, **told)
            manifest = read_manifest(next((tmp_path / name / "bases").iterdir()))
            assert manifest.tables["item"].time_s == expected_s


def test_a_version_that_counts_ids_keeps_its_log(tmp_path):
    with serving(tmp_path / "shard", options={"admit_after": 2}) as store:
        store.stage(delta_of(1, ids=(777,)))
        store.publish(Epoch(1, VERSION, {"item": 1}))
        assert store.checkpoint(VERSION) is None
        assert not store.status()["versions"][str(VERSION)]["item"]["checkpoints"]
    with open_store(tmp_path / "shard", options={"admit_after": 2}) as again:
        again.stage(delta_of(2, ids=(777,)))
        again.publish(Epoch(2, VERSION, {"item": 2}))
        assert rows_at(again)[777] == rows_of([777], 2000).tolist()[0]


def test_a_failed_rewrite_keeps_what_was_acknowledged(tmp_path, store, monkeypatch):
    store.stage(delta_of(1))
    store.publish(Epoch(1, VERSION, {"item": 1}))

    def full(*unused):
        raise OSError("IO error: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(log_, "_commit", full)
        with pytest.raises(StoreFull):
            store.checkpoint(VERSION)
    store.stage(delta_of(2))
    store.close()
    with open_store(store.directory) as again, pytest.raises(SequenceConflict):
        again.stage(delta_of(1, ids=(5,), salt=3))
