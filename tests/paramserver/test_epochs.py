"""What every table promises of deltas, epochs, expiry and admission, reference and native alike."""

import time

import numpy as np
import pytest

from paramserver import RowStatus
from paramserver.errors import (
    ArrayError,
    EpochError,
    IdError,
    OptionError,
    RowValueError,
)

HIT, DEFAULT, FILTERED = RowStatus.HIT, RowStatus.DEFAULT, RowStatus.FILTERED
UNAVAILABLE, DEADLINE = RowStatus.UNAVAILABLE, RowStatus.DEADLINE


def rows(*values, dim=2):
    return np.repeat(np.float32(values)[:, None], dim, 1)


def seen(table, ids, epoch=0):
    """First element and status of each id's row."""
    status = np.empty(len(ids), np.uint8)
    return list(zip(table.lookup(ids, status=status, epoch=epoch)[:, 0].tolist(), status.tolist(), strict=True))


def filled(make, **options):
    """Base {1: 10, 2: 20}, delta 1 {2: 21, 3: 31}, delta 2 {3: 32} without 1, published as epochs 5, 6 and 7."""
    table = make(2, default_row=[-1, -1], **options)
    table.upsert([1, 2], rows(10, 20))
    table.apply(1, [2, 3], rows(21, 31))
    table.apply(2, [3], rows(32), deletes=[1, 99])
    for epoch, sequence in ((5, 0), (6, 1), (7, 2)):
        table.publish(epoch, sequence)
    return table


def test_each_epoch_keeps_its_own_rows(make):
    table = filled(make)
    assert seen(table, [1, 2, 3, 4], 5) == [(10, HIT), (20, HIT), (-1, DEFAULT), (-1, DEFAULT)]
    assert seen(table, [1, 2, 3, 4], 6) == [(10, HIT), (21, HIT), (31, HIT), (-1, DEFAULT)]
    assert seen(table, [1, 2, 3, 4], 7) == [(-1, DEFAULT), (21, HIT), (32, HIT), (-1, DEFAULT)]
    assert seen(table, [1, 2, 3, 4]) == seen(table, [1, 2, 3, 4], 7)
    assert [table.ids(epoch).tolist() for epoch in (5, 6, 7, 0)] == [[1, 2], [1, 2, 3], [2, 3], [2, 3]]
    assert (len(table), table.sequence, table.epochs()) == (2, 2, [(5, 0), (6, 1), (7, 2)])
    bags = np.array([0, 2, 4], np.int32)
    np.testing.assert_array_equal(table.lookup_pooled([1, 2, 3, 3], bags, "sum", epoch=6), rows(31, 62))


def test_what_is_applied_is_seen_by_nobody_until_it_is_published(make):
    table = make(2)
    table.upsert([1], rows(10))
    table.apply(1, [1, 2], rows(11, 22))
    assert seen(table, [1, 2]) == [(10, HIT), (0, DEFAULT)]
    assert (len(table), table.sequence, table.epochs()) == (1, 1, [])
    table.publish(1, 0)
    table.apply(2, [], np.empty((0, 2), np.float32), deletes=[1])
    assert seen(table, [1, 2]) == [(10, HIT), (0, DEFAULT)]
    table.publish(2, 2)
    assert seen(table, [1, 2]) == [(0, DEFAULT), (22, HIT)]
    assert seen(table, [1, 2], 1) == [(10, HIT), (0, DEFAULT)]


def test_an_epoch_that_is_not_held_is_never_answered_from_another(make):
    table = filled(make)
    assert seen(table, [1, 2], 4) == [(-1, UNAVAILABLE)] * 2
    table.retire(5)
    assert seen(table, [1, 2], 5) == [(-1, UNAVAILABLE)] * 2
    for call in (table.ids, lambda epoch: table.why(1, epoch), lambda epoch: table.lookup_stored([1], epoch)):
        with pytest.raises(EpochError, match=r"does not hold epoch 5: it holds .*6, 7"):
            call(5)
    assert seen(table, [1, 2], 6) == [(10, HIT), (21, HIT)]


