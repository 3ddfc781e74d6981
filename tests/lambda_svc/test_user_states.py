"""The store of user states against a plain reference: what is found, what goes first, and that its bounds hold."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lambda_svc.proto import ranking_pb2 as pb
from lambda_svc.request import ParsedRequest
from lambda_svc.user_states import ENTRY_BYTES, UserStateKey, UserStates, features_digest

USED, ABSENT, MISMATCHED = pb.USER_STATE_USED, pb.USER_STATE_ABSENT, pb.USER_STATE_MISMATCHED
TTL_S = 10.0


@dataclass(frozen=True, eq=False)
class State:
    """As much of a state as the store looks at."""

    nbytes: int


class Clock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Reference:
    """The contract, over a dict in the order of use; each value is (state, when it was kept)."""

    def __init__(self, bytes_max: int, clock: Clock) -> None:
        self.bytes_max, self.clock, self.plans = bytes_max, clock, None
        self.kept: dict[UserStateKey, tuple[State, float]] = {}

    @property
    def nbytes(self) -> int:
        return sum(state.nbytes + ENTRY_BYTES for state, _ in self.kept.values())

    def forget(self) -> None:
        self.kept = {k: (s, at) for k, (s, at) in self.kept.items() if self.clock() < at + TTL_S}

    def find(self, key):
        self.forget()
        if key in self.kept:
            self.kept[key] = self.kept.pop(key)
            return self.kept[key][0], USED
        same_user = any((k.plan, k.user_id) == (key.plan, key.user_id) for k in self.kept)
        return None, MISMATCHED if same_user else ABSENT

    def keep(self, key, state) -> bool:
        self.forget()
        if state.nbytes + ENTRY_BYTES > self.bytes_max or (self.plans is not None and key.plan not in self.plans):
            return False
        self.kept.pop(key, None)
        while self.nbytes + state.nbytes + ENTRY_BYTES > self.bytes_max:
            del self.kept[next(iter(self.kept))]
        self.kept[key] = state, self.clock()
        return True

    def retain(self, plans) -> None:
        self.plans = plans
        self.kept = {k: v for k, v in self.kept.items() if k.plan in plans}


def key(plan=1, user=7, epoch=0, features=b"f", level=0) -> UserStateKey:
    return UserStateKey(plan, user, epoch, features, level)


KEYS = st.builds(key, st.integers(1, 2), st.integers(0, 3), st.integers(0, 1), st.sampled_from([b"f", b"g"]))
STEPS = st.one_of(
    st.tuples(st.just("keep"), KEYS, st.integers(0, 5000)),
    st.tuples(st.just("find"), KEYS),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 4.0, 9.5, 10.0])),
    st.tuples(st.just("retain"), st.sets(st.integers(1, 2))),
)


@settings(max_examples=300, deadline=None)
@given(bytes_max=st.integers(0, 20_000), steps=st.lists(STEPS, max_size=60))
def test_it_does_what_a_plain_dict_does_and_never_holds_more_than_its_bytes(bytes_max, steps):
    clock = Clock()
    states, reference = UserStates(bytes_max, TTL_S, clock), Reference(bytes_max, clock)
    for word, *arguments in steps:
        if word == "wait":
            clock.now += arguments[0]
        elif word == "keep":
            made = State(arguments[1])
            assert states.keep(arguments[0], made) == reference.keep(arguments[0], made)
        else:
            assert getattr(states, word)(*arguments) == getattr(reference, word)(*arguments)
        reference.forget()
        stats = states.stats()
        assert (stats.states, stats.nbytes) == (len(reference.kept), reference.nbytes)
        assert stats.nbytes <= bytes_max
        assert stats.kept - stats.states >= stats.evicted + stats.expired + stats.dropped
        users = {(k.plan, k.user_id) for k in reference.kept}
        assert all(states.has_user(plan, user) == ((plan, user) in users) for plan in (1, 2) for user in range(4))


def test_a_state_is_found_by_all_of_its_key_alone():
    states = UserStates(1 << 20, TTL_S, Clock())
    kept = State(10)
    assert states.keep(key(), kept) and states.find(key()) == (kept, USED)
    for other in (key(epoch=1), key(features=b"g"), key(level=1)):
        assert states.find(other) == (None, MISMATCHED)
    for other in (key(plan=2), key(user=8)):
        assert states.find(other) == (None, ABSENT)
    assert states.absent() == ABSENT
    stats = states.stats()
    assert (stats.used, stats.mismatched, stats.absent, stats.kept) == (1, 3, 3, 1)


def test_time_ends_a_state_however_often_it_is_used():
    clock = Clock()
    states = UserStates(1 << 20, TTL_S, clock)
    states.keep(key(), State(10))
    for _ in range(4):
        clock.now += 2.25
        assert states.find(key())[1] == USED
    clock.now += 1.0
    assert states.find(key()) == (None, ABSENT) and not states.has_user(1, 7)
    assert states.stats().expired == 1


def test_the_least_recently_used_makes_room():
    states = UserStates(3 * (ENTRY_BYTES + 100), TTL_S, Clock())
    for user in range(3):
        states.keep(key(user=user), State(100))
    states.find(key(user=0))
    states.keep(key(user=3), State(100))
    assert [states.find(key(user=user))[1] for user in range(4)] == [USED, ABSENT, USED, USED]
    assert not states.keep(key(user=4), State(3 * (ENTRY_BYTES + 100)))
    assert (states.stats().evicted, states.stats().refused) == (1, 1)


def test_states_of_a_plan_that_serves_no_more_are_dropped_and_not_taken():
    states = UserStates(1 << 20, TTL_S, Clock())
    states.keep(key(plan=1), State(1)), states.keep(key(plan=2), State(1))
    states.retain({2, 3})
    assert states.find(key(plan=1)) == (None, ABSENT) and states.find(key(plan=2))[1] == USED
    assert not states.keep(key(plan=1), State(1)) and states.keep(key(plan=3), State(1))
    assert (states.stats().dropped, states.stats().refused) == (1, 1)


def test_many_threads_leave_it_whole():
    states = UserStates(40 * (ENTRY_BYTES + 500), TTL_S)
    barrier, wrong = threading.Barrier(8), []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        barrier.wait(10)
        for _ in range(2000):
            user = int(rng.integers(0, 60))
            if rng.random() < 0.5:
                states.keep(key(user=user), State(user))
            elif (found := states.find(key(user=user))[0]) is not None and found.nbytes != user:
                wrong.append(user)
            if rng.random() < 0.01:
                states.retain({1})

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    stats = states.stats()
    assert not wrong and 0 < stats.nbytes <= 40 * (ENTRY_BYTES + 500)
    states.retain(set())
    assert (states.stats().states, states.stats().nbytes) == (0, 0) and not states._users and not states._expiries


def request(*columns) -> ParsedRequest:
    return ParsedRequest("", 7, np.empty(0, np.int64), 0, list(columns), [], "")


def column(side, index, values, rows=None, strings=None):
    offsets = [None if part is None else np.array(part, np.int32) for part in (rows, strings)]
    return side, index, np.array(values), offsets[0], offsets[1]


@pytest.mark.parametrize("other", [
    [column(0, 0, [1.0])],
    [column(0, 0, [1.0]), column(0, 1, [2, 4])],
    [column(0, 0, [1.0]), column(0, 2, [2, 3])],
    [column(0, 0, [1.0]), column(0, 1, [2, 3], [0, 1, 2])],
    [column(0, 0, [1.0]), column(0, 1, [2, 3]), column(0, 2, [2])],
    [column(0, 0, [1]), column(0, 1, [2, 3])],
])
def test_a_digest_is_of_every_byte_of_the_user_columns(other):
    one = features_digest(request(column(0, 0, [1.0]), column(0, 1, [2, 3])), False)
    assert features_digest(request(*other), False) != one
    assert features_digest(request(column(0, 1, [2, 3]), column(0, 0, [1.0])), False) == one


def test_where_strings_are_cut_is_part_of_the_digest():
    text = np.frombuffer(b"abc", np.uint8)
    digests = {features_digest(request((0, 0, text, None, np.array([0, cut, 3], np.int32))), False) for cut in range(4)}
    assert len(digests) == 4


def test_the_context_counts_only_where_the_user_side_reads_it():
    bare, noon = request(column(0, 0, [1.0])), request(column(0, 0, [1.0]), column(1, 0, [12]))
    item = request(column(0, 0, [1.0]), column(2, 0, [12]))
    assert features_digest(bare, False) == features_digest(noon, False) == features_digest(item, True)
    assert features_digest(bare, True) != features_digest(noon, True)
