"""What a lookup makes of replicas and shards that say different things: each gets its chance, and no word of one ends
what another could still answer."""

import time

import numpy as np
import pytest
from paramserver import RowStatus
from paramserver.shard_map import shard_of

from tests.paramserver.remote.fakes import refusal, right
from tests.paramserver.remote.test_faults import DIM, IDS, MISMATCH, OVERLOADED, UNKNOWN_EPOCH, ask, good, until
from tests.paramserver.server.servers import rows_of


def lacking(asked, which=slice(None)):
    """A whole answer in which the rows `which` are unavailable."""
    answer = right(asked, DIM)
    answer.statuses[which] = RowStatus.UNAVAILABLE
    answer.rows[which] = 0
    return answer


def up(cluster):
    until(lambda: all(one.state == "up" for one in cluster.lanes()))


def refuses_first(code, times):
    """A script that refuses so many lookups before it behaves."""
    count = iter(range(times))
    return lambda asked: good(asked) if next(count, None) is None else [refusal(asked, code)]


def test_rows_that_a_replica_cannot_get_are_asked_of_another(fake, client):
    ill, fine = fake(lambda asked: [lacking(asked)]), fake(good)
    cluster = client([[ill.address, fine.address]])
    table = cluster.table("item", DIM)
    up(cluster)
    for _ in range(20):
        rows, statuses, _ = ask(table)
        assert statuses == {RowStatus.HIT}
        np.testing.assert_array_equal(rows, rows_of(IDS, DIM))
    assert ill.asked and table.stats().failovers > 0


@pytest.mark.parametrize("refusing", [False, True])
def test_the_answer_with_the_most_rows_counts_when_none_has_all(fake, client, refusing):
    one, other = fake(lambda asked: [lacking(asked, [0, 1])]), fake(lambda asked: [lacking(asked, [2])])
    cluster = client([[one.address, other.address]])
    table = cluster.table("item", DIM)
    up(cluster)
    if refusing:
        other.script = refuses_first(OVERLOADED, 1000)
    ids = np.arange(4)
    status = np.empty(4, np.uint8)
    began = time.monotonic()
    rows = table.lookup(ids, status=status, deadline_s=0.5 if refusing else 10)
    assert time.monotonic() - began < 5
    missing = [0, 1] if refusing else [2]
    rest = np.setdiff1d(np.arange(4), missing)
    assert set(status[missing]) == {RowStatus.UNAVAILABLE} and set(status[rest]) == {RowStatus.HIT}
    np.testing.assert_array_equal(rows[rest], rows_of(ids[rest], DIM))


def test_a_replica_that_refused_for_a_moment_is_asked_again_beside_a_silent_one(fake, client):
    silent = fake(lambda asked: silent.released.wait() and [])
    busy = fake(good)
    cluster = client([[silent.address, busy.address]], stall_ms=50)
    table = cluster.table("item", DIM)
    up(cluster)
    # Until the silent one is passed over, either may be the first to be asked.
    for _ in range(6):
        busy.script = refuses_first(OVERLOADED, 1)
        assert ask(table, deadline_s=2)[1] == {RowStatus.HIT}
    assert silent.asked


@pytest.mark.parametrize("code", [UNKNOWN_EPOCH, OVERLOADED])
def test_a_replica_that_lags_does_not_end_what_another_will_answer(fake, client, code):
    lagging = fake(lambda asked: [refusal(asked, UNKNOWN_EPOCH)])
    fine = fake(refuses_first(code, 3))
    cluster = client([[lagging.address, fine.address]], epoch=7)
    table = cluster.table("item", DIM)
    up(cluster)
    # An epoch below the newest: whoever does not know it has retired it, or has not caught up.
    statuses = ask(table, deadline_s=5, epoch=3)[1]
    assert statuses == ({RowStatus.HIT} if code == OVERLOADED else {RowStatus.UNAVAILABLE})


@pytest.mark.parametrize("deadline_s", [0.2, 5])
def test_a_shard_with_another_map_costs_its_own_ids_only(fake, client, deadline_s):
    fine, other = fake(good), fake(lambda asked: [refusal(asked, MISMATCH)])
    cluster = client([[fine.address], [other.address]])
    table = cluster.table("item", DIM)
    up(cluster)
    ids = np.arange(40)
    status = np.empty(40, np.uint8)
    rows = table.lookup(ids, status=status, deadline_s=deadline_s)
    here = shard_of(ids, 2) == 0
    assert set(status[here]) == {RowStatus.HIT} and set(status[~here]) == {RowStatus.UNAVAILABLE}
    np.testing.assert_array_equal(rows[here], rows_of(ids[here], DIM))
    stats = table.stats()
    assert not rows[~here].any() and stats.mismatches > 1
    assert stats.unique_ids == ids.size, "counted again with every look at the map"
