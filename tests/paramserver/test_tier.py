"""Tables larger than RAM: the budget is kept, what is asked for often is in RAM, and trouble is told id by id."""

import os
import subprocess

import numpy as np
import pytest
from paramserver import RowStatus, Table, Tier
from paramserver.errors import ArrayError, EpochError, OptionError, StoreError, StoreFull
from paramserver.reference import ReferenceTable
from paramserver.snapshot import load_table, write_snapshot

DIM = 32
ROW_BYTES = DIM * 4
BOOKKEEPING = 41  # of the tier, for each row in RAM


def rows_for(ids, sequence=0):
    return np.repeat((np.asarray(ids) % 100_000 + sequence * 0.5)[:, None], DIM, 1).astype(np.float32)


def tier_of(tmp_path, ram_rows, **options):
    return Tier(ram_bytes_max=ram_rows * (ROW_BYTES + BOOKKEEPING), directory=tmp_path, **{"keeper": False, **options})


def spilling(tmp_path, ram_rows=50, rows=2000, **options):
    """A table of `rows` upserted rows, all but `ram_rows` of them in the spill file."""
    table = Table("t", DIM, tier=tier_of(tmp_path, ram_rows, **options))
    table.upsert(np.arange(rows), rows_for(np.arange(rows)))
    return table


def statuses(table, ids, **options):
    status = np.empty(len(ids), np.uint8)
    rows = table.lookup(ids, status=status, **options)
    return rows, status


@pytest.fixture
def snapshot(tmp_path):
    """A snapshot of ids 0 to 2999."""
    source = Table("base", DIM)
    source.upsert(np.arange(3000), rows_for(np.arange(3000)))
    write_snapshot(tmp_path / "base.snap", source)
    return tmp_path / "base.snap"


def test_rows_beyond_the_budget_are_cold(tmp_path):
    table = spilling(tmp_path)
    rows, status = statuses(table, np.arange(2000))
    np.testing.assert_array_equal(rows, rows_for(np.arange(2000)))
    assert np.bincount(status).tolist() == [50, 1950]
    stats = table.tier_stats()
    assert (stats.rows_ram, stats.rows_ram_max, stats.spill_rows) == (50, 50, 1950)
    assert stats.reads < 200, "slots of one page are one read"
    assert table.why(1999)["kind"] == "spill"


def test_a_snapshot_is_served_without_reading_its_rows(tmp_path, snapshot):
    table = load_table(snapshot, tier=tier_of(tmp_path, 100), verify=False)
    assert len(table) == 3000
    assert table.tier_stats().reads == 0
    ids = np.array([5, 2999, 77, 5, 123_456])
    rows, status = statuses(table, ids)
    np.testing.assert_array_equal(rows, np.concatenate([rows_for(ids[:4]), np.zeros((1, DIM))]))
    assert status.tolist() == [RowStatus.COLD] * 4 + [RowStatus.DEFAULT]
    assert table.why(5)["kind"] == "base"
    pooled = table.lookup_pooled(ids, np.array([0, 3, 5], np.int32), "sum")
    np.testing.assert_array_equal(pooled, [rows[:3].sum(0), rows[3:].sum(0)])


def test_what_is_asked_for_moves_into_ram_and_stays(tmp_path, snapshot):
    table = load_table(snapshot, tier=tier_of(tmp_path, 100))
    hot = np.arange(0, 240, 3)
    for _ in range(5):
        statuses(table, hot)
        table.maintain()
    for first in range(1000, 1400, 50):
        statuses(table, np.arange(first, first + 50))
        table.maintain()
    rows, status = statuses(table, hot)
    np.testing.assert_array_equal(rows, rows_for(hot))
    assert (status == RowStatus.HIT).mean() > 0.9
    stats = table.tier_stats()
    assert stats.rows_ram <= stats.rows_ram_max == 100
    assert stats.promoted >= 80
    assert stats.demoted_dirty == stats.spill_rows == 0, "base rows go by one store"