def test_a_rollback_is_a_new_epoch_of_an_older_sequence(make):
    table = filled(make)
    table.publish(8, 1)
    assert seen(table, [1, 2, 3]) == [(10, HIT), (21, HIT), (31, HIT)]
    assert seen(table, [1, 2, 3], 7) == [(-1, DEFAULT), (21, HIT), (32, HIT)]
    with pytest.raises(EpochError, match="epoch 7 still shows sequence 2"):
        table.revert(1)
    table.retire(7)
    table.revert(1)
    assert (table.sequence, len(table)) == (1, 3)
    assert seen(table, [1, 2, 3], 8) == [(10, HIT), (21, HIT), (31, HIT)]
    table.apply(3, [3], rows(33), after=1)
    table.publish(9, 3)
    assert seen(table, [1, 2, 3]) == [(10, HIT), (21, HIT), (33, HIT)]
    assert seen(table, [1, 2, 3], 8) == [(10, HIT), (21, HIT), (31, HIT)]
    assert seen(table, [1, 2, 3], 5) == [(10, HIT), (20, HIT), (-1, DEFAULT)]
    with pytest.raises(EpochError, match="does not hold sequence 2"):
        table.publish(10, 2)


def test_reverting_to_the_base_state(make):
    table = make(2)
    table.upsert([1, 2], rows(1, 2))
    table.apply(1, [2, 3], rows(5, 6), deletes=[1])
    table.apply(2, [3, 4], rows(7, 8), deletes=[2])
    table.revert(0)
    table.publish(1, 0)
    assert seen(table, [1, 2, 3, 4]) == [(1, HIT), (2, HIT), (0, DEFAULT), (0, DEFAULT)]
    table.apply(1, [4], rows(9))
    table.publish(2, 1)
    assert seen(table, [1, 2, 3, 4]) == [(1, HIT), (2, HIT), (0, DEFAULT), (9, HIT)]


def test_a_delta_is_all_or_nothing(make):
    table = filled(make)
    bad = rows(1, np.nan)
    with pytest.raises(RowValueError, match=r"rows\[1\]"):
        table.apply(3, [2, 3], bad, deletes=[2])
    with pytest.raises(IdError):
        table.apply(3, [2, 3], rows(1, 2), deletes=[0.5])
    with pytest.raises(ArrayError):
        table.apply(3, [2, 3], rows(1))
    assert table.sequence == 2
    table.apply(3, [2, 2, 3], rows(1, 2, 3), deletes=[3])
    table.publish(8, 3)
    assert seen(table, [2, 3]) == [(2, HIT), (-1, DEFAULT)]


def test_sequences_and_epochs_out_of_order_are_refused_by_name(make):
    table = filled(make)
    for sequence in (0, 2, 4):
        with pytest.raises(EpochError, match="the table is at 2: expected sequence 3"):
            table.apply(sequence, [1], rows(1)) if sequence else table.apply(0, [1], rows(1), after=0)
    with pytest.raises(EpochError, match="does not hold sequence 3"):
        table.publish(8, 3)
    table.publish(7, 2)
    with pytest.raises(EpochError, match="cannot be published after epoch 7"):
        table.publish(7, 1)
    with pytest.raises(EpochError, match="epoch 7 is the newest"):
        table.retire(7)
    with pytest.raises(EpochError, match="does not hold epoch 9"):
        table.retire(9)
    with pytest.raises(EpochError, match="takes deltas"):
        table.upsert([1], rows(1))
    with pytest.raises(EpochError, match="takes deltas"):
        table.delete([1])
    for wrong in (-1, 1.5, True, 2**63):
        with pytest.raises(OptionError, match="epoch is"):
            table.lookup([1], epoch=wrong)
    table.retire(5)
    table.retire(6)
    with pytest.raises(EpochError, match="does not hold sequence 1"):
        table.publish(8, 1)


def test_the_base_sequence_is_where_deltas_begin(make):
    table = make(2, base_sequence=40)
    assert table.sequence == 40
    table.apply(41, [1], rows(1))
    table.publish(1, 41)
    assert (table.sequence, table.why(1)["sequence"]) == (41, 41)


def test_stored_rows_are_of_their_epoch(make):
    table = filled(make)
    status = np.empty(3, np.uint8)
    stored = table.lookup_stored([1, 2, 3], 6, status)
    assert (stored.shape, stored.dtype) == ((3, table.stored_row_bytes), np.uint8)
    assert status.tolist() == [HIT] * 3
    for other, epoch in (([1, 2], 5), ([3], 7)):
        again = table.lookup_stored(other, epoch)
        assert (again[0].tobytes() == stored[other[0] - 1].tobytes()) == (epoch == 5)
    assert table.lookup_stored([77])[0].tobytes() == table.lookup_stored([78], 5)[0].tobytes()
    assert table.lookup_stored([]).shape == (0, table.stored_row_bytes)


