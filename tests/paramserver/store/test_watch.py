"""The watched folder: files are staged in the order of their sequences, each once, and say why when they are not."""

import threading
import weakref

import pytest
from paramserver.delta import read_delta, write_delta
from paramserver.errors import StoreError, StoreFull
from paramserver.store import DeltaWatch
from paramserver.store import watch as watching

from tests.paramserver.store.making import VERSION, delta_of, serving


@pytest.fixture
def store(tmp_path):
    with serving(tmp_path / "shard", shard=1, shards=3) as store:
        yield store


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "deltas").mkdir()
    return tmp_path / "deltas"


def watch_of(folder, store):
    return DeltaWatch(folder, store.stage, shard=store.shard, shards=store.shards)


def wide(sequence):
    return delta_of(sequence, ids=range(60))


def test_files_are_staged_in_order_and_once(folder, store):
    watch = watch_of(folder, store)
    assert watch.poll() == {}
    for sequence, name in ((2, "a.arrow"), (1, "b.arrow")):
        write_delta(folder / name, wide(sequence))
    (folder / ".c.arrow.tmp").write_bytes(b"half")
    (folder / ".d.arrow").write_bytes(b"half")
    (folder / "readme.txt").write_bytes(b"no delta")
    assert watch.poll() == {"a.arrow": "applied", "b.arrow": "applied"}
    assert watch.poll() == {} and store.tables(VERSION)["item"].sequence == 2
    assert watch_of(folder, store).poll() == {"a.arrow": "already", "b.arrow": "already"}


def test_what_cannot_be_taken_says_why_and_is_tried_anew_when_it_changes(folder, store):
    watch = watch_of(folder, store)
    (folder / "a.arrow").write_bytes(b"no arrow")
    write_delta(folder / "b.arrow", wide(2))
    assert watch.poll() == {"a.arrow": "refused", "b.arrow": "waiting"}
    assert "a.arrow: no Arrow" in watch.refused["a.arrow"] and "lacks 1 to 1" in watch.waiting["b.arrow"]
    assert watch.poll() == {"b.arrow": "waiting"} and list(watch.refused) == ["a.arrow"]
    write_delta(folder / "a.arrow", wide(1))
    assert watch.poll() == {"a.arrow": "applied", "b.arrow": "applied"}
    assert (watch.refused, watch.waiting) == ({}, {})


def test_one_delta_at_a_time_is_in_memory_and_what_waits_is_not_read(folder, store, monkeypatch):
    alive, most, read = weakref.WeakSet(), [], []

    def counted(path):
        delta = read_delta(path)
        alive.add(delta)
        read.append(path.name)
        most.append(len(alive))
        return delta

    monkeypatch.setattr(watching, "read_delta", counted)
    watch = watch_of(folder, store)
    for sequence in (1, 2, 3, 5, 6):
        write_delta(folder / f"{sequence}.arrow", wide(sequence))
    assert set(watch.poll().values()) == {"applied", "waiting"} and max(most) == 1
    assert read == ["1.arrow", "2.arrow", "3.arrow", "5.arrow"]
    assert "5.arrow comes first" in watch.waiting["6.arrow"]
    assert watch.poll() == {"5.arrow": "waiting", "6.arrow": "waiting"} and read[4:] == ["5.arrow"]
    write_delta(folder / "4.arrow", wide(4))
    assert set(watch.poll().values()) == {"applied"} and store.tables(VERSION)["item"].sequence == 6


def test_a_full_disk_is_waited_for(folder, store):
    full = [StoreFull("no space"), StoreFull("no space")]

    def stage(delta):
        if full:
            raise full.pop()
        return store.stage(delta)

    write_delta(folder / "a.arrow", wide(1))
    watch = DeltaWatch(folder, stage, shard=store.shard, shards=store.shards)
    assert [watch.poll() for _ in range(3)] == [{"a.arrow": "waiting"}, {"a.arrow": "waiting"}, {"a.arrow": "applied"}]


def test_it_runs_until_it_is_told_to_stop(folder, store):
    write_delta(folder / "a.arrow", wide(1))
    stop, staged = threading.Event(), threading.Event()

    def stage(delta):
        outcome = store.stage(delta)
        staged.set()
        return outcome

    watch = DeltaWatch(folder, stage, shard=store.shard, shards=store.shards)
    thread = threading.Thread(target=watch.run, args=(stop, 0.01))
    thread.start()
    assert staged.wait(30)
    stop.set()
    thread.join(30)
    assert not thread.is_alive()


def test_a_folder_that_is_not_there_is_a_store_error(tmp_path, store):
    with pytest.raises(StoreError, match="nowhere"):
        watch_of(tmp_path / "nowhere", store).poll()
