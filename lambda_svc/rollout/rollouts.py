"""A server's part in rollouts: it follows their documents, counts both versions' requests, and judges."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lambda_svc.config import ServiceConfig
from lambda_svc.errors import RolloutError
from lambda_svc.lifecycle.policy import Trials
from lambda_svc.plan import ScenarioPlan
from lambda_svc.rollout.arm import Arm
from lambda_svc.rollout.document import Rollout, RolloutFiles
from lambda_svc.rollout.judge import verdict
from lambda_svc.rollout.shadow import Shadow
from lambda_svc.routes import Route, Split

__all__ = ["Rollouts"]

log = logging.getLogger("lambda_svc")
_OURS = ("INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED")


class _Trial:
    """A rollout at one step, with what was counted since the step began."""

    def __init__(self, rollout: Rollout, before: _Trial | None) -> None:
        """With all users on trial nobody is left to compare with but those of the step `before`."""
        self.rollout = rollout
        alone = before is not None and rollout.share == 1 and before.rollout.version == rollout.version
        self.stable, self.trial = before.stable if alone else Arm(), Arm()


class Rollouts:
    """Follows the rollouts of every configured scenario. `turn` is called by one thread, the rest by any."""

    def __init__(self, config: ServiceConfig, clock: Callable[[], float] = time.time) -> None:
        self._models = {name: scenario.model for name, scenario in config.scenarios.items()}
        self._files, self._clock = RolloutFiles(config.repository), clock
        self._trials: Mapping[str, _Trial] = {}
        self._shadow: Shadow | None = None
        self.turn()

    def turn(self) -> None:
        """Reads the documents, judges what runs, moves on or rolls back."""
        self._follow()
        for name, trial in self._trials.items():
            if trial.rollout.state == "running":
                self._judge(name, trial)
        self._follow()

    def close(self) -> None:
        """Ends shadow scoring."""
        if self._shadow is not None:
            self._shadow.close()
            self._shadow = None

    def status(self) -> list[tuple[Rollout, int, int]]:
        """(rollout, requests of stable and of the version on trial since its step began) of each scenario."""
        return [(t.rollout, t.stable.requests, t.trial.requests) for _, t in sorted(self._trials.items())]

    def trials(self, model: str) -> Trials:
        """Versions of a model that may not become stable by themselves."""
        of = [trial.rollout for trial in self._trials.values() if trial.rollout.model == model]
        return Trials(frozenset(r.version for r in of if r.state == "running"),
                      frozenset(version for r in of for version in r.found_wanting),
                      max((r.last_promoted for r in of if r.last_promoted is not None), default=None))

    def split(self, scenario: str) -> Split | None:
        """The share of users that a version on trial serves."""
        trial = self._trials.get(scenario)
        if trial is None or not trial.rollout.share:
            return None
        return Split(trial.rollout.version, trial.rollout.share, trial.rollout.salt)

    def scored(self, route: Route, plan: ScenarioPlan, ms: float, heads: tuple[np.ndarray, ...],
               arguments: Mapping[str, Any]) -> None:
        """Counts an answer: milliseconds of its native part, scores by head; `arguments` could score it again."""
        trial = self._trials.get(plan.scenario)
        if trial is None or trial.rollout.state != "running":
            return
        arm = self._arm(trial, route, plan)
        if arm is not None:
            arm.scored(ms, dict(zip(plan.heads, heads, strict=True)))
        beside = route.versions.get(trial.rollout.version)
        shadow = self._shadow
        if trial.rollout.shadow and beside is not None and shadow is not None:
            shadow.offer(beside, dict(arguments))

    def failed(self, route: Route, plan: ScenarioPlan, code: str) -> None:
        """Counts an error; a caller's own fault does not count."""
        trial = self._trials.get(plan.scenario)
        if trial is None or code not in _OURS:
            return
        arm = self._arm(trial, route, plan)
        if arm is not None:
            arm.failed()

    @staticmethod
    def _arm(trial: _Trial, route: Route, plan: ScenarioPlan) -> Arm | None:
        if plan.wire.version == trial.rollout.version:
            return trial.trial
        return trial.stable if plan is route.stable else None

    def _follow(self) -> None:
        followed = {}
        for name, model in self._models.items():
            known = self._trials.get(name)
            try:
                rollout = self._files.read(name)
            except RolloutError as error:
                log.warning("rollout of %s: %s", name, error)
                rollout = None if known is None else known.rollout
            if rollout is None or rollout.model != model:
                continue
            same = known is not None and known.rollout == rollout
            followed[name] = known if same else _Trial(rollout, known)
            if not same:
                log.info("rollout of %s: version %d %s at %g%% of users %s", name, rollout.version, rollout.state,
                         100 * rollout.share, rollout.reason)
        self._trials = followed
        if not any(trial.rollout.shadow for trial in followed.values()):
            self.close()
        elif self._shadow is None:
            self._shadow = Shadow(self._shadow_scored, self._shadow_failed)

    def _judge(self, name: str, trial: _Trial) -> None:
        limits = trial.rollout.limits
        reason = verdict(trial.stable, trial.trial, limits)
        if reason is not None:
            log.error("rollout of %s: version %d is rolled back: %s", name, trial.rollout.version, reason)
            self._change(name, trial.rollout, lambda now: now.ended("rolled_back", reason))
            return
        enough = trial.trial.requests >= limits.requests_min
        if enough and self._clock() - trial.rollout.step_started_s >= trial.rollout.hold_s:
            self._change(name, trial.rollout, lambda now: now.forward(self._clock()))

    def _change(self, name: str, judged: Rollout, change: Callable[[Rollout], Rollout]) -> None:
        """Unless somebody else has changed it since."""
        try:
            self._files.change(name, lambda now: change(now) if now == judged else None)
        except RolloutError as error:
            log.warning("rollout of %s: %s", name, error)

    def _shadow_scored(self, scenario: str, ms: float, heads: dict[str, np.ndarray]) -> None:
        trial = self._trials.get(scenario)
        if trial is not None:
            trial.trial.scored(ms, heads)

    def _shadow_failed(self, scenario: str) -> None:
        trial = self._trials.get(scenario)
        if trial is not None:
            trial.trial.failed()
