"""Metrics after known requests: every count, label and sum is what was asked."""

from __future__ import annotations

import threading
import time

import grpc
import numpy as np
import pytest

from lambda_svc import config as config_file
from lambda_svc import response
from lambda_svc.client import RankingClient
from lambda_svc.errors import DeadlineExceeded, EngineError, InvalidRequest, NotFound, ResourceExhausted, Unavailable
from lambda_svc.observe import Observer
from lambda_svc.observe.recorder import STAGES
from lambda_svc.proto import ranking_pb2 as pb
from lambda_svc.proto import ranking_pb2_grpc as pb_grpc
from lambda_svc.rollout import Rollout
from lambda_svc.server import RankingServer
from tests.lambda_svc.live_worlds import PATIENCE_S, until
from tests.lambda_svc.slow import plan_that_calls
from tests.lambda_svc.world import MODEL, World

IDS = list(World().items)[:40]


def message(**fields) -> pb.RankRequest:
    return pb.RankRequest(**{"scenario": "rank", "user_id": 1, "candidate_ids": np.int64(IDS).tobytes()} | fields)


def test_counts_labels_and_stage_sums_are_those_of_the_answers(observe):
    observed = observe()
    answers = [observed.client.rank("rank", user, IDS + [424242]).message for user in (1, 2, 999)]
    assert observed.metric("lambda_svc_requests_total", scenario="rank", version="1", code="OK") == 3
    assert observed.metric("lambda_svc_requests_total") == 3
    assert observed.metric("lambda_svc_candidates_total", scenario="rank") == 3 * 41
    assert observed.metric("lambda_svc_copied_bytes_total") == sum(a.bytes_copied for a in answers)
    assert observed.metric("lambda_svc_request_seconds_count", scenario="rank", version="1") == 3
    for stage in STAGES:
        spent_us = sum(getattr(a.times, f"{stage}_us") for a in answers)
        labels = {"scenario": "rank", "stage": stage}
        assert observed.metric("lambda_svc_stage_seconds_sum", **labels) == pytest.approx(spent_us / 1e6, abs=1e-9)
        assert observed.metric("lambda_svc_stage_seconds_bucket", le="+Inf", **labels) == 3
    stages_s = observed.metric("lambda_svc_stage_seconds_sum")
    assert stages_s <= observed.metric("lambda_svc_request_seconds_sum") + 1e-4
    for source in ("user", "item", "table/item"):
        told = [c for a in answers for c in a.coverage if c.source == source]
        assert observed.metric("lambda_svc_coverage_asked_total", source=source) == sum(c.asked for c in told) > 0
        assert observed.metric("lambda_svc_coverage_answered_total", source=source) == sum(c.answered for c in told)
    assert observed.metric("lambda_svc_reasons_total", reason="unknown_user") == 1
    assert observed.metric("lambda_svc_reasons_total", reason="unknown_candidates") == 3


def _broken(*_):
    raise ZeroDivisionError("a defect")


def test_errors_of_each_kind_are_counted_once(observe, monkeypatch):
    observed = observe(queue_max=1)
    client = observed.client
    with pytest.raises(InvalidRequest):
        client.call(message(candidate_ids=b"odd"), 5)
    with pytest.raises(InvalidRequest):
        client.call(message(version=1, label="both"), 5)
    with pytest.raises(NotFound):
        client.call(message(version=7), 5)
    with pytest.raises(NotFound):
        client.call(message(scenario="<script>nowhere"), 5)
    with observed.server.ranking.plan("rank").model.streams.acquire():
        with pytest.raises(DeadlineExceeded):
            client.call(message(), 0.05)
        until(lambda: observed.server.ranking.stats()["rank"].waiting == 0)
        monkeypatch.setattr(observed.server.ranking._admissions["rank"], "_queue_max", 0)
        with pytest.raises(ResourceExhausted):
            client.call(message(), 5)
    with monkeypatch.context() as patch:
        patch.setattr("lambda_svc.response.build", _broken)
        with pytest.raises(EngineError):
            client.call(message(), 5)
    expected = {("INVALID_ARGUMENT", "1"): 1, ("INVALID_ARGUMENT", ""): 1, ("NOT_FOUND", ""): 1,
                ("DEADLINE_EXCEEDED", "1"): 1, ("RESOURCE_EXHAUSTED", "1"): 1, ("INTERNAL", "1"): 1}
    until(lambda: observed.metric("lambda_svc_requests_total") == 7)
    for (code, version), count in expected.items():
        assert observed.metric("lambda_svc_requests_total", scenario="rank", version=version, code=code) == count, code
    assert observed.metric("lambda_svc_requests_total", scenario="", version="", code="NOT_FOUND") == 1
    assert "nowhere" not in observed.get("/metrics")[1]
    assert observed.metric("lambda_svc_queue_refused_total", scenario="rank") == 1
    assert observed.metric("lambda_svc_queue_expired_total", scenario="rank") == 1
    assert observed.metric("lambda_svc_request_seconds_count") == 4, "those that a version was chosen for"