def test_the_keeper_moves_rows_in_by_itself(tmp_path, snapshot):
    table = load_table(snapshot, tier=tier_of(tmp_path, 100, keeper=True))
    hot = np.arange(40)
    for _ in range(10_000):
        _, status = statuses(table, hot)
        if (status == RowStatus.HIT).all():
            break
    assert (status == RowStatus.HIT).all()


def test_deltas_keep_the_budget_and_the_hot_set(tmp_path, snapshot):
    table = load_table(snapshot, tier=tier_of(tmp_path, 100))
    hot = np.arange(60)
    for _ in range(4):
        statuses(table, hot)
        table.maintain()
    everything = np.arange(4000)
    for sequence in range(1, 6):
        table.apply(sequence, everything, rows_for(everything, sequence))
        table.publish(sequence, sequence)
        if sequence > 1:
            table.retire(sequence - 1)
        table.maintain()
        rows, status = statuses(table, everything)
        np.testing.assert_array_equal(rows, rows_for(everything, sequence))
        assert table.stats().bytes_rows <= 100 * ROW_BYTES + 4096
    _, status = statuses(table, hot)
    assert (status == RowStatus.HIT).mean() > 0.5
    assert table.tier_stats().spill_rows <= 4000
    assert table.tier_stats().spill_bytes < 3 * 4000 * (ROW_BYTES + 8)


def test_held_epochs_leave_ram_to_the_newest_rows(tmp_path, snapshot):
    table = load_table(snapshot, tier=tier_of(tmp_path, 200))
    reference = ReferenceTable("t", DIM)
    reference.upsert(np.arange(3000), rows_for(np.arange(3000)))
    hot = np.arange(200)
    for _ in range(4):
        statuses(table, hot)
        table.maintain()
    rng = np.random.default_rng(5)
    for sequence in range(31):
        written = rng.choice(np.arange(40, 200), 30, replace=False)
        for one in (table, reference):
            if sequence:
                one.apply(sequence, written, rows_for(written, sequence), deletes=[sequence])
            one.publish(sequence + 1, sequence)
        rows, status = statuses(table, hot)
        np.testing.assert_array_equal(rows, reference.lookup(hot))
        present = reference.lookup(hot).any(axis=1)
        assert (status[present] == RowStatus.HIT).mean() > 0.9
        assert table.stats().bytes_rows <= 200 * (ROW_BYTES + 8) + 64
        table.maintain()
    assert len(table.epochs()) == 31
    for epoch in range(1, 32):
        np.testing.assert_array_equal(table.lookup(hot, epoch=epoch), reference.lookup(hot, epoch=epoch))
    for epoch in range(1, 31):
        table.retire(epoch)
    table.maintain()
    np.testing.assert_array_equal(table.lookup(hot), reference.lookup(hot))
    assert table.tier_stats().spill_rows < 200, "what the old epochs alone could see is free again"


def test_rows_superseded_while_there_was_room_leave_when_it_is_wanted(tmp_path, snapshot):
    table = load_table(snapshot, tier=tier_of(tmp_path, 200))
    few, many = np.arange(90), np.arange(205)
    for _ in range(3):
        statuses(table, few)
        table.maintain()
    table.publish(1, 0)
    table.apply(1, few, rows_for(few, 1))
    table.publish(2, 1)
    table.apply(2, [], np.empty((0, DIM), np.float32), deletes=[0, 1, 2, 3, 4])
    table.publish(3, 2)
    for _ in range(5):
        statuses(table, many)
        table.maintain()
    _, status = statuses(table, many)
    assert status.tolist() == [RowStatus.DEFAULT] * 5 + [RowStatus.HIT] * 200
    assert table.tier_stats().spill_rows == 5, "the first rows are in the base file, and go by one store"
    np.testing.assert_array_equal(table.lookup(many, epoch=1), rows_for(many))
    np.testing.assert_array_equal(table.lookup(few, epoch=2), rows_for(few, 1))
    table.publish(4, 1)
    table.retire(3)
    table.revert(1)
    np.testing.assert_array_equal(table.lookup(few), rows_for(few, 1))


