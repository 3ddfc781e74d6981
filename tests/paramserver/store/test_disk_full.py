"""A full disk: StoreFull, nothing by halves, reads go on, and writes do as soon as there is space."""

import os
import subprocess

import pytest
from paramserver.epoch import Epoch, write_epoch
from paramserver.errors import StoreError, StoreFull

from tests.paramserver.store.making import (
    VERSION,
    Clock,
    delta_of,
    expected,
    large_delta,
    open_store,
    rows_at,
    serving,
    table_file,
)

DISK_BYTES = 24 << 20


@pytest.fixture
def disk(tmp_path):
    """A small file system of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", folder], stderr=subprocess.PIPE,
                          text=True)
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here (root only): {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


class Ballast:
    """A file that leaves so many bytes free."""

    def __init__(self, disk, free_bytes):
        self.path = disk / "ballast"
        state = os.statvfs(disk)
        with open(self.path, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, state.f_bavail * state.f_frsize - free_bytes)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.path.unlink()


def test_the_reserve_refuses_before_anything_is_written(disk):
    with serving(disk / "shard", reserve_bytes=4 << 20) as store:
        store.stage(delta_of(1))
        store.publish(Epoch(1, VERSION, {"item": 1}))
        with Ballast(disk, 4 << 20):
            before = sorted(path for path in disk.rglob("*") if path.is_file())
            for make in (delta_of, large_delta):
                with pytest.raises(StoreFull, match="kept in reserve; nothing was taken"):
                    store.stage(make(2))
            with pytest.raises(StoreFull):
                store.publish(Epoch(2, VERSION, {"item": 1}))
            assert sorted(path for path in disk.rglob("*") if path.is_file()) == before
            assert rows_at(store) == expected([delta_of(1)]) and [e.number for e in store.epochs()] == [1]
        assert store.stage(large_delta(2)) == "applied"


@pytest.mark.parametrize("free_kib", [0, 4, 8, 16, 48, 100, 160])
def test_a_disk_that_fills_up_during_a_write(disk, free_kib):
    """Without a reserve, the write fails wherever the space happens to end: in a payload, or inside RocksDB."""
    clock, taken, refusals = Clock(), [delta_of(1)], 0
    store = serving(disk / "shard", clock=clock)
    store.stage(taken[0])
    store.publish(Epoch(1, VERSION, {"item": 1}))
    with Ballast(disk, free_kib << 10):
        for attempt in range(30):
            delta = (delta_of, large_delta)[attempt % 2](len(taken) + 1)
            try:
                assert store.stage(delta) == "applied"
                taken.append(delta)
            except StoreFull:
                refusals += 1
            assert store.tables(VERSION)["item"].sequence == len(taken)
            assert rows_at(store) == expected(taken[:1])
        assert refusals
        store.expire()
        # Another delta may take the number of one that was refused.
        other = delta_of(len(taken) + 1, salt=77)
    assert store.stage(other) == "applied"
    taken.append(other)
    store.publish(Epoch(2, VERSION, {"item": len(taken)}))
    assert rows_at(store) == expected(taken)
    store.close()
    with open_store(disk / "shard", clock=clock) as again:
        assert rows_at(again) == expected(taken) and rows_at(again, 1) == expected(taken[:1])
        assert len(list(again.directory.glob("payloads/*/*/*"))) == sum(d.bytes > 65536 for d in taken)


def test_snapshots_and_publications_on_a_full_disk(tmp_path, disk):
    clock = Clock()
    store = serving(disk / "shard", clock=clock)
    for sequence in (1, 2):
        store.stage(large_delta(sequence))
        store.publish(Epoch(sequence, VERSION, {"item": sequence}))
    clock.now += 1000
    store.expire()
    source = table_file(tmp_path / "item.parquet")
    calls = [lambda: store.checkpoint(VERSION), lambda: store.snapshot(disk / "snap"),
             lambda: store.add_snapshot(9, {"item": source}),
             lambda: write_epoch(disk / "cluster", Epoch(3, VERSION, {"item": 2}))]
    with Ballast(disk, 0):
        for call in calls:
            with pytest.raises(StoreError):
                call()
        assert rows_at(store) == expected([large_delta(1), large_delta(2)])
        assert not (disk / "snap").exists() and store.versions() == [VERSION]
    assert calls[0]() == 2
    assert calls[1]().number == 2
    assert calls[2]()["state"] == "added"
    calls[3]()
    assert store.adopt(disk / "cluster") == [3]
    store.close()
    with open_store(disk / "shard") as again:
        assert rows_at(again) == expected([large_delta(1), large_delta(2)])


def test_a_start_on_a_full_disk_says_so_and_works_later(disk):
    with serving(disk / "shard") as store:
        store.stage(delta_of(1))
        store.publish(Epoch(1, VERSION, {"item": 1}))
    with Ballast(disk, 0), pytest.raises(StoreFull):
        open_store(disk / "shard")
    with open_store(disk / "shard") as store:
        assert rows_at(store) == expected([delta_of(1)])
