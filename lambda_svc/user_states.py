"""User states, kept between PrecomputeUser and Rank: bounded in bytes and in time, least recently used go first.

A state answers for exactly one key. What a request does not find, it computes: a miss costs time, never a score.
"""

from __future__ import annotations

import hashlib
import struct
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from lambda_svc.plan import ScenarioPlan
from lambda_svc.proto import ranking_pb2 as pb
from lambda_svc.request import ParsedRequest

__all__ = ["ENTRY_BYTES", "UserStateKey", "UserStateStats", "UserStates", "features_digest", "key_of"]

ENTRY_BYTES = 1024  # of a state's key and its places in the store, counted beside the state's own bytes
DIGEST_BYTES = 16
USER, CONTEXT = 0, 1


class _Sized(Protocol):
    nbytes: int


class UserStateKey(NamedTuple):
    """What a user state is of. `plan` is ScenarioPlan.serial, so a scenario's version, graphs, engine and precision;
    `epoch` is that of its tables; `features` the digest of what the request brought."""

    plan: int
    user_id: int
    epoch: int
    features: bytes
    level: int = 0


@dataclass(frozen=True)
class UserStateStats:
    """Counts since the start; `states` and `nbytes` are of now.

    used, absent, mismatched: of requests that looked. kept; evicted for room; expired; dropped with their version;
    refused: too large, or of a version that serves no more.
    """

    states: int
    nbytes: int
    used: int
    absent: int
    mismatched: int
    kept: int
    evicted: int
    expired: int
    dropped: int
    refused: int


class UserStates:
    """A bounded store of states by key. Thread-safe; states are anything with `nbytes`."""

    def __init__(self, bytes_max: int, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`bytes_max` bounds states and what it takes to find them; a state is used for at most `ttl_s` on `clock`."""
        self.ttl_s = ttl_s
        self._bytes_max, self._clock = bytes_max, clock
        self._lock = threading.Lock()
        self._states: OrderedDict[UserStateKey, _Sized] = OrderedDict()  # least recently used first
        self._expiries: OrderedDict[UserStateKey, float] = OrderedDict()  # the oldest first
        self._users: Counter[tuple[int, int]] = Counter()  # states by plan and user
        self._plans: frozenset[int] | None = None
        self._nbytes = 0
        self._counts: Counter[str] = Counter()

    def has_user(self, plan: int, user_id: int) -> bool:
        """Whether some state of this user under this plan is kept; without a lock, and so of a moment ago."""
        return (plan, user_id) in self._users

    def find(self, key: UserStateKey) -> tuple[_Sized | None, int]:
        """(the state of `key`, USER_STATE_USED), or None with USER_STATE_MISMATCHED when the user has only states of
        other features, epochs or levels under this plan, or USER_STATE_ABSENT."""
        with self._lock:
            self._drop_expired()
            state = self._states.get(key)
            if state is not None:
                self._states.move_to_end(key)
                self._counts["used"] += 1
                return state, pb.USER_STATE_USED
            word = "mismatched" if (key.plan, key.user_id) in self._users else "absent"
            self._counts[word] += 1
            return None, pb.USER_STATE_MISMATCHED if word == "mismatched" else pb.USER_STATE_ABSENT

    def absent(self) -> int:
        """Counts a request that did not need to look, its user having no state; returns USER_STATE_ABSENT."""
        with self._lock:
            self._counts["absent"] += 1
        return pb.USER_STATE_ABSENT

    def keep(self, key: UserStateKey, state: _Sized) -> bool:
        """Keeps a state in place of one of the same key, and makes room for it. False: refused."""
        nbytes = state.nbytes + ENTRY_BYTES
        with self._lock:
            self._drop_expired()
            if nbytes > self._bytes_max or (self._plans is not None and key.plan not in self._plans):
                self._counts["refused"] += 1
                return False
            if key in self._states:
                self._remove(key)
            while self._nbytes + nbytes > self._bytes_max:
                self._remove(next(iter(self._states)), "evicted")
            self._states[key] = state
            self._expiries[key] = self._clock() + self.ttl_s
            self._users[key.plan, key.user_id] += 1
            self._nbytes += nbytes
            self._counts["kept"] += 1
            return True

    def retain(self, plans: Collection[int]) -> None:
        """Drops the states of all other plans, and takes none of them any more."""
        with self._lock:
            self._plans = frozenset(plans)
            for key in [key for key in self._states if key.plan not in self._plans]:
                self._remove(key, "dropped")

    def stats(self) -> UserStateStats:
        """A consistent reading of the counters."""
        with self._lock:
            self._drop_expired()
            words = ("used", "absent", "mismatched", "kept", "evicted", "expired", "dropped", "refused")
            return UserStateStats(len(self._states), self._nbytes, **{word: self._counts[word] for word in words})

    def _drop_expired(self) -> None:
        now = self._clock()
        while self._expiries:
            key, expiry = next(iter(self._expiries.items()))
            if expiry > now:
                return
            self._remove(key, "expired")

    def _remove(self, key: UserStateKey, why: str = "") -> None:
        state = self._states.pop(key)
        del self._expiries[key]
        user = key.plan, key.user_id
        self._users[user] -= 1
        if not self._users[user]:
            del self._users[user]
        self._nbytes -= state.nbytes + ENTRY_BYTES
        if why:
            self._counts[why] += 1


def key_of(plan: ScenarioPlan, request: ParsedRequest) -> UserStateKey:
    """The key of the state that this request could use, or makes: the same user features byte for byte, and the same
    context features where the plan's user side depends on them."""
    features = features_digest(request, plan.pipeline.user_reads_context)
    return UserStateKey(plan.serial, request.user_id, plan.pipeline.epoch(), features)


def features_digest(request: ParsedRequest, with_context: bool) -> bytes:
    """A cryptographic digest, 128 bits, of the user columns that a request brought, in whatever order it brought them,
    and of its context columns if they matter."""
    sides = (USER, CONTEXT) if with_context else (USER,)
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for side, index, *parts in sorted((c for c in request.columns if c[0] in sides), key=lambda c: c[:2]):
        sizes = [-1 if part is None else part.nbytes for part in parts]
        digest.update(struct.pack("<5q", side, index, *sizes))
        for part in parts:
            if part is not None:
                digest.update(part)
    return digest.digest()
