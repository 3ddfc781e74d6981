"""All of observability of one server: the counts, the thread that looks at them, and the HTTP endpoint."""

from __future__ import annotations

import logging

from lambda_svc.config import ServiceConfig
from lambda_svc.lifecycle.keeper import Keeper
from lambda_svc.observe import page
from lambda_svc.observe.endpoint import Endpoint, Page
from lambda_svc.observe.metrics import Metrics
from lambda_svc.observe.observer import Observer
from lambda_svc.observe.status import Status
from lambda_svc.observe.window import Window
from lambda_svc.rollout import Rollouts

__all__ = ["Observation"]

METRICS_KIND = "text/plain; version=0.0.4; charset=utf-8"
log = logging.getLogger("lambda_svc")


class Observation:
    """Watches a server from before its models are loaded until `stop`; `port` is of HTTP, 0 without it.

    Raises ConfigError when server.http cannot be listened on.
    """

    def __init__(self, config: ServiceConfig, keeper: Keeper, rollouts: Rollouts | None = None) -> None:
        self.observer = Observer(config.server.log_requests)
        self.window = Window(self.observer.recorder)
        self._metrics = Metrics(self.observer, self.window, keeper, rollouts)
        self._status = Status(config, self.observer, self.window, keeper, rollouts)
        self._endpoint: Endpoint | None = None
        self.port = 0
        if config.server.http:
            pages = {"/": self._page, "/status.json": self._json, "/metrics": self._scrape, "/healthz": self._alive,
                     "/readyz": self._ready}
            self._endpoint = Endpoint(config.server.http, pages)
            self.port = self._endpoint.port
            log.info("status on http://%s:%d", config.server.http.rpartition(":")[0], self.port)
        self.window.start()

    def stop(self) -> None:
        """Ends the threads and the endpoint."""
        if self._endpoint is not None:
            self._endpoint.stop()
        self.window.stop()

    def _page(self, query: str) -> Page:
        return Page(page.render(self._status.document(), "refresh=off" not in query), "text/html; charset=utf-8")

    def _json(self, _: str) -> Page:
        return Page.json(self._status.document())

    def _scrape(self, _: str) -> Page:
        return Page(self._metrics.text(), METRICS_KIND)

    @staticmethod
    def _alive(_: str) -> Page:
        return Page(b"alive\n")

    def _ready(self, _: str) -> Page:
        unready = self._status.unready()
        return Page(f"not ready: {unready}\n".encode(), status=503) if unready else Page(b"ready\n")
