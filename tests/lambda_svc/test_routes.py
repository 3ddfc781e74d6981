"""Where requests go: policies, labels, shares of users."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lambda_svc.config import ModelConfig, ScenarioConfig
from lambda_svc.lifecycle.policy import Trials, stable_version, wanted_versions
from lambda_svc.routes import Route, Split, share_of

SCENARIO = ScenarioConfig(model="m", formula="1")
VERSIONS = st.frozensets(st.integers(1, 12), max_size=8)


def test_shares_are_even_whatever_the_ids_and_independent_between_rollouts():
    for ids in (range(-5_000, 5_000), np.random.default_rng(0).integers(-2**63, 2**63, 10_000).tolist(),
                [i << 40 for i in range(10_000)]):
        shares = np.array([share_of(i, 1) for i in ids])
        assert 0 <= shares.min() and shares.max() < 1
        for part in (0.05, 0.2, 0.5):
            assert abs((shares < part).mean() - part) < 0.015
        other = np.array([share_of(i, 2) for i in ids])
        assert abs(((shares < 0.2) & (other < 0.2)).mean() - 0.04) < 0.01


def test_a_larger_share_keeps_the_users_of_a_smaller_one():
    plans = {v: SimpleNamespace(v=v) for v in (1, 2)}
    served = [{user for user in range(2_000)
               if Route(plans[1], plans, {}, Split(2, share, 7)).pick(user) is plans[2]}
              for share in (0.0, 0.05, 0.2, 0.5, 1.0)]
    assert all(less <= more for less, more in zip(served, served[1:]))
    assert not served[0] and len(served[-1]) == 2_000


def test_a_split_to_a_version_that_is_not_loaded_sends_nobody():
    plan = SimpleNamespace()
    assert Counter(id(Route(plan, {1: plan}, {}, Split(2, 1.0, 7)).pick(u)) for u in range(99)) == {id(plan): 99}


@given(VERSIONS, VERSIONS, VERSIONS, st.integers(1, 4))
def test_what_is_held_never_becomes_stable_by_being_the_newest(published, running, failed, latest):
    model, trials = ModelConfig(latest=latest), Trials(running, failed)
    wanted = wanted_versions(model, [SCENARIO], published, trials)
    assert set(wanted) <= published and wanted == sorted(wanted, reverse=True)
    free = published - trials.held
    assert set(wanted) == set(sorted(free)[-latest:]) | (running & published)
    assert stable_version(SCENARIO, model, wanted, wanted, None, trials) == max(free, default=None)


@given(VERSIONS, VERSIONS, st.integers(1, 12), st.integers(1, 12))
def test_what_serves_goes_on_until_its_successor_is_ready(published, ready, now, pinned):
    model = ModelConfig()
    wanted = wanted_versions(model, [SCENARIO], published)
    newest = max(published, default=None)
    assert stable_version(SCENARIO, model, ready, wanted, now) == (newest if newest in ready else now)
    named = SCENARIO.model_copy(update={"version": pinned})
    assert stable_version(named, model, ready, wanted, now) == (pinned if pinned in ready else now)
    assert stable_version(SCENARIO, ModelConfig(labels={"stable": pinned}), ready, wanted, now) == (
        pinned if pinned in ready else now)


def test_all_and_named_versions_are_wanted_where_they_are_published():
    assert wanted_versions(ModelConfig(versions="all"), [SCENARIO], {1, 2, 3}) == [3, 2, 1]
    assert wanted_versions(ModelConfig(versions=(2, 9), labels={"a": 1}), [SCENARIO], {1, 2, 3}) == [2, 1]
