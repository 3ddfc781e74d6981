"""Deadlines through the server: part of an answer for who takes it, and never a run for who no longer waits."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

from lambda_svc import config as config_file
from lambda_svc.client import RankingClient
from lambda_svc.errors import DeadlineExceeded
from lambda_svc.server import RankingServer
from tests.lambda_svc.slow import plan_that_calls

RUN_S, DEADLINE_S, REQUESTS = 0.5, 0.2, 20


@contextmanager
def serving(world_dir, server, before_run, **scenario):
    """(client, runs) of a server whose model calls `before_run(rows)`; `runs` lists the rows of each run."""
    runs: list[int] = []

    def counted(rows: int) -> None:
        runs.append(rows)
        before_run(rows)

    plan = plan_that_calls(server.ranking.plan("rank"), counted, **scenario)
    config = config_file.load(world_dir / "config.yaml")
    with RankingServer(config, {"rank": plan}) as running, RankingClient(f"127.0.0.1:{running.port}") as client:
        client.wait_ready(10)
        yield client, runs


def ids_of(world, count: int) -> np.ndarray:
    return np.resize(np.array(list(world.items)), count)


def test_a_deadline_between_slices_gives_what_is_scored_to_who_takes_it(world_dir, world, server):
    ids = ids_of(world, 640)
    with serving(world_dir, server, lambda rows: time.sleep(0.1)) as (client, runs):
        answer = client.rank("rank", 3, ids, allow_partial=True, timeout_s=0.45)
        ran = len(runs)
    scored = 64 * ran
    assert 1 <= ran <= 4 and answer.message.plan.slices == ran
    assert answer.reasons == {"deadline": 640 - scored}
    np.testing.assert_array_equal(answer.missing, np.arange(scored, 640))
    np.testing.assert_array_equal(np.sort(answer.positions), np.arange(scored))
    np.testing.assert_array_equal(answer.candidate_ids, ids[answer.positions])
    np.testing.assert_allclose(answer.rank_scores, 1.5 * answer.heads["liked"] + 0.5, atol=1e-6)
    assert (np.diff(answer.rank_scores) <= 0).all()


def test_who_does_not_take_part_gets_deadline_exceeded(world_dir, world, server):
    with serving(world_dir, server, lambda rows: time.sleep(0.1)) as (client, runs):
        with pytest.raises(DeadlineExceeded):
            client.rank("rank", 3, ids_of(world, 640), timeout_s=0.35)
    assert len(runs) <= 4


def test_part_of_an_answer_needs_a_slice_that_was_scored(world_dir, world, server):
    with serving(world_dir, server, lambda rows: time.sleep(0.3)) as (client, runs):
        with pytest.raises(DeadlineExceeded):
            client.rank("rank", 3, ids_of(world, 64), allow_partial=True, timeout_s=0.1)
        with pytest.raises(DeadlineExceeded, match="nothing was sent"):
            client.rank("rank", 3, ids_of(world, 64), allow_partial=True, timeout_s=0)
    assert len(runs) == 1


def test_with_time_for_all_nothing_is_missing(world_dir, world, client):
    ids = ids_of(world, 300)
    whole, allowed = client.rank("rank", 3, ids), client.rank("rank", 3, ids, allow_partial=True)
    assert not len(allowed.missing) and not allowed.reasons
    np.testing.assert_array_equal(whole.candidate_ids, allowed.candidate_ids)
    np.testing.assert_array_equal(whole.rank_scores, allowed.rank_scores)


def test_expired_requests_never_reach_a_model_that_is_busy(world_dir, world, server):
    """One stream, a model of 500 ms, twenty requests of 200 ms: at most two begin, and all are told in time."""
    ids, waits, errors = ids_of(world, 10), [], []
    barrier = threading.Barrier(REQUESTS)

    def ask() -> None:
        barrier.wait(30)
        started = time.monotonic()
        try:
            client.rank("rank", 1, ids, timeout_s=DEADLINE_S)
        except Exception as error:
            errors.append(error)
        waits.append(time.monotonic() - started)

    with serving(world_dir, server, lambda rows: time.sleep(RUN_S)) as (client, runs):
        threads = [threading.Thread(target=ask) for _ in range(REQUESTS)]
        [thread.start() for thread in threads]
        [thread.join(60) for thread in threads]
    assert len(errors) == REQUESTS and {type(error) for error in errors} == {DeadlineExceeded}, errors
    assert 0.9 * DEADLINE_S < min(waits) and max(waits) < RUN_S, sorted(waits)
    assert 1 <= len(runs) <= 2
