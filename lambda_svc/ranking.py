"""The life of a ranking request, stages 2 to 8 of docs/architecture.md, called in order by one short method."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from lambda_svc import response
from lambda_svc._core import CancelFlag, Pipeline
from lambda_svc.admission import Admission, AdmissionStats
from lambda_svc.errors import FormulaError, InvalidRequest, NotFound, status_code_name
from lambda_svc.plan import ScenarioPlan
from lambda_svc.precompute import find_state, precompute_user
from lambda_svc.proto import ranking_pb2 as pb
from lambda_svc.request import ParsedRequest, parse, shown
from lambda_svc.request_log import RequestLog
from lambda_svc.rollout import Rollouts
from lambda_svc.routes import Route, Routes
from lambda_svc.user_states import UserStates

__all__ = ["Ranking"]

DEADLINE_S_MAX = 3600.0  # no ranking request waits longer, whatever its caller allows


class Ranking:
    """Ranks for every scenario it was given a plan for. Thread-safe."""

    def __init__(self, routes: Routes | Mapping[str, ScenarioPlan], rollouts: Rollouts | None = None,
                 request_log: RequestLog | None = None, user_states: UserStates | None = None) -> None:
        """`routes` by scenario; a plan stands for a scenario that it alone serves. `rollouts` are told of outcomes,
        `request_log` of what was served. `user_states`: where PrecomputeUser keeps what Rank uses, or nowhere."""
        self._rollouts, self._request_log = rollouts, request_log
        self.user_states = user_states or UserStates(bytes_max=0, ttl_s=0.0)
        self.switch(routes)
        stable = {name: route.stable for name, route in self._routes.items()}
        self._admissions = {name: Admission(p.model.streams, p.config.queue_max) for name, p in stable.items()}

    def switch(self, routes: Routes | Mapping[str, ScenarioPlan]) -> None:
        """Serves these from now on; requests that have begun finish where they are. User states of others go."""
        self._routes = _routes(routes)
        self.user_states.retain({plan.serial for route in self._routes.values() for plan in route.versions.values()})

    def rank(
        self, message: pb.RankRequest, time_left_s: float | None, cancel: CancelFlag | None = None
    ) -> pb.RankResponse:
        """Scores and orders the candidates. `time_left_s`: the caller's deadline, None for the scenario's own; `cancel`
        is set when the caller no longer waits, and ends the work at its next stage or slice.

        Raises InvalidRequest, NotFound, ResourceExhausted, DeadlineExceeded, Cancelled, Unavailable or EngineError.
        """
        route = self.route(message.scenario)
        plan = route.pick(message.user_id, message.version, message.label)
        try:
            return self._rank(message, route, plan, time_left_s, cancel)
        except Exception as error:
            if self._rollouts is not None:
                self._rollouts.failed(route, plan, status_code_name(error))
            raise

    def _rank(self, message: pb.RankRequest, route: Route, plan: ScenarioPlan, time_left_s: float | None,
              cancel: CancelFlag | None) -> pb.RankResponse:
        arrived_ns = time.monotonic_ns()
        deadline_ns = _deadline_ns(arrived_ns, plan, time_left_s)
        request = parse(message, plan.spec)
        pipeline = _pipeline(request, plan)
        _refuse_unknown(request, plan)
        parsed_ns = time.monotonic_ns()
        with self._admissions[plan.scenario].admit(deadline_ns):
            admitted_ns = time.monotonic_ns()
            arguments = _arguments(request)
            partial_ns = deadline_ns - int(plan.config.reserve_ms * 1e6) if message.allow_partial else 0
            state, use = find_state(self.user_states, plan, request)
            result = pipeline.rank(**arguments, deadline_ns=deadline_ns, cancel=cancel, partial_ns=partial_ns,
                                   user_state=state)
        ranked_ns = time.monotonic_ns()
        if self._rollouts is not None:
            self._rollouts.scored(route, plan, (ranked_ns - admitted_ns) / 1e6, result.heads, arguments)
        if self._request_log is not None:
            self._request_log.offer(plan, request, result)
        answer = response.build(request.request_id, result, plan.heads, plan.wire)
        # A state that was found is of another epoch when one was published just now.
        answer.user_state = pb.USER_STATE_MISMATCHED if state is not None and not result.user_state_used else use
        answer.times.parse_us = (parsed_ns - arrived_ns) // 1000
        answer.times.admission_us = (admitted_ns - parsed_ns) // 1000
        answer.times.respond_us = (time.monotonic_ns() - ranked_ns) // 1000
        return answer

    def precompute_user(self, message: pb.PrecomputeUserRequest, time_left_s: float | None,
                        cancel: CancelFlag | None = None) -> pb.PrecomputeUserResponse:
        """Computes the user side of requests to come and keeps it for them. Arguments and errors are those of rank."""
        arrived_ns = time.monotonic_ns()
        plan = self.route(message.scenario).pick(message.user_id, message.version, message.label)
        return precompute_user(message, plan, self._admissions[plan.scenario], self.user_states, arrived_ns,
                               _deadline_ns(arrived_ns, plan, time_left_s), cancel)

    def route(self, scenario: str) -> Route:
        """What serves a scenario now. Raises NotFound listing those that are served."""
        route = self._routes.get(scenario)
        if route is None:
            raise NotFound(f"scenario: got {shown(scenario)!r}, expected one of {sorted(self._routes)}")
        return route

    def plan(self, scenario: str) -> ScenarioPlan:
        """The stable plan of a scenario. Raises NotFound."""
        return self.route(scenario).stable

    def close(self) -> None:
        """Refuses whatever still waits for a stream; what runs goes on."""
        for route in self._routes.values():
            route.stable.model.streams.close()

    def stats(self) -> dict[str, AdmissionStats]:
        """Admission counters by scenario."""
        return {name: admission.stats() for name, admission in self._admissions.items()}


def _routes(given: Routes | Mapping[str, ScenarioPlan]) -> dict[str, Route]:
    return {name: it if isinstance(it, Route) else Route(it, {it.wire.version: it}) for name, it in given.items()}


def _deadline_ns(arrived_ns: int, plan: ScenarioPlan, time_left_s: float | None) -> int:
    left_s = plan.config.deadline_ms / 1e3 if time_left_s is None else min(time_left_s, DEADLINE_S_MAX)
    return arrived_ns + int(left_s * 1e9)


def _arguments(request: ParsedRequest) -> dict[str, Any]:
    """Of the native call, but for its deadline."""
    return dict(user_id=request.user_id, candidate_ids=request.candidate_ids, columns=request.columns,
                formula_inputs=request.formula_inputs, top_k=request.top_k)


def _pipeline(request: ParsedRequest, plan: ScenarioPlan) -> Pipeline:
    """The scenario's pipeline, or one that orders by the request's own formula."""
    if not request.formula:
        return plan.pipeline
    try:
        return plan.pipeline_for(request.formula)
    except FormulaError as error:
        raise InvalidRequest("formula", repr(shown(request.formula)), str(error)) from None


def _refuse_unknown(request: ParsedRequest, plan: ScenarioPlan) -> None:
    """A scenario may want only candidates the feature store knows; else they are scored on defaults and flagged."""
    cache = plan.model.caches["item"]
    if plan.config.unknown_candidates == "score" or cache is None:
        return
    unknown = request.candidate_ids[~cache.contains(request.candidate_ids)]
    if len(unknown):
        examples = ", ".join(str(i) for i in np.unique(unknown)[:5])
        got = f"{len(unknown)} unknown to the feature store ({examples})"
        raise InvalidRequest("candidate_ids", got, "only known candidates (unknown_candidates: refuse)")
