"""Which of a model's published versions should be loaded, and which of the loaded ones a scenario serves."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from lambda_svc.config import ModelConfig, ScenarioConfig

__all__ = ["STABLE", "Trials", "stable_version", "wanted_versions"]

STABLE = "stable"
"""The label whose version serves scenarios that name no version, where there is such a label."""


@dataclass(frozen=True)
class Trials:
    """Versions that do not become stable by being the newest: those that serve a share of users, and those that were
    found wanting. And the one that a rollout promoted last."""

    running: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    promoted: int | None = None

    @property
    def held(self) -> frozenset[int]:
        """Both."""
        return self.running | self.failed


def wanted_versions(model: ModelConfig, scenarios: Iterable[ScenarioConfig], published: Collection[int],
                    trials: Trials = Trials()) -> list[int]:
    """Newest first: those of the policy, of labels, of scenarios that name one, and those on trial; of these only what
    is published."""
    free = set(published) - trials.held
    if model.versions == "latest":
        chosen = set(sorted(free)[-model.latest:])
    elif model.versions == "all":
        chosen = free
    elif model.versions == "rollout":
        chosen = {trials.promoted if trials.promoted in free else min(free, default=0)}
    else:
        chosen = set(model.versions)
    chosen |= set(model.labels.values()) | trials.running
    chosen |= {scenario.version for scenario in scenarios if scenario.version != "latest"}
    return sorted(chosen & set(published), reverse=True)


def stable_version(scenario: ScenarioConfig, model: ModelConfig, ready: Collection[int], wanted: Collection[int],
                   now: int | None, trials: Trials = Trials()) -> int | None:
    """The version that serves a scenario: the one it names, the one labelled stable, the one that rollouts brought
    where they alone may, or the newest that is ready, wanted and not held. Where that is none, what serves `now` goes
    on."""
    named = scenario.version if scenario.version != "latest" else model.labels.get(STABLE)
    if named is None and model.versions == "rollout":
        named = trials.promoted
    if named is not None:
        return named if named in ready else now
    return max((v for v in ready if v in wanted and v not in trials.held), default=now)
