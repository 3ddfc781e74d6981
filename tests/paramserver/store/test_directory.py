"""A shard's directory: one writer, one identity, and what was acknowledged is there or the start says what is not."""

import os
import subprocess
import sys

import pytest
from paramserver.epoch import Epoch
from paramserver.errors import OptionError, StoreDamaged, StoreError, StoreLocked
from paramserver.reference import ReferenceTable
from paramserver.store import ShardStore, recovery
from paramserver.store.rocks import open_rocks

from tests.paramserver.store.making import VERSION, delta_of, expected, large_delta, open_store, rows_at, serving

OPEN = """
import sys
from paramserver.errors import StoreLocked
from paramserver.reference import ReferenceTable
from paramserver.store import ShardStore, recovery
try:
    ShardStore.open(sys.argv[1])
except StoreLocked as error:
    print(error)
"""


def test_a_second_writer_fails_at_once_with_the_path(tmp_path):
    with open_store(tmp_path / "shard"):
        with pytest.raises(StoreLocked, match=rf"{tmp_path / 'shard'} is open for writing by process {os.getpid()}"):
            open_store(tmp_path / "shard")
        said = subprocess.run([sys.executable, "-c", OPEN, tmp_path / "shard"], text=True, check=True,
                              stdout=subprocess.PIPE, env={"PYTHONPATH": os.pathsep.join(sys.path)}).stdout
        assert f"{tmp_path / 'shard'} is open for writing by process {os.getpid()} already" in said
    open_store(tmp_path / "shard").close()


def test_a_failed_start_lets_the_directory_go(tmp_path):
    open_store(tmp_path / "shard").close()
    with pytest.raises(StoreError, match="shard 0 of 1; it was opened as format 1, shard 1 of 2"):
        open_store(tmp_path / "shard", shard=1, shards=2)
    open_store(tmp_path / "shard").close()


def test_an_identity_that_cannot_be_read_is_damage(tmp_path):
    open_store(tmp_path / "shard").close()
    (tmp_path / "shard" / "store.json").write_text("[1]")
    with pytest.raises(StoreDamaged, match=r"store\.json"):
        open_store(tmp_path / "shard")


@pytest.mark.parametrize(("options", "says"), [
    ({"durability": "none"}, "durability is 'none'"), ({"shard": 1}, "shard is 1 of 1"), ({"shards": 0}, "of 0"),
    ({"shards": 10_000}, "of 10000"), ({"shard": "0"}, "shard is '0'"),
])
def test_options_are_checked(tmp_path, options, says):
    with pytest.raises(OptionError, match=says):
        ShardStore.open(tmp_path / "shard", **options)


def published(directory, make, durability):
    with serving(directory, durability=durability) as store:
        for sequence in (1, 2, 3):
            store.stage(make(sequence))
        store.publish(Epoch(1, VERSION, {"item": 2}))


def remove_entry(directory, sequence):
    db = open_rocks(directory / "log")
    for key in [key for key in db.keys() if key.startswith(b"s/") and key.endswith(b"%020d" % sequence)]:
        db.delete(key)
    db.close()


@pytest.mark.parametrize("durability", ["process", "sync"])
def test_a_log_that_lacks_what_an_epoch_names_is_damage(tmp_path, durability):
    published(tmp_path / "shard", delta_of, durability)
    remove_entry(tmp_path / "shard", 2)
    with pytest.raises(StoreDamaged, match="epoch 1 was published here, but the log lacks deltas of table 'item': 2 to "
                                           "2, base version 4"):
        open_store(tmp_path / "shard")


def test_rows_that_an_epoch_names_and_that_are_damaged_are_named(tmp_path):
    published(tmp_path / "shard", large_delta, "process")
    path = sorted((tmp_path / "shard").glob("payloads/*/*/*"))[1]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreDamaged, match="lacks deltas of table 'item': 2 to 2.*delta 2 of table 'item', base "
                                           "version 4 is damaged"):
        open_store(tmp_path / "shard")


@pytest.mark.parametrize("damage", ["cut", "flip", "remove"])
def test_unsynced_rows_that_a_power_loss_took_are_dropped_whole_and_synced_ones_are_damage(tmp_path, damage):
    for durability in ("process", "sync"):
        directory = tmp_path / durability
        published(directory, large_delta, durability)
        path = sorted(directory.glob("payloads/*/*/*"))[2]
        raw = path.read_bytes()
        path.unlink()
        if damage != "remove":
            path.write_bytes(raw[:-4] + (b"" if damage == "cut" else bytes([raw[-4] ^ 1]) + raw[-3:]))
    with open_store(tmp_path / "process") as store:
        assert [str(entry) for entry in store.lost] == ["delta 3 of table 'item', base version 4"]
        assert rows_at(store) == expected([large_delta(1), large_delta(2)])
        assert store.stage(large_delta(3)) == "applied"
    with pytest.raises(StoreDamaged, match="payloads"):
        open_store(tmp_path / "sync")