def test_what_waits_and_runs_is_seen_while_it_does(observe):
    observed = observe()
    with observed.server.ranking.plan("rank").model.streams.acquire():
        asking = threading.Thread(target=observed.client.call, args=(message(), 60))
        asking.start()
        until(lambda: observed.metric("lambda_svc_queue_waiting", scenario="rank") == 1)
        assert observed.metric("lambda_svc_streams_busy", model=MODEL) == 1
        assert observed.metric("lambda_svc_queue_running", scenario="rank") == 0
        assert observed.status()["scenarios"][0]["queue"]["waiting"] == 1
    asking.join()
    assert observed.metric("lambda_svc_queue_waiting") == observed.metric("lambda_svc_streams_busy") == 0
    assert observed.metric("lambda_svc_queue_admitted_total") == 1
    assert observed.metric("lambda_svc_stream_wait_seconds_total", model=MODEL) > 0


def test_an_answer_that_nobody_waits_for_is_a_waste(observe, monkeypatch):
    """The caller goes while its answer is made: the run's time is counted as wasted, once."""
    observed = observe()
    inside, goes_on, flags = threading.Event(), threading.Event(), []
    build, rank = response.build, observed.server.ranking.rank

    def slow(*arguments):
        inside.set()
        assert goes_on.wait(PATIENCE_S)
        return build(*arguments)

    def spied(request, time_left_s, cancel):
        flags.append(cancel)
        return rank(request, time_left_s, cancel)

    monkeypatch.setattr(response, "build", slow)
    monkeypatch.setattr(observed.server.ranking, "rank", spied)
    with grpc.insecure_channel(f"127.0.0.1:{observed.server.port}") as channel:
        call = pb_grpc.RankingStub(channel).Rank.future(message(), timeout=60)
        assert inside.wait(PATIENCE_S)
        call.cancel()
        until(lambda: flags[0].is_set)
        goes_on.set()
        until(lambda: "lambda_svc_requests_total{" in observed.get("/metrics")[1])
    assert observed.metric("lambda_svc_requests_total", scenario="rank", version="1", code="CANCELLED") == 1
    wasted_s = observed.metric("lambda_svc_wasted_run_seconds_total", scenario="rank", version="1", code="CANCELLED")
    assert wasted_s == pytest.approx(observed.metric("lambda_svc_stage_seconds_sum", stage="run")) and wasted_s > 0


@pytest.mark.parametrize("n, begins", [(640, True), (0, False)])
def test_a_deadline_that_passes_while_the_graph_runs_wastes_what_had_run(world_dir, server, n, begins):
    """Slices of 50 ms and 120 ms of time: it ends between slices, and what ran until then was for nothing."""
    plan = plan_that_calls(server.ranking.plan("rank"), lambda rows: time.sleep(0.05))
    observer, config = Observer(), config_file.load(world_dir / "config.yaml")
    with RankingServer(config, {"rank": plan}, observer=observer) as running, \
            RankingClient(f"127.0.0.1:{running.port}") as client:
        client.wait_ready(10)
        if begins:
            with pytest.raises(DeadlineExceeded):
                client.call(message(candidate_ids=np.resize(np.int64(IDS), n).tobytes()), 0.12)
        else:
            with plan.model.streams.acquire(), pytest.raises(DeadlineExceeded):
                client.call(message(), 0.05)
        until(lambda: observer.recorder.totals())
    series = observer.recorder.totals()["rank", 1]
    [code] = series.codes
    assert code in ("DEADLINE_EXCEEDED", "CANCELLED") and series.codes[code] == 1
    if begins:
        assert 50_000 <= series.wasted_us[code] < series.seconds.sum_us
    else:
        assert not series.wasted_us


