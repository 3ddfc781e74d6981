"""A client for the Rank RPC: plain Python and numpy values in, numpy arrays out."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import grpc
import numpy as np

from lambda_svc.columns import pack_columns, pack_id, pack_ids, pack_inputs
from lambda_svc.errors import (
    CallerError,
    Cancelled,
    DeadlineExceeded,
    EngineError,
    InvalidRequest,
    LambdaError,
    NotFound,
    ResourceExhausted,
    Unavailable,
)
from lambda_svc.proto import ranking_pb2 as pb
from lambda_svc.proto import ranking_pb2_grpc as pb_grpc

__all__ = ["RankAnswer", "RankingClient"]

MESSAGE_BYTES_MAX = 32 << 20  # the server's default, both ways
TIMEOUT_S_MAX = 1e9  # grpc takes a much later deadline for one that has passed


@dataclass(frozen=True, eq=False, repr=False)
class RankAnswer:
    """Candidates best first. All arrays have k rows. Its repr is one short line."""

    candidate_ids: np.ndarray  # int64
    positions: np.ndarray  # uint32, where each stood in the request
    rank_scores: np.ndarray  # float64
    heads: dict[str, np.ndarray]  # float32
    flags: np.ndarray  # uint8, CandidateFlag bits
    message: pb.RankResponse  # plan, level, coverage, reasons, times, bytes_copied

    @classmethod
    def of(cls, message: pb.RankResponse) -> RankAnswer:
        """Reads a response without copying its columns."""
        return cls(
            candidate_ids=np.frombuffer(message.candidate_ids, np.int64),
            positions=np.frombuffer(message.positions, np.uint32),
            rank_scores=np.frombuffer(message.rank_scores, np.float64),
            heads={head.head: np.frombuffer(head.scores, np.float32) for head in message.heads},
            flags=np.frombuffer(message.flags, np.uint8),
            message=message,
        )

    @property
    def coverage(self) -> dict[str, tuple[int, int]]:
        """{source: (asked, answered)}: feature cells or embedding ids that were wanted, and those that data answered.

        Sources are "user", "context", "item" and "table/NAME"; what was not answered was a default.
        """
        return {entry.source: (entry.asked, entry.answered) for entry in self.message.coverage}

    @property
    def reasons(self) -> dict[str, int]:
        """{code: count} of what the caller should know: unknown_user, unknown_candidates, nan_scores, deadline. Empty
        is good."""
        return {reason.code: reason.count for reason in self.message.reasons}

    @property
    def user_state(self) -> str:
        """What became of the user side that precompute_user left: "used", "absent" or "mismatched"."""
        return pb.UserStateUse.Name(self.message.user_state).removeprefix("USER_STATE_").lower()

    @property
    def missing(self) -> np.ndarray:
        """uint32: positions in the request of candidates that the deadline left unscored; see `allow_partial`."""
        return np.frombuffer(self.message.missing_positions, np.uint32)

    @property
    def times_ms(self) -> dict[str, float]:
        """{stage: milliseconds} in the server: parse, admission, gather, lookup, run, topk, respond."""
        times = self.message.times
        return {field.name.removesuffix("_us"): getattr(times, field.name) / 1e3 for field in times.DESCRIPTOR.fields}

    def __repr__(self) -> str:
        parts = [f"k={len(self.candidate_ids)}"]
        if len(self.candidate_ids):
            parts.append(f"best={self.candidate_ids[0]} ({self.rank_scores[0]:.6g})")
        parts.append(f"model={self.message.plan.model!r} version {self.message.plan.version}")
        parts += [f"reasons={self.reasons}", f"{sum(self.times_ms.values()):.2f} ms in the server"]
        return f"RankAnswer({', '.join(parts)})"


class RankingClient:
    """One connection to a ranking server; thread-safe, use as a context manager.

    >>> with RankingClient("127.0.0.1:8500") as client:
    ...     answer = client.rank("explore_rank", user_id=7, candidate_ids=[1, 2, 3], top_k=2, timeout_s=0.05)
    """

    def __init__(self, target: str, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        options = [
            ("grpc.max_receive_message_length", message_bytes_max),
            ("grpc.max_send_message_length", message_bytes_max),
        ]
        self._target, self._message_bytes_max = target, message_bytes_max
        self._channel = grpc.insecure_channel(target, options)
        self._stub = pb_grpc.RankingStub(self._channel)

    def __enter__(self) -> RankingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def wait_ready(self, timeout_s: float) -> None:
        """Returns once connected. Raises Unavailable after `timeout_s`, TypeError or ValueError if that is no time."""
        timeout_s = _seconds(timeout_s)
        ready = grpc.channel_ready_future(self._channel)
        try:
            ready.result(timeout_s)
        except grpc.FutureTimeoutError:
            ready.cancel()  # else a thread goes on watching the channel
            raise Unavailable(f"no connection to {self._target} within {timeout_s} s") from None

    def rank(
        self,
        scenario: str,
        user_id: int,
        candidate_ids: Sequence[int] | np.ndarray,
        *,
        top_k: int = 0,
        user: Mapping[str, object] | None = None,
        context: Mapping[str, object] | None = None,
        items: Mapping[str, object] | None = None,
        formula_inputs: Mapping[str, object] | None = None,
        formula: str = "",
        version: int = 0,
        label: str = "",
        allow_partial: bool = False,
        timeout_s: float = 1.0,
    ) -> RankAnswer:
        """Ranks candidates for one user; `top_k` 0 returns all. Ids are int64 or uint64, the same 64 bits.

        `user`, `context` and `items` bring raw features that override stored ones, by name: one row for user and
        context, one row per candidate for items (lambda_svc.columns.pack says which values are taken). A Python int is
        right for a float feature too, where float32 holds it exactly. `formula_inputs` are one number per candidate, or
        one for all of them, and travel as float32. `formula` orders by something else than the scenario does; `version`
        or `label` names another version of the model than the one that serves the scenario. With `allow_partial` a
        deadline that leaves no time for all candidates gives those scored by then, see RankAnswer.missing. Raises
        TypeError or ValueError naming the argument, else the same error classes as the server.
        """
        ids = pack_ids(candidate_ids, "candidate_ids")
        rows = len(ids) // 8
        message = pb.RankRequest(
            scenario=_text(scenario, "scenario"),
            user_id=pack_id(user_id, "user_id"),
            candidate_ids=ids,
            top_k=_top_k(top_k),
            user_columns=pack_columns("user", user),
            context_columns=pack_columns("context", context),
            item_columns=pack_columns("items", items, rows),
            formula_inputs=pack_inputs("formula_inputs", formula_inputs, rows),
            formula=_text(formula, "formula"),
            version=_version(version),
            label=_text(label, "label"),
            allow_partial=allow_partial,
        )
        return RankAnswer.of(self.call(message, timeout_s))

    def precompute_user(self, scenario: str, user_id: int, *, user: Mapping[str, object] | None = None,
                        context: Mapping[str, object] | None = None, version: int = 0, label: str = "",
                        timeout_s: float = 1.0) -> pb.PrecomputeUserResponse:
        """Has the server compute and keep the user side of requests to come; arguments as those of `rank`, which must
        bring the same. `kept` of the answer says whether there is one to use; it never changes a score. Raises as rank.
        """
        message = pb.PrecomputeUserRequest(
            scenario=_text(scenario, "scenario"), user_id=pack_id(user_id, "user_id"),
            user_columns=pack_columns("user", user), context_columns=pack_columns("context", context),
            version=_version(version), label=_text(label, "label"))
        return self._call(self._stub.PrecomputeUser, message, timeout_s)

    def call(self, message: pb.RankRequest, timeout_s: float) -> pb.RankResponse:
        """Sends a message built by the caller. Raises TypeError or ValueError for a `timeout_s` that is no time, else
        the same error classes as the server; InvalidRequest for a message beyond the limit."""
        return self._call(self._stub.Rank, message, timeout_s)

    def _call(self, method, message, timeout_s: float):
        timeout_s = _seconds(timeout_s)
        if timeout_s <= 0:  # grpc would take 0 for "no deadline"
            raise DeadlineExceeded(f"timeout_s is {timeout_s}: nothing was sent")
        if message.ByteSize() > self._message_bytes_max:
            raise _too_large("request", message.ByteSize(), self._message_bytes_max)
        try:
            return method(message, timeout=min(timeout_s, TIMEOUT_S_MAX))
        except grpc.RpcError as error:
            raise _translated(error, self._target, timeout_s) from None


def _text(value: str, field: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{field}: got {value!r}; expected str")
    return value


def _version(value: int) -> int:
    expected = "0 (whichever serves) or a version's number"
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"version: got {value!r}; expected an int, {expected}") from None
    if not 0 <= number < 2**63:
        raise ValueError(f"version: got {value}; expected {expected}")
    return number


def _top_k(value: int) -> int:
    expected = "0 (all candidates) to 2**32 - 1"
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"top_k: got {value!r}; expected an int, {expected}") from None
    if not 0 <= number < 2**32:
        raise ValueError(f"top_k: got {number}; expected {expected}")
    return number


def _seconds(timeout_s: float) -> float:
    """As Python's float: grpc adds it to the time of day, which a numpy float32 would round to minutes."""
    try:
        unusable = math.isnan(timeout_s)
    except TypeError:
        raise TypeError(f"timeout_s: got {timeout_s!r}; expected seconds, such as 0.05") from None
    if unusable:
        raise ValueError(f"timeout_s: got {timeout_s}; expected seconds, such as 0.05")
    return float(timeout_s)