def test_a_base_that_an_epoch_names_and_that_is_gone_is_damage(tmp_path):
    published(tmp_path / "shard", delta_of, "process")
    base = next((tmp_path / "shard" / "bases").iterdir())
    base.rename(tmp_path / "elsewhere")
    with pytest.raises(StoreDamaged, match="the base of its package version 4 is missing"):
        open_store(tmp_path / "shard")


def test_files_that_nothing_names_are_removed_at_the_start(tmp_path):
    published(tmp_path / "shard", large_delta, "process")
    orphan = next((tmp_path / "shard").glob("payloads/*/*/*")).with_name(f"{9:020d}-{'ab' * 16}.rows")
    orphan.write_bytes(b"x")
    unfinished = tmp_path / "shard" / "incoming" / "x" / "item.parquet"
    unfinished.parent.mkdir()
    unfinished.write_bytes(b"x")
    (tmp_path / "shard" / "bases" / ".00000000000000000009.0000000000.ab.tmp").mkdir()
    with open_store(tmp_path / "shard") as store:
        assert not orphan.exists() and not unfinished.parent.exists()
        assert [p.name for p in (tmp_path / "shard" / "bases").iterdir()] == [f"{VERSION:020d}.{0:010d}"]
        assert rows_at(store) == expected([large_delta(1), large_delta(2)])


def test_a_start_tells_how_far_it_is(tmp_path):
    published(tmp_path / "shard", large_delta, "process")
    told = []
    with open_store(tmp_path / "shard", progress=lambda *step: told.append(step)):
        pass
    assert [step[0] for step in told] == ["table 'item', version 4",
                                          *(f"delta {s} of table 'item', base version 4" for s in (1, 2, 3))]
    assert [step[1] for step in told] == sorted(step[1] for step in told) and told[-1][1] == told[-1][2]
    assert len({step[2] for step in told}) == 1


@pytest.mark.parametrize("torn", [b"", b'{"raw_mode":tr'])
def test_the_file_that_rocksdict_writes_in_place_may_be_torn(tmp_path, torn):
    published(tmp_path / "shard", delta_of, "process")
    (tmp_path / "shard" / "log" / "rocksdict-config.json").write_bytes(torn)
    with open_store(tmp_path / "shard") as store:
        assert rows_at(store) == expected([delta_of(1), delta_of(2)])


def test_a_broken_database_is_a_typed_error(tmp_path):
    published(tmp_path / "shard", delta_of, "process")
    for path in (tmp_path / "shard" / "log").glob("MANIFEST*"):
        path.write_bytes(b"x" * 100)
    with pytest.raises(StoreError, match="log"):
        open_store(tmp_path / "shard")


def test_a_long_replay_does_not_keep_the_states_in_between(tmp_path, monkeypatch):
    monkeypatch.setattr(recovery, "DELTAS_A_RUNG", 4)
    published_here = []

    class Spy(ReferenceTable):
        def publish(self, epoch, sequence):
            published_here.append((epoch, sequence))
            super().publish(epoch, sequence)

    deltas = [delta_of(sequence, ids=(sequence,)) for sequence in range(1, 25)]
    with serving(tmp_path / "shard", hold_s=0.0) as store:
        for delta in deltas:
            store.stage(delta)
            if delta.sequence in (1, 2, 3, 18, 22):
                store.publish(Epoch(delta.sequence, VERSION, {"item": delta.sequence}))
                store.lease(delta.sequence, 60.0 if delta.sequence >= 18 else 0.0)
        store.expire()
    with open_store(tmp_path / "shard", table_class=Spy) as store:
        assert published_here == [(1, 3), (2, 7), (3, 11), (4, 15), (18, 18), (22, 22)]
        assert store.tables(VERSION)["item"].epochs() == [(18, 18), (22, 22)]
        assert rows_at(store, 18) == expected(deltas[:18]) and rows_at(store) == expected(deltas[:22])
        store.publish(Epoch(30, VERSION, {"item": 24}))
        assert rows_at(store) == expected(deltas)
