"""Replicas that are late, silent, wrong or gone: what a lookup gives then, and how soon."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from paramserver import RowStatus
from paramserver.remote import CancelFlag

from tests.paramserver.remote.fakes import refusal, right
from tests.paramserver.server.servers import rows_of

DIM = 3
IDS = np.array([5, -1, 2**62, 7, 5], np.int64)
MISMATCH, UNKNOWN_TABLE, UNKNOWN_EPOCH, BAD_REQUEST, OVERLOADED, CLOSING = range(1, 7)


def good(asked):
    return [right(asked, DIM)]


def ask(table, ids=IDS, **arguments):
    """Rows, statuses and seconds."""
    status = np.full(ids.size, 99, np.uint8)
    began = time.monotonic()
    rows = table.lookup(ids, status=status, **arguments)
    return rows, set(status.tolist()), time.monotonic() - began


def lane(cluster, address):
    (found,) = [one for one in cluster.lanes() if one.address == address]
    return found


def until(condition, seconds=20.0):
    """Wait for something that must come about."""
    ended = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < ended, "it did not come about"
        pause.wait(0.005)


def test_a_late_answer_reaches_nobody(fake, client):
    slow = fake(lambda asked: slow.released.wait() and good(asked))
    cluster = client([[slow.address]])
    table = cluster.table("item", DIM, default_row=[9, 9, 9])
    until(lambda: lane(cluster, slow.address).state == "up")
    rows, statuses, took = ask(table, deadline_s=0.1)
    assert statuses == {RowStatus.DEADLINE} and took < 1
    np.testing.assert_array_equal(rows, np.full((5, DIM), 9))
    before = rows.copy()
    late = lane(cluster, slow.address).late
    slow.released.set()
    until(lambda: lane(cluster, slow.address).late > late)
    np.testing.assert_array_equal(rows, before)
    # The next lookup gets its own answer, not the late one of other ids.
    rows, statuses, _ = ask(table, IDS + 1)
    assert statuses == {RowStatus.HIT}
    np.testing.assert_array_equal(rows, rows_of(IDS + 1, DIM))


@pytest.mark.parametrize("bytes_max", [1 << 20, 256 << 20])
def test_a_replica_that_does_not_read_blocks_nobody(fake, client, bytes_max):
    deaf = fake(lambda asked: deaf.released.wait() and good(asked))
    cluster = client([[deaf.address]], bytes_max=bytes_max)
    table = cluster.table("item", DIM)
    until(lambda: lane(cluster, deaf.address).state == "up")
    # 32 MB, more than any window or socket takes: the stream's writes wait, lookups do not.
    for _ in range(20):
        _, statuses, took = ask(table, np.arange(200_000), deadline_s=0.05)
        assert statuses == {RowStatus.DEADLINE} and took < 1.5
    deaf.released.set()
    until(lambda: ask(table, deadline_s=1)[1] == {RowStatus.HIT})


def test_a_cancelled_lookup_returns_at_once(fake, client):
    silent = fake(lambda asked: silent.released.wait() and [])
    cluster = client([[silent.address]])
    table = cluster.table("item", DIM)
    until(lambda: lane(cluster, silent.address).state == "up")
    flag = CancelFlag()
    threading.Timer(0.2, flag.cancel).start()
    _, statuses, took = ask(table, deadline_s=30, cancel=flag)
    assert statuses == {RowStatus.DEADLINE} and 0.15 < took < 2
    assert ask(table, deadline_s=30, cancel=flag)[2] < 1
    assert lane(cluster, silent.address).in_flight <= 1  # a sign of life, perhaps


def test_rows_that_came_in_time_count(fake, client):
    def half(asked):
        answer = right(asked, DIM)
        yield replace(answer, rows=answer.rows[:2], statuses=answer.statuses[:2])
        shard.released.wait()

    shard = fake(half)
    cluster = client([[shard.address]])
    table = cluster.table("item", DIM)
    until(lambda: lane(cluster, shard.address).state == "up")
    ids = np.arange(5)
    status = np.empty(5, np.uint8)
    rows = table.lookup(ids, status=status, deadline_s=0.3)
    assert status.tolist() == [0, 0] + [RowStatus.DEADLINE] * 3
    np.testing.assert_array_equal(rows[:2], rows_of(ids[:2], DIM))
    np.testing.assert_array_equal(rows[2:], np.zeros((3, DIM)))


WRONG = {
    "of another epoch": lambda a: replace(a, epoch=a.epoch + 1),
    "of another dim": lambda a: replace(a, rows=a.rows[:, :2].copy()),
    "out of order": lambda a: replace(a, first=1),
    "too many rows": lambda a: replace(a, rows=np.repeat(a.rows, 2, 0), statuses=np.repeat(a.statuses, 2)),
    "too few statuses": lambda a: replace(a, statuses=a.statuses[:1]),
}


@pytest.mark.parametrize("how", WRONG)
def test_an_answer_that_is_not_for_what_was_asked_is_not_used(fake, client, how):
    wrong = fake(lambda asked: [WRONG[how](right(asked, DIM))])
    cluster = client([[wrong.address]])
    table = cluster.table("item", DIM)
    rows, statuses, _ = ask(table, deadline_s=0.3)
    assert statuses <= {RowStatus.DEADLINE, RowStatus.UNAVAILABLE} and not rows.any()
    assert wrong.asked
    # With a replica that behaves, that one answers.
    fine = fake(good)
    both = client([[wrong.address, fine.address]], epoch=0)
    until(lambda: all(one.state == "up" for one in both.lanes()))
    for _ in range(4):
        rows, statuses, _ = ask(both.table("item", DIM))
        assert statuses == {RowStatus.HIT}
        np.testing.assert_array_equal(rows, rows_of(IDS, DIM))


def test_a_status_that_nobody_knows_is_no_row(fake, client):
    odd = fake(lambda asked: [replace(right(asked, DIM), statuses=np.full(asked.ids.size, 77, np.uint8))])
    rows, statuses, _ = ask(client([[odd.address]]).table("item", DIM))
    assert statuses == {RowStatus.UNAVAILABLE} and not rows.any()


@pytest.mark.parametrize("code", [UNKNOWN_TABLE, UNKNOWN_EPOCH, BAD_REQUEST, OVERLOADED, CLOSING, MISMATCH])
def test_a_refusal_is_another_replica_s_chance(fake, client, code):
    sorry, fine = fake(lambda asked: [refusal(asked, code)]), fake(good)
    cluster = client([[sorry.address, fine.address]])
    table = cluster.table("item", DIM)
    until(lambda: all(one.state == "up" for one in cluster.lanes()))
    for _ in range(4):
        assert ask(table)[1] == {RowStatus.HIT}
    assert sorry.asked and table.stats().failovers > 0


@pytest.mark.parametrize("code", [UNKNOWN_TABLE, UNKNOWN_EPOCH, BAD_REQUEST, MISMATCH])
def test_what_all_refuse_is_unavailable_before_the_deadline(fake, client, code):
    sorry = fake(lambda asked: [refusal(asked, code)])
    table = client([[sorry.address]]).table("item", DIM)
    _, statuses, took = ask(table, deadline_s=10)
    assert statuses == {RowStatus.UNAVAILABLE} and took < 5


def test_an_epoch_that_comes_a_little_later_is_waited_for(fake, client):
    def later(asked):
        return good(asked) if len(shard.asked) > 2 else [refusal(asked, UNKNOWN_EPOCH)]

    shard = fake(later)
    assert ask(client([[shard.address]]).table("item", DIM))[1] == {RowStatus.HIT}


@pytest.mark.parametrize("hedge_ms", [None, 0, 5])
def test_a_silent_replica_costs_a_moment_and_is_passed_over(fake, client, hedge_ms):
    silent = fake(lambda asked: silent.released.wait() and [])
    fine = fake(good)
    cluster = client([[silent.address, fine.address]], hedge_ms=hedge_ms, stall_ms=50)
    table = cluster.table("item", DIM)
    until(lambda: all(one.state == "up" for one in cluster.lanes()))
    until(lambda: ask(table, deadline_s=2)[1] == {RowStatus.HIT} and silent.asked)
    for _ in range(20):
        rows, statuses, _ = ask(table, deadline_s=2)
        assert statuses == {RowStatus.HIT}
        np.testing.assert_array_equal(rows, rows_of(IDS, DIM))
    stats = table.stats()
    assert stats.hedges + stats.failovers > 0 and (hedge_ms != 0 or stats.hedges == 0)


def test_a_stream_that_breaks_fails_over_and_is_opened_again(fake, client):
    def breaks(asked):
        if len(broken.asked) == 1:
            raise RuntimeError("on purpose")
        return good(asked)

    broken = fake(breaks)
    cluster = client([[broken.address]])
    table = cluster.table("item", DIM)
    assert ask(table, deadline_s=10)[1] == {RowStatus.HIT}
    assert lane(cluster, broken.address).opened == 2 and len(broken.asked) == 2


def test_nobody_there_is_unavailable_at_once_and_whoever_comes_is_used(fake, client):
    gone = fake(good)
    address = gone.address
    gone.stop()
    cluster = client([[address]])
    table = cluster.table("item", DIM)
    until(lambda: lane(cluster, address).state == "down")
    _, statuses, took = ask(table, deadline_s=10)
    assert statuses == {RowStatus.UNAVAILABLE} and took < 2
    assert lane(cluster, address).problem


def test_lookups_beside_each_other_get_their_own_rows(fake, client):
    shards = [[fake(good).address, fake(good).address] for _ in range(2)]
    cluster = client(shards, deadline_ms=20_000)
    table = cluster.table("item", DIM)
    faults = []

    def work(seed):
        random = np.random.default_rng(seed)
        for _ in range(40):
            ids = random.integers(-2**63, 2**63 - 1, random.integers(1, 50))
            rows, statuses, _ = ask(table, ids)
            if statuses != {RowStatus.HIT} or (rows != rows_of(ids, DIM)).any():
                faults.append((seed, statuses))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