_ERRORS: dict[str, type[LambdaError]] = {
    "INVALID_ARGUMENT": CallerError,
    "NOT_FOUND": NotFound,
    "RESOURCE_EXHAUSTED": ResourceExhausted,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "CANCELLED": Cancelled,
    "UNAVAILABLE": Unavailable,
}
_INVALID = re.compile(r"(?P<field>.+?): got (?P<got>.*); expected (?P<expected>.*)", re.DOTALL)
_TOO_LARGE = re.compile(r"(CLIENT|SERVER): (Sent|Received) message larger than max \((\d+) vs\. (\d+)\)")
_REQUEST_ENDS = {("CLIENT", "Sent"), ("SERVER", "Received")}
_NO_CONNECTION = re.compile(r"failed to connect to all addresses|errors resolving |DNS resolution failed")
_CLIENT_TIMER = "Deadline Exceeded"  # grpc's own words; a server of ours says where the time went


def _translated(error: grpc.RpcError, target: str, timeout_s: float) -> LambdaError:
    """The error the server raised, as far as its status tells; INTERNAL and the rest become EngineError."""
    details = error.details() or error.code().name
    match = _INVALID.fullmatch(details)
    if error.code() is grpc.StatusCode.INVALID_ARGUMENT and match:
        return InvalidRequest(**match.groupdict())
    large = _TOO_LARGE.search(details)
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and large:
        what = "request" if large.group(1, 2) in _REQUEST_ENDS else "answer"
        return _too_large(what, int(large[3]), int(large[4]))
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and details == _CLIENT_TIMER:
        late = f"no answer from {target} within {timeout_s} s"
        return DeadlineExceeded(f"{late}: allow more time or send fewer candidates")
    if error.code() is grpc.StatusCode.UNAVAILABLE and _NO_CONNECTION.match(details):
        why = details.rpartition(": ")[2].rstrip("]")
        return Unavailable(f"no server at {target} ({why[:1].lower()}{why[1:]})")
    return _ERRORS.get(error.code().name, EngineError)(details)


def _too_large(what: str, size: int, limit: int) -> InvalidRequest:
    """A message beyond what one end takes: sending it again cannot succeed, whatever grpc's status says."""
    advice = "send fewer candidates" if what == "request" else "ask for a smaller top_k"
    return InvalidRequest(what, f"{size:,} bytes", f"at most {limit:,} bytes (message_bytes_max): {advice}")
