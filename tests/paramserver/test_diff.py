"""Diffs row by row: snapshots, epochs, tables, in batches of any size."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paramserver import Table, snapshot
from paramserver.diff import diff
from paramserver.errors import EpochError, TableSchemaError
from paramserver.reference import ReferenceTable
from paramserver.snapshot import Snapshot, write_snapshot


def table_of(rows, dim=2, table_class=ReferenceTable, **options):
    table = table_class("t", dim, **options)
    if rows:
        table.upsert(list(rows), np.float32([[value] * dim for value in rows.values()]))
    return table


def told(found):
    batches = list(found)
    added = [one for batch in batches for one in batch.added.tolist()]
    removed = [one for batch in batches for one in batch.removed.tolist()]
    changed = {one: (high, mean) for batch in batches
               for one, high, mean in zip(batch.changed.tolist(), batch.max_change.tolist(), batch.mean_change.tolist(),
                                          strict=True)}
    return sorted(added), sorted(removed), changed


def test_every_kind_of_difference(tmp_path):
    first, second = table_of({1: 1, 2: 2, 3: 3, 4: 4}), table_of({2: 2, 3: 3.5, 4: -4, 9: 9}, default_row=[0, 1])
    found = diff(first, second)
    assert told(found) == ([9], [1], {3: (0.5, 0.5), 4: (8, 8)})
    summary = found.summary
    assert (summary.added, summary.removed, summary.changed, summary.same) == (1, 1, 2, 1)
    assert (summary.max_change, summary.mean_change, summary.default_row_changed) == (8, 4.25, True)
    assert not summary.equal
    assert diff(first, first).summary.equal
    assert not diff(first, table_of({1: 1, 2: 2, 3: 3, 4: 4}, default_row=[1, 0])).summary.equal


RANDOM = st.dictionaries(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 40), st.integers(-3, 3), max_size=40)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RANDOM, RANDOM, st.integers(1, 9))
def test_a_diff_is_what_dicts_say(monkeypatch, one, other, step):
    monkeypatch.setattr(snapshot, "BATCH_BYTES", 8 * step)
    both = one.keys() & other.keys()
    expected = (sorted(other.keys() - both), sorted(one.keys() - both),
                {i: (abs(one[i] - other[i]),) * 2 for i in both if one[i] != other[i]})
    found = diff(table_of(one), table_of(other))
    assert told(found) == expected
    assert found.summary.same == len(both) - len(expected[2])


def test_snapshots_epochs_and_tables(tmp_path):
    table = table_of({1: 1, 2: 2}, table_class=Table)
    table.publish(1, 0)
    write_snapshot(tmp_path / "a.snap", table)
    table.apply(1, [2, 3], np.float32([[5, 5], [3, 3]]), deletes=[1])
    table.publish(2, 1)
    write_snapshot(tmp_path / "b.snap", table)
    states = {"a": (Snapshot.open(tmp_path / "a.snap"), 0), "b": (Snapshot.open(tmp_path / "b.snap"), 0),
              1: (table, 1), 2: (table, 2), 0: (table, 0)}
    for first in ("a", 1):
        for second in ("b", 2, 0):
            (one, epoch), (other, other_epoch) = states[first], states[second]
            found = diff(one, other, first_epoch=epoch, second_epoch=other_epoch)
            assert told(found) == ([3], [1], {2: (3, 3)})
    assert diff(states["b"][0], table).summary.equal
    with pytest.raises(EpochError):
        diff(table, table, first_epoch=1, second_epoch=7)


def test_stored_types_may_differ_and_dims_may_not():
    first, second = table_of({1: 1 / 3, 2: 2}), table_of({1: 1 / 3, 2: 2}, dtype="f16")
    added, removed, changed = told(diff(first, second))
    assert (added, removed, list(changed)) == ([], [], [1]) and 0 < changed[1][0] < 1e-3
    with pytest.raises(TableSchemaError, match="dim is 2 in the first and 3 in the second"):
        diff(first, table_of({}, dim=3))


def test_the_summary_finishes_what_was_begun_and_progress_ends_with_all_rows(monkeypatch):
    monkeypatch.setattr(snapshot, "BATCH_BYTES", 80)
    seen = []
    first, second = table_of({i: 1 for i in range(100)}), table_of({i: 2 for i in range(50, 200)})
    found = diff(first, second, progress=lambda done, rows: seen.append((done, rows)))
    next(iter(found))
    assert (found.summary.added, found.summary.removed, found.summary.changed) == (100, 50, 50)
    assert seen == sorted(seen) and seen[-1] == (250, 250) and len(seen) > 5
