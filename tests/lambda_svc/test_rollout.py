"""Rollouts: shares of users, shadow scoring, the judge, and what restarts and replicas make of the document."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from lambda_svc.errors import NotFound, RolloutError
from lambda_svc.lifecycle import Keeper
from lambda_svc.proto import ranking_pb2 as pb
from lambda_svc.ranking import Ranking
from lambda_svc.rollout import Limits, RolloutFiles, Rollouts, operate
from lambda_svc.rollout.arm import Arm, quantile_ms
from lambda_svc.rollout.judge import verdict
from tests.lambda_svc.live_worlds import WORLDS, configured, until
from tools.cli import app

RUN = {"hold_s": 0.0, "limits": {"requests_min": 30}}


def arm(n: int = 2_000, errors: int = 0, ms: float = 5.0, mean: float = 0.3, seed: int = 0) -> Arm:
    """What n requests of 50 candidates leave behind."""
    rng, counted = np.random.default_rng(seed), Arm()
    for _ in range(n - errors):
        scores = rng.beta(10 * mean, 10 * (1 - mean), 50).astype(np.float32)
        counted.scored(ms * rng.lognormal(0, 0.3), {"liked": scores})
    for _ in range(errors):
        counted.failed()
    return counted


@pytest.mark.parametrize(("trial", "reason"), [
    (arm(errors=100, seed=1), "error rate 5.00% against stable's 0.00%; 1.00% more is allowed"),
    (arm(ms=12.0, seed=1), "p95 of"),
    (arm(mean=0.36, seed=1), "head 'liked': mean predicted 0.3"),
])
def test_each_kind_of_difference_is_told_with_both_figures(trial, reason):
    assert verdict(arm(), trial, Limits()).startswith(reason)
    assert verdict(trial, trial, Limits()) is None


def test_scores_that_keep_their_mean_and_lose_their_spread_have_drifted():
    flat = Arm()
    for _ in range(2_000):
        flat.scored(5.0, {"liked": np.full(50, 0.3, np.float32)})
    assert "stability index" in verdict(arm(), flat, Limits())
    broken = Arm()
    for _ in range(300):
        broken.scored(5.0, {"liked": np.full(50, np.nan, np.float32)})
    assert "not a number" in verdict(arm(), broken, Limits())


def test_chance_alone_rolls_nothing_back():
    for seed in range(40):
        assert verdict(arm(200, seed=seed), arm(200, seed=seed + 1000), Limits()) is None
    assert verdict(arm(199), arm(199, errors=199), Limits()) is None, "too few to judge"


def test_quantiles_are_within_a_twelfth():
    counted, rng = Arm(), np.random.default_rng(3)
    values = rng.lognormal(1.0, 1.0, 20_000)
    for value in values:
        counted.scored(float(value), {})
    for q in (0.5, 0.95, 0.99):
        assert abs(quantile_ms(counted.latency, q) / np.quantile(values, q) - 1) < 1 / 12


class Service:
    """A ranking service without its RPC end, whose keeper looks when it is told to."""

    def __init__(self, config) -> None:
        self.rollouts = Rollouts(config)
        self.keeper = Keeper(config, self.rollouts)
        self.ranking = Ranking(self.keeper.load(), self.rollouts)
        self.keeper.start(self.ranking.switch)

    def ask(self, users, **fields) -> list[int]:
        """The version that served each user."""
        ids = np.array(list(WORLDS[1].items)[:20], np.int64).tobytes()
        message = [pb.RankRequest(scenario="rank", user_id=u, candidate_ids=ids, **fields) for u in users]
        return [self.ranking.rank(m, 20.0).plan.version for m in message]


@pytest.fixture
def config(home):
    """Versions 1 and 2, whose scores differ much; nothing is looked at by itself."""
    loaded = configured(home).model_copy(update={"repository_poll_s": 0.0})
    return loaded


def test_a_version_takes_its_steps_and_becomes_stable(config):
    service = Service(config)
    WORLDS[1].write_package(config.repository, 2)  # the same scores: nothing to find
    operate.start(config, "rank", 2, steps=[20, 100], **RUN)
    service.keeper.look()
    served = service.ask(range(600))
    assert 0.13 < served.count(2) / 600 < 0.27
    assert service.ask(range(600)) == served, "users come back to their version"
    service.keeper.look()
    assert service.ask(range(50)) == [2] * 50
    service.keeper.look()
    assert RolloutFiles(config.repository).read("rank").state == "promoted"
    assert [s.version for s in service.keeper.status()] == [2] and service.ask(range(9)) == [2] * 9


def test_shifted_scores_are_rolled_back_by_themselves_and_stay_out(config):
    service = Service(config)
    WORLDS[2].write_package(config.repository, 2)
    operate.start(config, "rank", 2, steps=[50, 100], **RUN)
    service.keeper.look()
    assert set(service.ask(range(400))) == {1, 2}
    service.keeper.look()
    rollout = RolloutFiles(config.repository).read("rank")
    assert rollout.state == "rolled_back" and "mean predicted" in rollout.reason
    assert set(service.ask(range(100))) == {1} and [s.version for s in service.keeper.status()] == [1]
    assert set(Service(config).ask(range(20))) == {1}, "a restart does not take the newest version"
    WORLDS[1].write_package(config.repository, 3)
    operate.start(config, "rank", 3, steps=[100], **RUN)
    service.keeper.look()
    assert 2 not in {s.version for s in service.keeper.status()}, "the next rollout remembers who failed"


def test_a_shadow_serves_nobody_and_is_judged(config):
    service = Service(config)
    WORLDS[2].write_package(config.repository, 2)
    operate.start(config, "rank", 2, shadow=True, **RUN)
    service.keeper.look()
    for _ in range(40):
        assert set(service.ask(range(20))) == {1}
        if service.rollouts.status()[0][2] >= 30:
            break
        until(lambda: service.rollouts._shadow._queue.empty(), "the shadow does not score")
    assert service.rollouts.status()[0][2] >= 30
    service.keeper.look()
    assert RolloutFiles(config.repository).read("rank").state == "rolled_back"


def test_errors_of_ours_count_and_a_caller_s_do_not(config):
    service = Service(config)
    WORLDS[1].write_package(config.repository, 2)
    operate.start(config, "rank", 2, steps=[100], **RUN)
    service.keeper.look()
    trial = service.rollouts._trials["rank"].trial
    with pytest.raises(Exception, match="candidate_ids"):
        service.ranking.rank(pb.RankRequest(scenario="rank", user_id=1, candidate_ids=b"123"), 20.0)
    assert (trial.requests, trial.errors) == (0, 0)
    with pytest.raises(Exception, match="deadline"):
        service.ranking.rank(pb.RankRequest(scenario="rank", user_id=1, candidate_ids=bytes(8)), -1.0)
    assert (trial.requests, trial.errors) == (1, 1)


def test_two_replicas_follow_one_document(config):
    one, two = Service(config), Service(config.model_copy(update={"work_dir": config.work_dir / "two"}))
    WORLDS[2].write_package(config.repository, 2)
    operate.start(config, "rank", 2, steps=[50], **RUN)
    for service in (one, two):
        service.keeper.look()
    assert one.ask(range(200)) == two.ask(range(200))
    one.keeper.look()
    two.keeper.look()
    assert set(two.ask(range(50))) == {1}


def test_where_only_rollouts_bring_versions_a_push_alone_changes_nothing(home):
    from tests.lambda_svc.world import MODEL

    loaded = configured(home, f"models: {{{MODEL}: {{versions: rollout}}}}")
    loaded = loaded.model_copy(update={"repository_poll_s": 0.0})
    service = Service(loaded)
    for version in (2, 3):
        WORLDS[1].write_package(loaded.repository, version)
    service.keeper.look()
    assert set(service.ask(range(20))) == {1} == set(Service(loaded).ask(range(20)))
    operate.start(loaded, "rank", 2, steps=[100], **RUN)
    operate.promote(loaded, "rank", whole=True)
    service.keeper.look()
    assert set(service.ask(range(20))) == {2} == set(Service(loaded).ask(range(20)))
    operate.start(loaded, "rank", 3, steps=[1], **RUN)
    operate.abort(loaded, "rank")
    service.keeper.look()
    assert set(service.ask(range(20))) == {2} == set(Service(loaded).ask(range(20)))


def test_operators_are_told_what_is_wrong(config):
    WORLDS[1].write_package(config.repository, 2)
    with pytest.raises(NotFound, match=r"version: got 7, expected a published one of 'tiny': \[1, 2\]"):
        operate.start(config, "rank", 7)
    with pytest.raises(NotFound, match="scenario: got 'other'"):
        operate.abort(config, "other")
    with pytest.raises(RolloutError, match="no rollout runs"):
        operate.promote(config, "rank")
    with pytest.raises(RolloutError, match="steps: .*per cents that rise"):
        operate.start(config, "rank", 2, steps=[50, 5])
    operate.start(config, "rank", 2)
    with pytest.raises(RolloutError, match="version 2 is on trial already"):
        operate.start(config, "rank", 2)
    assert operate.promote(config, "rank").share == 0.2
    assert operate.abort(config, "rank", "odd").reason == "odd"
    (config.repository / ".rollouts/rank.json").write_text("{")
    with pytest.raises(RolloutError, match=r"rank\.json"):
        operate.promote(config, "rank")


def test_the_command_line_does_the_same(config, home):
    WORLDS[1].write_package(config.repository, 2)
    path, run = str(home / "config.yaml"), CliRunner().invoke
    assert "no scenario has had" in run(app, ["rollout", "status", path]).output
    started = run(app, ["rollout", "start", path, "rank", "--version", "2", "--steps", "1,100"])
    assert started.output == "rank: version 2 is running, 1% of users\n"
    assert run(app, ["rollout", "promote", path, "rank"]).output.endswith("100% of users\n")
    assert "already" in run(app, ["rollout", "start", path, "rank", "--version", "2"]).output
    assert run(app, ["rollout", "abort", path, "rank", "--reason", "odd"]).exit_code == 0
    [told] = json.loads(run(app, ["rollout", "status", path, "--json"]).output)
    assert (told["state"], told["reason"], told["version"]) == ("aborted", "odd", 2)
    assert "aborted" in run(app, ["rollout", "status", path]).output
    wrong = run(app, ["rollout", "start", path, "rank", "--version", "2", "--steps", "a"])
    assert wrong.exit_code == 1 and "--steps: got 'a'" in wrong.output


