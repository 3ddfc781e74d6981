"""The state of a server as one document: what /status.json gives, the page shows and `lambda-svc status` prints."""

from __future__ import annotations

import dataclasses
import resource
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from prometheus_client import ProcessCollector

from lambda_svc.config import ModelConfig, ServiceConfig
from lambda_svc.lifecycle.keeper import Keeper
from lambda_svc.observe.histogram import quantile_us
from lambda_svc.observe.metrics import streams_of
from lambda_svc.observe.observer import Observer
from lambda_svc.observe.window import Recent, Window
from lambda_svc.rollout import Rollouts

__all__ = ["Status"]


class Status:
    """Puts the document together. Thread-safe."""

    def __init__(self, config: ServiceConfig, observer: Observer, window: Window,
                 keeper: Keeper, rollouts: Rollouts | None) -> None:
        self._config, self._observer, self._window = config, observer, window
        self._keeper, self._rollouts = keeper, rollouts
        self._started_s = time.monotonic()

    def unready(self) -> str:
        """Why the server is not ready; empty when it is."""
        without = [name for name in self._config.scenarios if name not in self._observer.routes]
        if without:
            return f"no version serves {', '.join(without)}"
        return "" if self._observer.ready else "starting or draining"

    def document(self) -> dict[str, Any]:
        """Everything, as JSON takes it; times in milliseconds and rates per second, of the last minute."""
        unready = self.unready()
        recent = self._window.recent()
        return {
            "ready": not unready, "unready": unready, "listen": self._config.server.listen, "version": _version(),
            "uptime_s": round(time.monotonic() - self._started_s, 1),
            "window_s": round(max((one.seconds for one in recent.values()), default=0.0), 1),
            "epoch": self._keeper.epoch, "process": self._process(),
            "scenarios": [self._scenario(name, recent.get(name)) for name in self._config.scenarios],
            "refused": {} if "" not in recent else recent[""].errors,
            "versions": [dataclasses.asdict(one) for one in self._keeper.status()],
            "rollouts": self._of_rollouts(),
            "streams": [{"model": model, **dataclasses.asdict(streams.stats())}
                        for model, streams in streams_of(self._observer).items()],
            "switches": self._keeper.switches,
            "last_switches": [dataclasses.asdict(one) for one in reversed(self._observer.switches)],
        }

    def _scenario(self, name: str, recent: Recent | None) -> dict[str, Any]:
        config = self._config.scenarios[name]
        route, ranking = self._observer.routes.get(name), self._observer.ranking
        queue = None if ranking is None else ranking.stats().get(name)
        split = None if route is None or route.split is None else {
            "version": route.split.version, "share": route.split.share}
        labels = self._config.models.get(config.model, ModelConfig()).labels if route is None else route.labels
        return {
            "scenario": name, "model": config.model, "version": None if route is None else route.stable.wire.version,
            "versions": [] if route is None else sorted(route.versions), "labels": dict(labels), "split": split,
            "engine": "" if route is None else route.stable.wire.engine,
            "queue": None if queue is None else dataclasses.asdict(queue) | {"queue_max": config.queue_max},
            "recent": None if recent is None else dataclasses.asdict(recent),
        }

    def _of_rollouts(self) -> list[dict[str, Any]]:
        return [{"scenario": one.scenario, "version": one.version, "state": one.state, "shadow": one.shadow,
                 "share": one.share, "reason": one.reason, "stable_requests": stable, "trial_requests": trial}
                for one, stable, trial in ([] if self._rollouts is None else self._rollouts.status())]

    def _process(self) -> dict[str, Any]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        wait = quantile_us(self._window.recent_waits(), 0.99)
        return {"cpu_s": round(usage.ru_utime + usage.ru_stime, 2), "rss_bytes": _rss_bytes(),
                "interpreter_wait_p99_ms": None if wait is None else round(wait / 1e3, 3)}


def _rss_bytes() -> int | None:
    """Resident memory, as the metrics tell it."""
    for family in ProcessCollector(registry=None).collect():
        if family.name == "process_resident_memory_bytes":
            return int(family.samples[0].value)
    return None


def _version() -> str:
    try:
        return version("lambda-svc")
    except PackageNotFoundError:
        return ""  # from a source tree
