"""Snapshots: round trips, the bytes that the format says, equal bytes for equal tables, and files that appear whole."""

import resource
import signal
import time

import numpy as np
import pytest
from paramserver import Table
from paramserver.arrays import DTYPES
from paramserver.errors import EpochError, OptionError, StoreFull, TableFileError, TableSchemaError
from paramserver.reference import ReferenceTable
from paramserver.shard_map import mix
from paramserver.snapshot import BATCH_BYTES, Snapshot, load_table, write_snapshot

from tests.paramserver.snapshot_bytes import layout_of, sealed


def table_of(dtype="f32", dim=5, rows=3000, seed=0, table_class=Table):
    rng = np.random.default_rng(seed)
    table = table_class("item", dim, dtype=dtype, default_row=rng.normal(size=dim))
    ids = np.concatenate([[-(2**63), 2**63 - 1, 0, -1], rng.integers(-(2**63), 2**63 - 1, rows)])
    table.upsert(ids, rng.normal(size=(len(ids), dim)).astype(np.float32))
    return table


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [1, 5, 32, 1100])
def test_a_table_comes_back_as_it_was(tmp_path, dtype, dim):
    table = table_of(dtype, dim, rows=300)
    header = write_snapshot(tmp_path / "item.snap", table, base_sequence=3, package_version=9, time_s=77)
    assert (header.dtype, header.dim, header.rows) == (dtype, dim, len(table))
    assert (header.base_sequence, header.package_version, header.time_s) == (3, 9, 77)
    snapshot = Snapshot.open(tmp_path / "item.snap")
    snapshot.verify()
    assert (snapshot.name, snapshot.dim, snapshot.dtype, len(snapshot)) == ("item", dim, dtype, len(table))
    np.testing.assert_array_equal(np.sort(snapshot.ids), table.ids())
    assert np.all(np.diff(mix(snapshot.ids).astype(object)) > 0)
    np.testing.assert_array_equal(snapshot.rows(0, len(snapshot)), table.lookup(snapshot.ids))
    np.testing.assert_array_equal(snapshot.rows(7, 9), table.lookup(snapshot.ids[7:9]))
    np.testing.assert_array_equal(snapshot.default_row, table.default_row)
    assert snapshot.times is None
    again = load_table(tmp_path / "item.snap")
    assert (again.name, again.dtype, len(again)) == ("item", dtype, len(table))
    np.testing.assert_array_equal(again.lookup_stored(snapshot.ids), table.lookup_stored(snapshot.ids))
    np.testing.assert_array_equal(again.default_row, table.default_row)


def test_the_bytes_are_what_the_format_says(tmp_path):
    table = table_of("f16", 33, rows=200)
    write_snapshot(tmp_path / "t.snap", table, base_sequence=2**63 - 1, package_version=1, time_s=5)
    raw = (tmp_path / "t.snap").read_bytes()
    layout = layout_of(raw)
    assert (layout.magic, layout.format, layout.stored, layout.dim, layout.flags) == (b"LSVCSNAP", 1, 1, 33, 0)
    assert (layout.row_bytes, layout.slot_bytes, layout.rows, layout.base_sequence) == (66, 66, 204, 2**63 - 1)
    assert layout.file_bytes == len(raw) == sum(layout.sections["checksums"])
    assert sealed(raw) == raw
    ids = np.frombuffer(raw, "<i8", 204, layout.sections["ids"][0])
    assert ids.tolist() == sorted(table.ids().tolist(), key=lambda one: int(mix([one])[0]))
    for i in (0, 61, 62, 203):
        row = np.frombuffer(raw, "<f2", 33, layout.slot(i))
        np.testing.assert_array_equal(row.astype(np.float32), table.lookup(ids[i : i + 1])[0])
    default_row = np.frombuffer(raw, "<f2", 33, layout.sections["default_row"][0])
    np.testing.assert_array_equal(default_row.astype(np.float32), table.default_row)


def test_equal_tables_give_equal_bytes(tmp_path):
    one, other = table_of(), Table("other", 5, default_row=table_of().default_row, rows_hint=10000)
    for i in reversed(range(0, len(one), 100)):
        part = one.ids()[i : i + 100]
        other.upsert(part, one.lookup(part))
    write_snapshot(tmp_path / "a.snap", one)
    write_snapshot(tmp_path / "b.snap", other)
    write_snapshot(tmp_path / "c.snap", table_of(table_class=ReferenceTable))
    write_snapshot(tmp_path / "d.snap", Snapshot.open(tmp_path / "a.snap"))
    assert len({(tmp_path / f"{name}.snap").read_bytes() for name in "abcd"}) == 1


def test_a_copy_of_a_snapshot_keeps_what_its_header_says(tmp_path):
    write_snapshot(tmp_path / "a.snap", table_of("int8"), base_sequence=4, package_version=2, time_s=8)
    header = write_snapshot(tmp_path / "b.snap", Snapshot.open(tmp_path / "a.snap"), time_s=9)
    assert (header.base_sequence, header.package_version, header.time_s) == (4, 2, 9)
    with pytest.raises(EpochError, match="has one state"):
        write_snapshot(tmp_path / "c.snap", Snapshot.open(tmp_path / "a.snap"), epoch=1)