def test_why_tells_where_a_row_came_from(make):
    table = filled(make, admit_after=1)
    asked = {key: table.why(2)[key] for key in ("kind", "sequence", "pending", "time_s", "expires_s")}
    assert asked == {"kind": "ram", "sequence": 1, "pending": 0, "time_s": None, "expires_s": None}
    assert [table.why(2, epoch)["sequence"] for epoch in (5, 6, 7)] == [0, 1, 1]
    assert [table.why(1, epoch)["kind"] for epoch in (5, 6, 7)] == ["ram", "ram", "absent"]
    assert table.why(12345)["kind"] == "absent"
    with pytest.raises(IdError):
        table.why(0.5)


def test_an_id_is_admitted_by_the_delta_that_makes_it_enough(make):
    table = make(2, admit_after=3, default_row=[-1, -1])
    table.upsert([1], rows(10))
    table.apply(1, [1, 2, 2, 2], rows(11, 21, 21, 21))
    table.apply(2, [2, 3], rows(22, 32))
    for epoch, sequence in ((1, 1), (2, 2)):
        table.publish(epoch, sequence)
        assert seen(table, [1, 2]) == [(11, HIT), (-1, FILTERED)]
    assert (table.why(2)["kind"], table.why(2)["pending"], table.why(2, 1)["pending"]) == ("pending", 2, 1)
    assert (len(table), table.ids().tolist()) == (1, [1])
    table.apply(3, [2], rows(23))
    table.publish(3, 3)
    assert seen(table, [1, 2, 3]) == [(11, HIT), (23, HIT), (-1, FILTERED)]
    assert seen(table, [1, 2, 3], 2) == [(11, HIT), (-1, FILTERED), (-1, FILTERED)]
    assert seen(table, [1, 2, 3], 1) == [(11, HIT), (-1, FILTERED), (-1, DEFAULT)]
    table.apply(4, [1], rows(14), deletes=[2, 3])
    table.apply(5, [2, 3], rows(25, 35))
    table.publish(4, 5)
    assert seen(table, [1, 2, 3]) == [(14, HIT), (-1, FILTERED), (-1, FILTERED)]


def test_rows_expire_after_their_time(make):
    now = time.time()
    table = make(2, ttl_s=1000, default_row=[-1, -1])
    table.apply(1, [1, 2], rows(1, 2), time_s=now - 5000)
    table.apply(2, [2, 3], rows(3, 4), time_s=now - 100)
    table.publish(1, 1)
    table.publish(2, 2)
    assert seen(table, [1, 2, 3]) == [(-1, DEFAULT), (3, HIT), (4, HIT)]
    assert seen(table, [1, 2, 3], 1) == [(-1, DEFAULT), (-1, DEFAULT), (-1, DEFAULT)]
    assert (table.ids().tolist(), table.ids(1).tolist()) == ([2, 3], [])
    story = table.why(1)
    assert (story["kind"], story["sequence"], story["time_s"]) == ("ram", 1, int(now - 5000))
    assert story["expires_s"] == int(now - 5000) + 1000
    table.apply(3, [1], rows(5), time_s=now)
    table.publish(3, 3)
    assert seen(table, [1, 2, 3]) == [(5, HIT), (3, HIT), (4, HIT)]


def test_the_base_state_expires_with_its_own_time(make):
    old, new = make(2, ttl_s=50, base_time_s=time.time() - 100), make(2, ttl_s=50)
    for table, status in ((old, DEFAULT), (new, HIT)):
        table.upsert([1], rows(7))
        assert seen(table, [1])[0][1] == status
        # A delta is never older than what it builds on.
        table.apply(1, [2], rows(8), time_s=5)
        table.publish(1, 1)
        assert seen(table, [2])[0][1] == status


def test_an_expired_id_is_new_to_the_filter(make):
    now = time.time()
    table = make(2, ttl_s=1000, admit_after=2, default_row=[-1, -1])
    table.apply(1, [1], rows(1), time_s=now - 9000)
    table.apply(2, [1], rows(2), time_s=now - 8999)
    table.apply(3, [1], rows(3), time_s=now)
    table.publish(1, 3)
    assert seen(table, [1]) == [(-1, FILTERED)]
    table.apply(4, [1], rows(4), time_s=now)
    table.publish(2, 4)
    assert seen(table, [1]) == [(4, HIT)]


