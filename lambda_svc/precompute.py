"""PrecomputeUser, and how Rank finds what it left: the user side of a request, computed before there are candidates."""

from __future__ import annotations

import time
from typing import Any

from lambda_svc import response
from lambda_svc._core import CancelFlag, UserState
from lambda_svc.admission import Admission
from lambda_svc.plan import ScenarioPlan
from lambda_svc.proto import ranking_pb2 as pb
from lambda_svc.request import ParsedRequest, parse_user
from lambda_svc.user_states import UserStates, key_of

__all__ = ["find_state", "precompute_user"]


def precompute_user(message: pb.PrecomputeUserRequest, plan: ScenarioPlan, admission: Admission, states: UserStates,
                    arrived_ns: int, deadline_ns: int, cancel: CancelFlag | None) -> pb.PrecomputeUserResponse:
    """Computes the user side and keeps it. A state that is made of default rows for ids that a table could not be asked
    for is not kept, nor one that does not fit the store. Raises as Ranking.rank does."""
    request = parse_user(message, plan.spec)
    parsed_ns = time.monotonic_ns()
    with admission.admit(deadline_ns):
        admitted_ns = time.monotonic_ns()
        key = key_of(plan, request)
        state, result = plan.pipeline.precompute(user_id=request.user_id, columns=request.columns,
                                                 deadline_ns=deadline_ns, cancel=cancel)
    ranked_ns = time.monotonic_ns()
    # The epoch is that which the rows were read at.
    kept = not result.ids_unanswered and states.keep(key._replace(epoch=state.epoch), state)
    answer = response.build_user(request.request_id, result, plan.wire, kept, state.nbytes, states.ttl_s)
    answer.times.parse_us = (parsed_ns - arrived_ns) // 1000
    answer.times.admission_us = (admitted_ns - parsed_ns) // 1000
    answer.times.respond_us = (time.monotonic_ns() - ranked_ns) // 1000
    return answer


def find_state(states: UserStates | None, plan: ScenarioPlan, request: ParsedRequest) -> tuple[UserState | None, Any]:
    """(the state that the request may use or None, UserStateUse of the answer)."""
    if states is None or not len(request.candidate_ids):
        return None, pb.USER_STATE_ABSENT
    if not states.has_user(plan.serial, request.user_id):
        return None, states.absent()
    return states.find(key_of(plan, request))
