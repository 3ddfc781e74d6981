"""A table in shared memory and its readers in other processes. What readers see beside an owner that writes all the
time, and that they would see otherwise if they did not check, is in csrc/mapped_test.cc."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paramserver import RowStatus, Table
from paramserver.errors import BagError, EpochError, OptionError, StoreDamaged, StoreError, StoreLocked
from paramserver.mapped import MappedTable

# Owns the file argv[1], shows epoch 7, and does what its standard input says.
OWNER = """
import sys
import numpy as np
from paramserver import Table
table = Table("clicks", 4, dtype="int8", shared=sys.argv[1], base_sequence=10, default_row=[9, 9, 9, 9])
table.upsert([1, 2], np.float32([[1, 1, 1, 1], [2, 2, 2, 2]]))
table.publish(7, 10)
print("ready", flush=True)
for line in sys.stdin:
    epoch, value = map(int, line.split())
    table.apply(table.sequence + 1, [1], np.full((1, 4), value, np.float32))
    table.publish(epoch, table.sequence)
    print("shown", flush=True)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "table.shared"


@pytest.fixture
def owner(path, checkout):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(checkout), *filter(None, sys.path)])}
    with subprocess.Popen([sys.executable, "-c", OWNER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True, env=environment) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def publish(owner, epoch, value):
    owner.stdin.write(f"{epoch} {value}\n")
    owner.stdin.flush()
    assert owner.stdout.readline() == "shown\n"


def test_another_process_sees_what_the_owner_publishes(owner, path):
    table = MappedTable(path)
    assert (table.name, table.dim, table.dtype, table.stored_row_bytes) == ("clicks", 4, "int8", 12)
    assert (table.epoch, table.epochs(), table.owner_alive) == (7, [(7, 10)], True)
    np.testing.assert_array_equal(table.default_row, [9] * 4)
    status = np.empty(3, np.uint8)
    np.testing.assert_array_equal(table.lookup([1, 2, 3], status=status)[:, 0], [1, 2, 9])
    assert status.tolist() == [RowStatus.HIT, RowStatus.HIT, RowStatus.DEFAULT]
    publish(owner, 8, 50)
    assert (table.epoch, table.epochs()) == (8, [(7, 10), (8, 11)])
    np.testing.assert_array_equal(table.lookup([1, 2])[:, 0], [50, 2])
    np.testing.assert_array_equal(table.lookup([1, 2], epoch=7)[:, 0], [1, 2])
    np.testing.assert_array_equal(table.lookup_pooled([1, 2, 1], np.int32([0, 2, 3]), "sum", epoch=8)[:, 3], [52, 50])
    table.lookup([1], status=status[:1], epoch=9)
    assert status[0] == RowStatus.UNAVAILABLE
    with pytest.raises(EpochError, match=r"does not hold epoch 9: it holds \[7, 8\]"):
        table.lookup_stored([1], epoch=9)
    stats = table.stats()
    assert (stats.lookups, stats.statuses["hit"], stats.statuses["unavailable"]) == (6, 9, 2)


def test_a_second_owner_is_refused_and_a_dead_one_replaced(owner, path):
    table = MappedTable(path)
    with pytest.raises(StoreLocked, match=r"table\.shared: another process owns"):
        Table("t", 4, shared=path)
    owner.kill()
    owner.wait()
    assert not table.owner_alive
    np.testing.assert_array_equal(table.lookup([1, 2])[:, 0], [1, 2])
    np.testing.assert_array_equal(MappedTable(path).lookup([1])[:, 0], [1])
    anew = Table("t", 2, shared=path)
    anew.upsert([1], np.ones((1, 2), np.float32))
    assert MappedTable(path).dim == 2 and MappedTable(path).owner_alive
    np.testing.assert_array_equal(table.lookup([1, 2])[:, 0], [1, 2])
    del anew
    assert not list(path.parent.iterdir())
    with pytest.raises(StoreError, match=r"table\.shared: cannot open"):
        MappedTable(path)


def test_readers_follow_an_owner_that_grows(path):
    owner, rng = Table("t", 3, shared=path), np.random.default_rng(5)
    table = MappedTable(path)
    ids, rows = rng.permutation(400_000), rng.normal(size=(400_000, 3)).astype(np.float32)
    for part in np.array_split(np.arange(len(ids)), 7):
        owner.upsert(ids[part], rows[part])
        np.testing.assert_array_equal(table.lookup(ids[: part[-1] + 1]), rows[: part[-1] + 1])
    owner.delete(ids[::2])
    status = np.empty(len(ids), np.uint8)
    table.lookup(ids, status=status)
    assert status[1::2].max() == RowStatus.HIT and status[::2].min() == RowStatus.DEFAULT


def test_the_file_lives_as_long_as_the_owner_and_the_mapping_longer(path):
    owner = Table("t", 1, shared=path)
    owner.upsert([3], np.float32([[4]]))
    capsule = MappedTable(path).capsule
    table = MappedTable(path)
    del owner
    assert not path.exists() and not table.owner_alive
    np.testing.assert_array_equal(table.lookup([3]), [[4]])
    assert "RowSource" in repr(capsule)


def test_arguments_are_checked_as_a_tables(path):
    owner = Table("t", 1, shared=path)
    owner.publish(1, 0)
    table = MappedTable(path)
    with pytest.raises(BagError, match="offsets"):
        table.lookup_pooled([1], np.int32([0, 2]))
    with pytest.raises(OptionError, match="mode"):
        table.lookup_pooled([1], np.int32([0, 1]), "max")
    assert "epoch=1" in repr(table)


def test_an_owner_that_cannot_have_its_file_says_which(tmp_path):
    with pytest.raises(StoreError, match=r"nowhere/t: cannot open"):
        Table("t", 1, shared=tmp_path / "nowhere" / "t")
    with pytest.raises(OptionError):
        Table("t", 0, shared=tmp_path / "t")
    assert not list(tmp_path.iterdir())


def test_files_that_are_no_shared_table_are_refused(path):
    for content in (b"", b"x" * 100, b"\0" * 8192, b"junk" * 4096):
        path.write_bytes(content)
        with pytest.raises(StoreDamaged, match=r"table\.shared: is no shared table"):
            MappedTable(path)


@settings(max_examples=150, deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, 399), st.integers(1, 255)), min_size=1, max_size=6),
       cut=st.integers(0, 9))
def test_a_damaged_header_is_refused_or_read_without_harm(tmp_path_factory, changes, cut):
    folder = tmp_path_factory.mktemp("damaged")
    owner = Table("t", 2, shared=folder / "t")
    owner.upsert([1], np.ones((1, 2), np.float32))
    content = bytearray((folder / "t").read_bytes())
    for at, flip in changes:
        content[at] ^= flip
    (folder / "copy").write_bytes(content[: len(content) // 2] if cut == 0 else content)
    try:
        table = MappedTable(folder / "copy")
    except (StoreDamaged, StoreError):
        return
    table.lookup([1, 2, 3], deadline_s=0.2)