def test_options_of_deltas_are_checked(make):
    for wrong in ({"ttl_s": -1}, {"ttl_s": float("nan")}, {"ttl_s": "1"}, {"admit_after": 0}, {"admit_after": 1.5},
                  {"base_sequence": -1}, {"base_time_s": -5}):
        with pytest.raises(OptionError, match=next(iter(wrong)).replace("base_time_s", "time_s")):
            make(1, **wrong)
    with pytest.raises(OptionError, match="deadline_s is -1"):
        make(1).lookup([1], deadline_s=-1)


def test_a_deadline_that_has_passed_is_said(make):
    table = filled(make)
    status = np.empty(2, np.uint8)
    np.testing.assert_array_equal(table.lookup([1, 2], status=status, deadline_s=0), rows(-1, -1))
    assert status.tolist() == [DEADLINE] * 2
    pooled = table.lookup_pooled([1, 2], np.array([0, 2], np.int32), "sum", status=status, deadline_s=0)
    assert (pooled[0, 0], status.tolist()) == (-2, [DEADLINE] * 2)
    table.lookup([1, 2], status=status, deadline_s=60)
    assert DEADLINE not in status


def test_a_sweep_frees_what_has_expired_and_leaves_older_epochs_alone(make):
    now = time.time()
    table = make(2, ttl_s=1000, default_row=[-1, -1])
    table.upsert([9], rows(9))
    table.apply(1, [1, 2], rows(1, 2), time_s=now)
    table.publish(1, 1)
    table.apply(2, [2, 3], rows(3, 4), time_s=now + 500)
    table.publish(2, 2)
    assert table.sweep() == 0
    assert (table.sweep(now + 1100), len(table)) == (2, 2)
    assert seen(table, [1, 2, 3, 9]) == [(-1, DEFAULT), (3, HIT), (4, HIT), (-1, DEFAULT)]
    # The old row of id 2 is not the newest, so it stays as long as its epoch.
    assert seen(table, [1, 2, 3], 1) == [(-1, DEFAULT), (2, HIT), (-1, DEFAULT)]
    assert (table.sweep(now + 9000), len(table), table.ids().tolist()) == (2, 0, [])
    table.apply(3, [1], rows(5), time_s=now + 9000)
    table.publish(3, 3)
    assert (seen(table, [1, 2]), len(table)) == ([(5, HIT), (-1, DEFAULT)], 1)
    assert make(2).sweep() == 0


def test_sweeping_does_not_decide_what_is_admitted(make):
    now = time.time()
    table = make(2, ttl_s=100, admit_after=2)
    table.apply(1, [1], rows(1), time_s=now - 5000)
    table.sweep()
    table.apply(2, [1], rows(2), time_s=now - 4950)
    table.publish(1, 2)
    assert table.why(1)["kind"] == "ram"


def test_stored_rows_come_in_as_they_went_out(make):
    one = filled(make)
    other = make(2)
    ids = one.ids()
    assert other.add_stored(ids, one.lookup_stored(ids)) == len(ids)
    assert other.add_stored(ids[:1], one.lookup_stored(ids[:1])) == 0
    np.testing.assert_array_equal(other.lookup(ids), one.lookup(ids))
    np.testing.assert_array_equal(other.lookup_stored(ids), one.lookup_stored(ids))
    with pytest.raises(ArrayError, match="stored has shape"):
        other.add_stored(ids, one.lookup_stored(ids)[:1])
    with pytest.raises(EpochError, match="takes deltas"):
        one.add_stored(ids, one.lookup_stored(ids))
    spoilt = np.full_like(one.lookup_stored(ids), 0xFF)
    with pytest.raises(RowValueError, match=r"rows\[0\]"):
        other.add_stored(ids, spoilt)


def test_stored_rows_keep_their_age(make):
    now = int(time.time())
    table = make(2, ttl_s=6300, base_time_s=now)
    stored = make(2, default_row=[5, 5]).lookup_stored([0, 0, 0])
    table.add_stored([1, 2, 3], stored, np.array([now - 7000, now - 3000, now], np.uint32))
    assert [status for _, status in seen(table, [1, 2, 3])] == [DEFAULT, HIT, HIT]
    assert abs(table.why(2)["time_s"] - (now - 3000)) <= 100
    assert (table.sweep(), table.ids().tolist()) == (1, [2, 3])
