"""The keeper: brings what serves in line with what the repository holds, off the serving threads.

A version is prepared aside (copied, verified, loaded, proven, warmed); then the routes are replaced with one
assignment, tables and dense graph together, and requests in flight finish on the plans that they began with. What
nobody wants any more is let go of after that. A version that fails leaves what serves as it is, and is tried again
with growing pauses: a writer may not have finished.
"""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lambda_svc._core import return_freed_memory
from lambda_svc.config import ModelConfig, ServiceConfig
from lambda_svc.errors import ConfigError, LambdaError
from lambda_svc.lifecycle.policy import Trials, stable_version, wanted_versions
from lambda_svc.lifecycle.prepare import Prepared, Preparer
from lambda_svc.lifecycle.repository import Repository
from lambda_svc.routes import Route, Routes, Split
from models.package import PackageError
from paramserver import ParamServerError

__all__ = ["Keeper", "VersionStatus"]

RETRY_S_MIN, RETRY_S_MAX = 1.0, 300.0
NICENESS = 10  # of the thread that prepares: it takes the time that serving leaves
FAILURES = (LambdaError, PackageError, ParamServerError, OSError, MemoryError)
log = logging.getLogger("lambda_svc")


@dataclass(frozen=True)
class VersionStatus:
    """One version of a model: "serving", "loading" or "failed", and then why, how often, and when it is tried again
    (seconds from now)."""

    model: str
    version: int
    state: str
    reason: str = ""
    attempts: int = 0
    retry_in_s: float = 0.0


@dataclass(frozen=True)
class _Failure:
    reason: str
    attempts: int
    retry_at_s: float


class TrialSource(Protocol):
    """Who knows which versions are on trial (lambda_svc.rollout.Rollouts)."""

    def turn(self) -> None:
        """Brings what the others say up to date."""

    def trials(self, model: str) -> Trials:
        """Versions of a model that may not become stable by themselves."""

    def split(self, scenario: str) -> Split | None:
        """The share of users that a version on trial serves."""


class NoTrials:
    """Nothing is ever on trial."""

    def turn(self) -> None:
        """Nothing changes."""

    def trials(self, model: str) -> Trials:
        """None."""
        return Trials()

    def split(self, scenario: str) -> Split | None:
        """None."""
        return None


