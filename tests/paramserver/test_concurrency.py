"""Readers beside a writer, through Python: no torn row, no row of another id, no version that goes back.

csrc/concurrency_test.cc does the same without the interpreter, under the thread sanitizer, and is built a second time
over a table that updates rows in place, where it must fail.
"""

import threading

import numpy as np
import pytest
from paramserver import RowStatus, Table, Tier
from paramserver.mapped import MappedTable

DIM = 512
IDS = np.arange(-100, 100)
VERSIONS = 60


def torn(rows):
    """How many rows do not hold one number in all places."""
    return int((rows != rows[:, :1]).any(axis=1).sum())


def read_until(done, table, faults):
    newest = np.zeros(len(IDS), np.float32)
    out = np.empty((len(IDS), DIM), np.float32)
    while True:
        last = done.is_set()
        table.lookup(IDS, out=out)
        if torn(out):
            faults.append(f"{torn(out)} torn rows")
        if (out[:, 0] < newest).any():
            faults.append("a version went back")
        np.maximum(newest, out[:, 0], out=newest)
        pooled = table.lookup_pooled(IDS, np.arange(len(IDS) + 1, dtype=np.int32), "sum")
        if torn(pooled):
            faults.append(f"{torn(pooled)} torn rows in bags")
        if last:
            return


def test_readers_see_whole_rows_beside_a_writer(native):
    table = native(DIM)
    faults, done = [], threading.Event()
    readers = [threading.Thread(target=read_until, args=(done, table, faults)) for _ in range(2)]
    for reader in readers:
        reader.start()
    for version in range(1, VERSIONS + 1):
        table.upsert(IDS, np.full((len(IDS), DIM), version, np.float32))
        others = np.arange(version * 1000, version * 1000 + 300)
        table.upsert(others, np.full((300, DIM), -1, np.float32))
        if version % 2:
            table.delete(others)
    done.set()
    for reader in readers:
        reader.join()
    assert faults == []
    np.testing.assert_array_equal(table.lookup(IDS), np.full((len(IDS), DIM), VERSIONS))


def epochs_in_one_call(owner, reader, ids):
    """Faults of lookups at the newest epoch while the owner publishes, and retires at once what they may be at."""
    owner.upsert(ids, np.zeros((len(ids), 4), np.float32))
    owner.publish(1, 0)
    faults, done = [], threading.Event()
    offsets = np.arange(len(ids) + 1, dtype=np.int32)

    def read():
        status = np.empty(len(ids), np.uint8)
        while not done.is_set():
            for rows in (reader.lookup(ids, status=status), reader.lookup_pooled(ids, offsets, "sum", status=status)):
                seen = np.unique(rows[status == RowStatus.HIT])
                if len(seen) > 1 or not np.isin(status, (RowStatus.HIT, RowStatus.UNAVAILABLE)).all():
                    faults.append(f"epochs {seen.tolist()} and statuses {np.unique(status).tolist()} in one call")

    thread = threading.Thread(target=read)
    thread.start()
    for sequence in range(1, 25):
        owner.apply(sequence, ids, np.full((len(ids), 4), sequence, np.float32))
        owner.publish(sequence + 1, sequence)
        owner.retire(sequence)
    done.set()
    thread.join()
    return faults, int((reader.lookup(ids) == 24).all())


def test_one_call_is_of_one_epoch_even_when_that_is_retired_meanwhile(native):
    table = native(4)
    assert epochs_in_one_call(table, table, np.arange(60_000)) == ([], 1)
    assert table.stats().statuses["unavailable"] == 0


def test_one_call_of_a_mapped_table_is_of_one_epoch_too(tmp_path):
    owner = Table("t", 4, shared=tmp_path / "t")
    assert epochs_in_one_call(owner, MappedTable(tmp_path / "t"), np.arange(60_000)) == ([], 1)


def test_a_torn_row_is_noticed():
    rows = np.full((3, DIM), 5, np.float32)
    assert torn(rows) == 0
    rows[1, DIM // 2 :] = 6
    assert torn(rows) == 1


def test_writers_take_turns(native):
    table = native(4)

    def write(start):
        for first in range(start, start + 4000, 100):
            ids = np.arange(first, first + 100)
            table.upsert(ids, np.repeat(ids[:, None], 4, 1).astype(np.float32))

    writers = [threading.Thread(target=write, args=(k * 4000,)) for k in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    np.testing.assert_array_equal(table.lookup(np.arange(12_000)), np.repeat(np.arange(12_000)[:, None], 4, 1))


def test_updating_every_row_again_and_again_reuses_memory(native):
    table = native(16, rows_hint=10_000)
    ids = np.arange(10_000)
    for version in range(30):
        table.upsert(ids, np.full((len(ids), 16), version, np.float32))
    assert table.stats().bytes < 4 * (10_000 * 64 + 10_000 * 40)


def test_the_native_concurrency_test_passes_and_its_broken_twin_fails(native_build):
    import subprocess

    assert subprocess.run([native_build("paramserver_concurrency_test")], check=False).returncode == 0
    assert subprocess.run([native_build("paramserver_broken_test")], check=False, capture_output=True).returncode == 1


@pytest.mark.parametrize("ask", ["why", "stats", "tier_stats"])
def test_waiting_for_a_writer_leaves_the_other_threads_alone(ask, tmp_path):
    tier = Tier(ram_bytes_max=1 << 20, directory=tmp_path, keeper=False, direct=False)
    table = Table("t", 4, apply_rows_per_s=12_000.0, tier=tier)
    ids = np.arange(6_000)
    asked, ticks = threading.Event(), 0

    def call():
        asked.set()
        table.why(1) if ask == "why" else getattr(table, ask)()

    writer = threading.Thread(target=table.apply, args=(1, ids, np.zeros((ids.size, 4), np.float32)))
    writer.start()
    caller = threading.Thread(target=call)
    caller.start()
    assert asked.wait(20)
    while caller.is_alive():
        caller.join(0.001)
        ticks += 1
    writer.join()
    assert ticks > 20
