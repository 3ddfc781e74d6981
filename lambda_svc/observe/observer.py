"""What the RPC end tells about its requests and its routes; everything else here only reads it."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lambda_svc.errors import LambdaError
from lambda_svc.observe.logs import line_fields
from lambda_svc.observe.recorder import NO_VERSION, Recorder
from lambda_svc.proto import ranking_pb2 as pb
from lambda_svc.routes import Routes

if TYPE_CHECKING:
    from lambda_svc.ranking import Ranking
    from lambda_svc.request_log import RequestLog

__all__ = ["Call", "Observer", "Switch"]

SWITCHES_KEPT = 20
ERROR_CHARACTERS_MAX = 500  # of an error in a log line
log = logging.getLogger("lambda_svc.requests")


@dataclass(frozen=True)
class Switch:
    """A scenario came to be served by another version, at `time_s` since 1970; `before` is None at the start."""

    time_s: float
    scenario: str
    before: int | None
    after: int


class Observer:
    """Counts and logs the requests of one server; `ready` is what its health says."""

    def __init__(self, log_requests: float = 0.0) -> None:
        """`log_requests`: the share of answered requests that are logged."""
        self._log_requests = log_requests
        self.recorder = Recorder()
        self.ranking: Ranking | None = None
        self.request_log: RequestLog | None = None
        self.routes: Routes = {}
        self.switches: deque[Switch] = deque(maxlen=SWITCHES_KEPT)
        self.ready = False

    def watch(self, ranking: Ranking, routes: Routes, request_log: RequestLog | None = None) -> None:
        """Reads queues and streams of this one from now on, which serves `routes`."""
        self.ranking, self.request_log = ranking, request_log
        self.switched(routes)

    def switched(self, routes: Routes) -> None:
        """Keeps which scenarios changed their version."""
        now_s = time.time()
        for name, route in routes.items():
            before = self.routes.get(name)
            version = None if before is None else before.stable.wire.version
            if version != route.stable.wire.version:
                self.switches.append(Switch(now_s, name, version, route.stable.wire.version))
        self.routes = routes

    def begin(self, request: pb.RankRequest) -> Call:
        """A request that has just arrived; exactly one of the call's methods is to be called at its end."""
        return Call(self, request)

    def refused(self, code: str) -> None:
        """A request that was refused unread."""
        self.recorder.failed("", NO_VERSION, code, 0, 0)

    def logs_answer(self) -> bool:
        """Whether an answered request is among those that are logged."""
        return self._log_requests > 0 and random.random() < self._log_requests


class Call:
    """One request from its arrival to its end."""

    __slots__ = ("_arrived_ns", "_observer", "_request")

    def __init__(self, observer: Observer, request: pb.RankRequest) -> None:
        self._observer, self._request, self._arrived_ns = observer, request, time.monotonic_ns()

    def answered(self, answer: pb.RankResponse, code: str = "OK") -> None:
        """It was scored; another code than OK tells why nobody waited for it any more."""
        us = (time.monotonic_ns() - self._arrived_ns) // 1000
        request = self._request
        candidates = len(request.candidate_ids) // 8 - len(answer.missing_positions) // 4
        self._observer.recorder.answered(request.scenario, answer, code, us, candidates)
        if code != "OK":
            self._log(logging.WARNING, "a request was scored in vain", answer.request_id, answer.plan.version, code, us)
        elif self._observer.logs_answer():
            self._log(logging.INFO, "a request was answered", answer.request_id, answer.plan.version, code, us)

    def failed(self, error: Exception, code: str) -> None:
        """It was not answered."""
        us = (time.monotonic_ns() - self._arrived_ns) // 1000
        request = self._request
        known = request.scenario in self._observer.routes
        version = self._version() if known else NO_VERSION
        scenario = request.scenario if known else ""  # callers' texts become no labels
        self._observer.recorder.failed(scenario, version, code, us, getattr(error, "run_us", 0))
        level, told = (logging.ERROR, error) if code == "INTERNAL" else (logging.WARNING, None)
        self._log(level, "a request failed", request.request_id, version, code, us, str(error), told)

    def _version(self) -> int:
        """Which version it was for; failures are rare, so that the choice is made again then."""
        request = self._request
        try:
            route = self._observer.routes[request.scenario]
            return route.pick(request.user_id, request.version, request.label).wire.version
        except LambdaError:
            return NO_VERSION

    def _log(self, level: int, message: str, request_id: str, version: int, code: str, us: int, error: str = "",
             told: Exception | None = None) -> None:
        fields = line_fields(request_id=request_id, scenario=self._request.scenario[:ERROR_CHARACTERS_MAX],
                             version=version or None, code=code, ms=round(us / 1e3, 3),
                             error=error[:ERROR_CHARACTERS_MAX])
        log.log(level, message, extra=fields, exc_info=told)