def test_epochs_reach_rows_wherever_they_lie(tmp_path, snapshot):
    table = load_table(snapshot, tier=tier_of(tmp_path, 64))
    ids = np.arange(1500)
    table.publish(1, 0)
    table.apply(1, ids, rows_for(ids, 1), deletes=[7])
    table.publish(2, 1)
    for _ in range(3):
        np.testing.assert_array_equal(table.lookup(ids, epoch=1), rows_for(ids))
        expected = rows_for(ids, 1)
        expected[7] = 0
        np.testing.assert_array_equal(table.lookup(ids, epoch=2), expected)
        table.maintain()
    table.publish(3, 0)
    table.retire(2)
    table.revert(0)
    np.testing.assert_array_equal(table.lookup(ids), rows_for(ids))
    table.maintain()
    assert table.tier_stats().spill_rows == 0


def test_cold_reads_max_bounds_a_call(tmp_path):
    table = spilling(tmp_path, cold_reads_max=100)
    rows, status = statuses(table, np.arange(2000))
    assert np.bincount(status, minlength=6).tolist() == [50, 100, 0, 0, 0, 1850]
    np.testing.assert_array_equal(rows[status == RowStatus.DEADLINE], np.zeros((1850, DIM)))
    assert table.tier_stats().reads_over == 1850
    assert table.stats().statuses["deadline"] == 1850


def test_a_deadline_that_is_over_reads_nothing(tmp_path):
    table = spilling(tmp_path)
    _, status = statuses(table, np.arange(2000), deadline_s=0.0)
    assert set(status.tolist()) == {RowStatus.DEADLINE}
    assert table.tier_stats().reads == 0