@pytest.mark.parametrize("table_class", [Table, ReferenceTable])
def test_rows_with_a_time_to_live_keep_their_times(tmp_path, table_class):
    now = int(time.time())
    table = table_class("t", 1, ttl_s=6300, base_time_s=now - 8000)
    table.apply(1, [4], np.ones((1, 1), np.float32), time_s=now - 7000)
    table.apply(2, [1, 2], np.ones((2, 1), np.float32), time_s=now - 5000)
    table.apply(3, [3], np.ones((1, 1), np.float32), time_s=now - 100)
    table.publish(1, 3)
    header = write_snapshot(tmp_path / "t.snap", table, base_sequence=3, time_s=now)
    snapshot = Snapshot.open(tmp_path / "t.snap")
    snapshot.verify()
    assert (header.has_times, header.rows) == (True, 3)
    assert dict(zip(snapshot.ids.tolist(), snapshot.times.tolist(), strict=True)) == {
        1: now - 5000, 2: now - 5000, 3: now - 100}
    write_snapshot(tmp_path / "copy.snap", snapshot)
    assert (tmp_path / "copy.snap").read_bytes() == (tmp_path / "t.snap").read_bytes()
    again = load_table(tmp_path / "t.snap", ttl_s=6300)
    # Ages are kept to a 63rd of the time to live.
    for one, written in ((1, now - 5000), (3, now - 100)):
        assert written - 102 <= again.why(one)["time_s"] <= written + 2
    assert (again.sequence, again.ids().tolist()) == (3, [1, 2, 3])
    assert table.row_times([3, 77, 1]).tolist() == [now - 100, 0, now - 5000]
    assert Table("t", 1).row_times([1]) is None


def test_an_empty_table_keeps_its_shape(tmp_path):
    assert write_snapshot(tmp_path / "t.snap", Table("t", 7, dtype="f16")).rows == 0
    snapshot = Snapshot.open(tmp_path / "t.snap")
    snapshot.verify()
    assert (snapshot.ids.tolist(), snapshot.rows(0, 0).shape) == ([], (0, 7))
    assert (len(load_table(tmp_path / "t.snap")), load_table(tmp_path / "t.snap").dim) == (0, 7)


def test_ids_are_a_read_only_view_that_outlives_the_snapshot(tmp_path):
    write_snapshot(tmp_path / "t.snap", table_of())
    ids = Snapshot.open(tmp_path / "t.snap").ids
    (tmp_path / "t.snap").unlink()
    assert len(set(ids.tolist())) == 3004
    with pytest.raises(ValueError, match="read-only"):
        ids[0] = 1


def test_rows_outside_are_refused(tmp_path):
    write_snapshot(tmp_path / "t.snap", table_of())
    snapshot = Snapshot.open(tmp_path / "t.snap")
    for first, end in ((-1, 2), (3, 2), (0, 3005)):
        with pytest.raises(OptionError, match="0 <= first <= end <= 3004"):
            snapshot.stored_rows(first, end)


@pytest.mark.parametrize("name", ["base_sequence", "package_version", "time_s"])
@pytest.mark.parametrize("value", [-1, 2**63, 1.5, True])
def test_numbers_of_the_header_are_checked(tmp_path, name, value):
    with pytest.raises(OptionError, match=f"{name} is {value}, expected an integer"):
        write_snapshot(tmp_path / "t.snap", Table("t", 1), **{name: value})
    assert list(tmp_path.iterdir()) == []


def test_progress_ends_with_all_rows(tmp_path):
    rows = 3 * BATCH_BYTES // 4096
    table = Table("t", 1024, dtype="int8")
    table.upsert(np.arange(rows), np.zeros((rows, 1024), np.float32))
    for work in (lambda told: write_snapshot(tmp_path / "t.snap", table, progress=told),
                 lambda told: Snapshot.open(tmp_path / "t.snap").verify(told),
                 lambda told: load_table(tmp_path / "t.snap", progress=told)):
        seen = []
        work(lambda done, all_rows, seen=seen: seen.append((done, all_rows)))
        assert seen == sorted(seen) and seen[-1] == (rows, rows)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    write_snapshot(tmp_path / "t.snap", table_of(rows=10))
    before = (tmp_path / "t.snap").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, limits[1]))
    try:
        with pytest.raises(StoreFull, match=r"t\.snap.*nothing was published"):
            write_snapshot(tmp_path / "t.snap", table_of(rows=9000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.snap"]
    assert (tmp_path / "t.snap").read_bytes() == before
    with pytest.raises(TableFileError, match="nowhere"):
        write_snapshot(tmp_path / "nowhere" / "t.snap", table_of(rows=1))


def test_rows_that_vanish_meanwhile_are_an_error(tmp_path):
    class Losing(ReferenceTable):
        def lookup_stored(self, ids, *options):
            self.delete(ids[:1])
            return super().lookup_stored(ids, *options)

    with pytest.raises(EpochError, match="is DEFAULT while its row is written"):
        write_snapshot(tmp_path / "t.snap", table_of(rows=10, table_class=Losing))
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_no_snapshots(tmp_path):
    with pytest.raises(TableFileError, match=r"absent\.snap: cannot open it"):
        Snapshot.open(tmp_path / "absent.snap")
    with pytest.raises(TableFileError, match="no regular file"):
        Snapshot.open(tmp_path)
    for content in (b"", b"PAR1" * 5000):
        (tmp_path / "t.snap").write_bytes(content)
        with pytest.raises(TableSchemaError, match=r"t\.snap"):
            Snapshot.open(tmp_path / "t.snap")