def test_versions_switches_and_the_process_are_told(observe):
    observed = observe()
    assert observed.metric("lambda_svc_model_versions", model=MODEL, state="serving") == 1
    assert observed.metric("lambda_svc_model_versions", model=MODEL, state="failed") == 0
    assert observed.metric("lambda_svc_model_version_state", model=MODEL, version="1", state="serving") == 1
    assert observed.metric("lambda_svc_scenario_version", scenario="rank", model=MODEL) == 1
    assert observed.metric("lambda_svc_switches_total") == 1
    assert observed.metric("lambda_svc_ready") == 1
    assert observed.metric("process_resident_memory_bytes") > 1 << 20
    assert observed.metric("process_cpu_seconds_total") > 0
    assert "lambda_svc_epoch" not in observed.get("/metrics")[1]
    World().write_package(observed.home / "repository", version=2)
    observed.keeper.start(observed.server.switch)
    until(lambda: observed.metric("lambda_svc_scenario_version", scenario="rank") == 2)
    observed.keeper.stop()
    assert observed.metric("lambda_svc_switches_total") >= 2
    assert [(s["before"], s["after"]) for s in observed.status()["last_switches"]] == [(1, 2), (None, 1)]
    observed.client.call(message(), 5)
    assert observed.metric("lambda_svc_requests_total", scenario="rank", version="2", code="OK") == 1


def test_rollouts_and_the_request_log_are_told(observe, monkeypatch):
    observed = observe(extra="request_log: {folder: kept, share: 1}\n", rollouts=True)
    rollout = Rollout(scenario="rank", model=MODEL, version=2, steps=(25.0,))
    monkeypatch.setattr(observed.rollouts, "status", lambda: [(rollout, 70, 30)])
    assert observed.metric("lambda_svc_rollout_share", scenario="rank", version="2") == 0.25
    assert observed.metric("lambda_svc_rollout_state", scenario="rank", version="2", state="running") == 1
    [told] = observed.status()["rollouts"]
    assert (told["share"], told["stable_requests"], told["trial_requests"]) == (0.25, 70, 30)
    observed.client.call(message(), 5)
    until(lambda: observed.metric("lambda_svc_request_log_written_total") == 1)
    assert observed.metric("lambda_svc_request_log_dropped_total") == 0


def test_waits_for_the_interpreter_lock_are_sampled(observe):
    observed = observe()
    until(lambda: observed.metric("lambda_svc_interpreter_wait_seconds_count") >= 3)
    assert observed.status()["process"]["interpreter_wait_p99_ms"] > 0


def test_a_refusal_while_draining_is_counted(observe):
    observed = observe()
    observed.server._door.close()
    with pytest.raises(Unavailable):
        observed.client.call(message(), 5)
    assert observed.metric("lambda_svc_requests_total", scenario="", code="UNAVAILABLE") == 1


def test_user_states_are_counted_by_their_use_and_their_end(observe):
    observed = observe()
    client = observed.client
    client.rank("rank", 1, IDS)
    client.precompute_user("rank", 1)
    client.rank("rank", 1, IDS)
    client.rank("rank", 1, IDS, user={"age": 3.0})
    for use in ("used", "absent", "mismatched"):
        assert observed.metric("lambda_svc_user_state_uses_total", use=use) == 1
    assert observed.metric("lambda_svc_user_state_ends_total", end="kept") == 1
    assert observed.metric("lambda_svc_user_states") == 1 and observed.metric("lambda_svc_user_state_bytes") > 0
    assert observed.metric("lambda_svc_requests_total") == 3, "a user side is no request for a ranking"