def test_a_cut_base_file_is_unavailable_not_wrong(tmp_path, snapshot):
    table = load_table(snapshot, tier=tier_of(tmp_path, 64))
    os.truncate(snapshot, os.path.getsize(snapshot) // 2)
    ids = np.arange(3000)
    rows, status = statuses(table, ids)
    assert set(status.tolist()) == {RowStatus.COLD, RowStatus.UNAVAILABLE}
    np.testing.assert_array_equal(rows[status == RowStatus.COLD], rows_for(ids)[status == RowStatus.COLD])
    np.testing.assert_array_equal(rows[status == RowStatus.UNAVAILABLE], 0)
    assert table.tier_stats().reads_failed == (status == RowStatus.UNAVAILABLE).sum()


def test_a_spill_slot_of_another_id_is_unavailable_not_wrong(tmp_path):
    table = spilling(tmp_path)
    spill = [fd for fd in os.listdir("/proc/self/fd") if "(deleted)" in _target(fd) and str(tmp_path) in _target(fd)]
    assert len(spill) == 1
    with open(f"/proc/self/fd/{spill[0]}", "r+b", buffering=0) as file:
        file.write(b"\xff" * 4096)
        os.fsync(file.fileno())
    rows, status = statuses(table, np.arange(2000))
    lost = status == RowStatus.UNAVAILABLE
    assert lost.sum() == 4096 // (ROW_BYTES + 8)
    np.testing.assert_array_equal(rows[~lost], rows_for(np.arange(2000))[~lost])
    np.testing.assert_array_equal(rows[lost], 0)
    assert table.tier_stats().reads_mismatched == lost.sum()


def _target(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def test_a_full_spill_file_stops_writes_and_keeps_reads(tmp_path):
    table = spilling(tmp_path, rows=1000, spill_bytes_max=200_000)
    table.publish(1, 0)
    ids = np.arange(3000)
    with pytest.raises(StoreFull, match="spill_bytes_max"):
        table.apply(1, ids, rows_for(ids, 1))
    assert table.sequence == 0
    np.testing.assert_array_equal(table.lookup(ids[:1000]), rows_for(ids[:1000]))
    table.apply(1, ids[:100], rows_for(ids[:100], 1))
    table.publish(2, 1)
    np.testing.assert_array_equal(table.lookup(ids[:100]), rows_for(ids[:100], 1))
    assert table.tier_stats().spill_writes_refused == 1


def test_a_full_disk_stops_writes_and_keeps_reads_until_space_returns(tmp_path):
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", tmp_path],
                                           capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs takes root and the right to mount")
    try:
        (tmp_path / "filler").write_bytes(b"x" * 100_000)
        table = spilling(tmp_path, rows=500)
        table.publish(1, 0)
        ids = np.arange(1000)
        with pytest.raises(StoreFull, match="no space left"):
            table.apply(1, ids, rows_for(ids, 1))
        np.testing.assert_array_equal(table.lookup(ids[:500]), rows_for(ids[:500]))
        (tmp_path / "filler").unlink()
        table.apply(1, ids[:600], rows_for(ids[:600], 1))
        table.publish(2, 1)
        np.testing.assert_array_equal(table.lookup(ids[:600]), rows_for(ids[:600], 1))
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_options_are_checked(tmp_path):
    for name, value in {"ram_bytes_max": 0, "cold_reads_max": -1, "depth_max": 0, "base_offset_bytes": 100,
                        "proposals_max": 1.5}.items():
        with pytest.raises(OptionError, match=name):
            Tier(**{"ram_bytes_max": 1000, "directory": tmp_path, name: value})
    with pytest.raises(OptionError, match="room for a row"):
        Table("t", DIM, tier=Tier(ram_bytes_max=100, directory=tmp_path))
    with pytest.raises(StoreError, match="nowhere"):
        Table("t", DIM, tier=Tier(ram_bytes_max=1000, directory=tmp_path / "nowhere"))


def test_base_rows_need_a_tier_and_the_base_state(tmp_path, snapshot):
    with pytest.raises(OptionError, match="no tier"):
        Table("t", DIM).add_base([1])
    table = load_table(snapshot, tier=tier_of(tmp_path, 64))
    with pytest.raises(ArrayError, match="times_s"):
        table.add_base([90_000], times_s=np.zeros(1, np.int64))
    table.apply(1, [1], rows_for([1], 1))
    with pytest.raises(EpochError, match="takes deltas"):
        table.add_base([90_000])
    assert Table("t", DIM).tier_stats() is None


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_events_answers_as_the_reference_does(tmp_path, snapshot, seed):
    rng = np.random.default_rng(seed)
    table = load_table(snapshot, tier=tier_of(tmp_path, int(rng.integers(1, 200)), keeper=bool(seed % 2)))
    reference = ReferenceTable("t", DIM)
    reference.upsert(np.arange(3000), rows_for(np.arange(3000)))
    epoch, sequence, newest = 0, 0, 0
    for _ in range(60):
        event = rng.choice(["apply", "publish", "retire", "revert", "maintain", "look", "look"])
        held = reference.epochs()
        if event == "apply":
            newest += 1
            ids = rng.integers(0, 4000, rng.integers(1, 1500))
            deletes = rng.integers(0, 4000, rng.integers(0, 50))
            for one in (table, reference):
                one.apply(newest, ids, rows_for(ids, newest), deletes, after=sequence)
            sequence = newest
        elif event == "publish":
            epoch += 1
            for one in (table, reference):
                one.publish(epoch, sequence)
        elif event == "retire" and len(held) > 1:
            for one in (table, reference):
                one.retire(held[0][0])
        elif event == "revert" and held:
            sequence = max(shown for _, shown in held)
            for one in (table, reference):
                one.revert(sequence)
        elif event == "maintain":
            table.maintain()
        ids = np.where(rng.random(800) < 0.5, rng.integers(0, 100, 800), rng.integers(0, 4200, 800))
        for shown in [0, *(number for number, _ in reference.epochs())]:
            rows, status = statuses(table, ids, epoch=shown)
            expected, known = statuses(reference, ids, epoch=shown)
            np.testing.assert_array_equal(rows, expected)
            np.testing.assert_array_equal(status == RowStatus.DEFAULT, known == RowStatus.DEFAULT)
        assert table.stats().bytes_rows <= table.tier_stats().rows_ram_max * (ROW_BYTES + 8) + 64
    assert table.tier_stats().reads_failed == table.tier_stats().reads_mismatched == 0