class Keeper:
    """Keeps the versions of every configured model. `routes` is what serves now."""

    def __init__(self, config: ServiceConfig, rollouts: TrialSource | None = None) -> None:
        """`rollouts` say before every look which versions are on trial. Raises ConfigError."""
        self._config, self._rollouts = config, rollouts or NoTrials()
        self._preparer = Preparer(config)
        self._repository = Repository(config)
        self._ready: dict[str, dict[int, Prepared]] = {s.model: {} for s in config.scenarios.values()}
        self._failures: dict[tuple[str, int], _Failure] = {}
        self._loading: tuple[str, int] | None = None
        self._stop, self._wake = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._on_switch: Callable[[Routes], None] = lambda routes: None
        self.routes: Routes = {}
        self.switches = 0

    def load(self) -> Routes:
        """The first routes: every wanted version that can be prepared, or else the newest one that can. Raises what a
        version failed with when a scenario is left with none, ConfigError when none is there."""
        for model in self._ready:
            wanted = self._wanted(model)
            if not wanted:
                raise ConfigError(self._repository.nothing(model, self._scenarios(model)))
            older = [v for v in reversed(self._repository.versions(model)) if v not in wanted]
            self._load_first(model, wanted, older if self._may_fall_back(model) else [])
        self._switch()
        return self.routes

    def _load_first(self, model: str, wanted: list[int], older: list[int]) -> None:
        """Prepares what is wanted, and of what is older as little as it takes until each scenario is served."""
        first: BaseException | None = None
        for version in [*wanted, *older]:
            if version in wanted or not self._covered(model):
                first = self._try(model, version) or first
        if not self._covered(model):
            raise first or ConfigError(f"{model}: all of its versions were found wanting on trial")

    def start(self, on_switch: Callable[[Routes], None]) -> None:
        """Watches from now on, in a thread of its own; `on_switch` gets every new set of routes."""
        self._on_switch = on_switch
        if self._config.repository_poll_s == 0:
            return
        self._thread = threading.Thread(target=self._watch, name="keeper", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Looks at the repository now."""
        self._wake.set()

    def stop(self) -> None:
        """Ends the thread; what is being prepared is finished first."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def status(self) -> list[VersionStatus]:
        """Every version that serves, loads or failed, by model and version."""
        now = time.monotonic()
        found = {(m, v): VersionStatus(m, v, "serving") for m, ready in self._ready.items() for v in list(ready)}
        for (m, v), failure in list(self._failures.items()):
            wait = max(0.0, failure.retry_at_s - now)
            found[m, v] = VersionStatus(m, v, "failed", failure.reason, failure.attempts, wait)
        loading = self._loading
        if loading is not None:
            found[loading] = VersionStatus(*loading, "loading")
        return [found[key] for key in sorted(found)]

    @property
    def epoch(self) -> int | None:
        """The newest epoch known of the cluster of shards, 0 before its first; None without a cluster."""
        return self._preparer.epoch

    def look(self) -> None:
        """One round: prepares what is wanted and not ready, switches, lets go of what nobody wants."""
        self._rollouts.turn()
        for model in self._ready:
            self._look(model)

    def _watch(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        while not self._stop.is_set():
            self._wake.wait(self._config.repository_poll_s)
            self._wake.clear()
            if self._stop.is_set():
                return
            try:
                self.look()
            except FAILURES as error:
                log.warning("the repository cannot be looked at, serving on: %s", error)
            except Exception:
                log.exception("looking at the repository failed, serving on")

    def _look(self, model: str) -> None:
        ready, wanted = self._ready[model], self._wanted(model)
        for gone in [key for key in self._failures if key[0] == model and key[1] not in wanted]:
            del self._failures[gone]
        for version in wanted:
            failure = self._failures.get((model, version))
            if version in ready or (failure is not None and failure.retry_at_s > time.monotonic()):
                continue
            if self._stop.is_set():
                return
            if self._try(model, version) is None:
                self._switch()
        self._switch()
        self._let_go(model, wanted)

    def _try(self, model: str, version: int) -> BaseException | None:
        """Prepares a version; returns why it failed."""
        key = model, version
        self._loading = key
        started = time.monotonic()
        try:
            self._ready[model][version] = self._preparer.prepare(self._repository.fetch(model, version))
        except FAILURES as error:
            before = self._failures.get(key, _Failure("", 0, 0.0))
            attempts = before.attempts + 1
            wait = min(RETRY_S_MAX, RETRY_S_MIN * 2 ** (attempts - 1))
            reason = str(error) or type(error).__name__
            self._failures[key] = _Failure(reason, attempts, time.monotonic() + wait)
            if reason != before.reason:
                log.error("%s version %d is kept out, next try in %.0f s: %s", model, version, wait, reason)
            return error
        finally:
            self._loading = None
        self._failures.pop(key, None)
        log.info("%s version %d is ready after %.2f s", model, version, time.monotonic() - started)
        return None

    def _covered(self, model: str) -> bool:
        """Whether each scenario of the model has a version to serve."""
        ready, trials = self._ready[model], self._rollouts.trials(model)
        return all(stable_version(s, self._model(model), ready, ready, None, trials) is not None
                   for s in self._scenarios(model))

    def _may_fall_back(self, model: str) -> bool:
        return self._model(model).versions == "latest"

    def _switch(self) -> None:
        routes = {name: route for name in self._config.scenarios if (route := self._route(name)) is not None}
        if routes == self.routes:
            return
        for name, route in routes.items():
            before = self.routes.get(name)
            if before is not None and before.stable is not route.stable:
                log.info("scenario %s: version %d serves, %d before", name, route.stable.wire.version,
                         before.stable.wire.version)
        self.routes = routes
        self.switches += 1
        self._on_switch(routes)

    def _route(self, name: str) -> Route | None:
        scenario = self._config.scenarios[name]
        ready, trials = self._ready[scenario.model], self._rollouts.trials(scenario.model)
        before = self.routes.get(name)
        model, wanted = self._model(scenario.model), self._wanted(scenario.model)
        now = None if before is None else before.stable.wire.version
        stable = stable_version(scenario, model, ready, wanted, now, trials)
        if stable is None:  # at the start, when the newest ones do not serve
            stable = stable_version(scenario, model, ready, ready, None, trials)
        if stable is None:
            return None
        versions = {version: prepared.plans[name] for version, prepared in ready.items()}
        labels = {label: version for label, version in model.labels.items() if version in versions}
        return Route(versions[stable], versions, labels, self._rollouts.split(name))

    def _let_go(self, model: str, wanted: list[int]) -> None:
        """Of what neither is wanted nor serves: first from the routes, then from memory."""
        serving = {route.stable.wire.version for name, route in self.routes.items()
                   if self._config.scenarios[name].model == model}
        ready = self._ready[model]
        gone = [ready.pop(version) for version in list(ready) if version not in wanted and version not in serving]
        if not gone:
            return
        self._switch()
        for prepared in gone:
            self._preparer.forget(prepared)
            log.info("%s version %d is let go", model, prepared.version)
        del gone, prepared
        gc.collect()
        return_freed_memory()

    def _wanted(self, model: str) -> list[int]:
        published = self._repository.versions(model)
        return wanted_versions(self._model(model), self._scenarios(model), published, self._rollouts.trials(model))

    def _model(self, model: str) -> ModelConfig:
        return self._config.models.get(model, ModelConfig())

    def _scenarios(self, model: str) -> list:
        return [scenario for scenario in self._config.scenarios.values() if scenario.model == model]
