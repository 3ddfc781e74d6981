"""What an operator does to rollouts: start, move on, end. Servers see it at their next look."""

from __future__ import annotations

import time
from typing import Any

from pydantic import ValidationError

from lambda_svc.config import ServiceConfig
from lambda_svc.errors import NotFound, RolloutError
from lambda_svc.lifecycle.repository import Repository
from lambda_svc.rollout.document import Rollout, RolloutFiles

__all__ = ["abort", "promote", "start"]


def start(config: ServiceConfig, scenario: str, version: int, *, shadow: bool = False, **options: Any) -> Rollout:
    """Begins with the first step, or before it with shadow scoring; `options` are fields of Rollout. Raises NotFound
    for a scenario or version that is not there, RolloutError while another one runs or for options that are wrong."""
    model = _scenario(config, scenario).model
    published = Repository(config).versions(model)
    if version not in published:
        raise NotFound(f"version: got {version}, expected a published one of {model!r}: {published}")
    now = time.time()

    def begun(before: Rollout | None) -> Rollout:
        if before is not None and before.state == "running":
            raise RolloutError(f"{scenario}: version {before.version} is on trial already; promote or abort it first")
        failed = () if before is None else tuple(v for v in before.found_wanting if v != version)
        try:
            return Rollout(scenario=scenario, model=model, version=version, step=-1 if shadow else 0,
                           salt=int(now * 1e3) % 2**31, step_started_s=now, failed=failed,
                           promoted=None if before is None else before.last_promoted, **options)
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}, got {problem['input']!r}"
                                 for problem in error.errors())
            raise RolloutError(f"{scenario}: {problems}") from error

    return RolloutFiles(config.repository).change(scenario, begun)


def promote(config: ServiceConfig, scenario: str, whole: bool = False) -> Rollout:
    """On to the next step, or with `whole` to the end. Raises RolloutError when none runs."""
    def moved(now: Rollout | None) -> Rollout:
        running = _running(scenario, now)
        return running.ended("promoted", "by an operator") if whole else running.forward(time.time())

    return _change(config, scenario, moved)


def abort(config: ServiceConfig, scenario: str, reason: str = "by an operator") -> Rollout:
    """Back to stable for everyone; the version does not come to serve by itself any more. Raises RolloutError."""
    return _change(config, scenario, lambda now: _running(scenario, now).ended("aborted", reason))


def _change(config: ServiceConfig, scenario: str, change) -> Rollout:
    _scenario(config, scenario)
    return RolloutFiles(config.repository).change(scenario, change)


def _scenario(config: ServiceConfig, scenario: str):
    if scenario not in config.scenarios:
        raise NotFound(f"scenario: got {scenario!r}, expected one of {sorted(config.scenarios)}")
    return config.scenarios[scenario]


def _running(scenario: str, now: Rollout | None) -> Rollout:
    if now is None or now.state != "running":
        ended = "has none" if now is None else f"the last one, of version {now.version}, is {now.state}"
        raise RolloutError(f"{scenario}: no rollout runs ({ended}); start one with `lambda-svc rollout start`")
    return now
