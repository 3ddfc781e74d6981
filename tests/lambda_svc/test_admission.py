"""The queue: order, bound, deadlines, draining. Threads meet at events and barriers, never at sleeps."""

from __future__ import annotations

import threading
import time

import pytest

from lambda_svc.admission import Admission
from lambda_svc.errors import DeadlineExceeded, ResourceExhausted, Unavailable
from lambda_svc.session.streams import Streams


def soon(seconds: float) -> int:
    return time.monotonic_ns() + int(seconds * 1e9)


class Holder(threading.Thread):
    """Is admitted and stays so until released; `order` receives its name on admission."""

    def __init__(self, admission: Admission, name: str, order: list[str]) -> None:
        super().__init__(daemon=True)
        self.admission, self.label, self.order = admission, name, order
        self.inside, self.release = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            with self.admission.admit(soon(30)):
                self.order.append(self.label)
                self.inside.set()
                self.release.wait(30)
        except Exception as error:
            self.error = error
            self.inside.set()


def wait_until_waiting(admission: Admission, count: int) -> None:
    deadline = time.monotonic() + 10
    while admission.stats().waiting != count:
        assert time.monotonic() < deadline
        time.sleep(0)


def test_waiters_are_admitted_in_order_of_arrival():
    admission, order = Admission(Streams(1), queue_max=8), []
    first = Holder(admission, "first", order)
    assert first.inside.wait(10)
    rest = []
    for number in range(3):
        rest.append(Holder(admission, str(number), order))
        wait_until_waiting(admission, number + 1)
    first.release.set()
    for holder in rest:
        assert holder.inside.wait(10)
        holder.release.set()
    assert order == ["first", "0", "1", "2"]


def test_beyond_the_bound_is_refused_at_once():
    admission, order = Admission(Streams(1), queue_max=1), []
    running = Holder(admission, "running", order)
    assert running.inside.wait(10)
    waiting = Holder(admission, "waiting", order)
    wait_until_waiting(admission, 1)
    with pytest.raises(ResourceExhausted, match="queue_max is 1"):
        with admission.admit(soon(30)):
            pytest.fail("must not be admitted")
    running.release.set(), waiting.release.set()
    running.join(10), waiting.join(10)
    stats = admission.stats()
    assert (stats.admitted, stats.refused, stats.running, stats.waiting) == (2, 1, 0, 0)


def test_a_deadline_that_passes_in_the_queue_expires_there():
    admission = Admission(Streams(1), queue_max=4)
    holder = Holder(admission, "holder", [])
    assert holder.inside.wait(10)
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        with admission.admit(soon(0.05)):
            pytest.fail("must not be admitted")
    assert 0.04 < time.monotonic() - started < 5
    holder.release.set()
    holder.join(10)
    with admission.admit(soon(5)):
        assert admission.stats().running == 1
    assert admission.stats().expired == 1


def test_expired_work_never_runs_even_on_an_idle_server():
    admission = Admission(Streams(4), queue_max=4)
    with pytest.raises(DeadlineExceeded):
        with admission.admit(time.monotonic_ns() - 1):
            pytest.fail("must not be admitted")


def test_closing_refuses_the_queue_and_lets_the_running_finish():
    streams, order = Streams(1), []
    admission = Admission(streams, queue_max=4)
    running = Holder(admission, "running", order)
    assert running.inside.wait(10)
    waiting = Holder(admission, "waiting", order)
    wait_until_waiting(admission, 1)
    streams.close()
    assert waiting.inside.wait(10)
    assert isinstance(waiting.error, Unavailable)
    running.release.set()
    running.join(10)
    assert running.error is None and order == ["running"]


def test_scenarios_of_one_model_share_its_streams_but_not_their_queues():
    streams = Streams(1)
    one, other = Admission(streams, queue_max=0), Admission(streams, queue_max=1)
    running = Holder(one, "running", [])
    assert running.inside.wait(10)
    waiting = Holder(other, "waiting", [])
    wait_until_waiting(other, 1)
    with pytest.raises(ResourceExhausted):
        with one.admit(soon(30)):
            pytest.fail("must not be admitted")
    running.release.set(), waiting.release.set()
    waiting.join(10)
    assert other.stats().admitted == 1 and one.stats().refused == 1


def test_a_failing_run_gives_its_place_back():
    admission = Admission(Streams(1), queue_max=0)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            with admission.admit(soon(5)):
                1 / 0
    assert admission.stats().running == 0


def test_never_more_than_the_streams_run_at_once():
    admission, lock = Admission(Streams(3), queue_max=100), threading.Lock()
    inside, most, barrier = 0, 0, threading.Barrier(16)

    def work() -> None:
        nonlocal inside, most
        barrier.wait(10)
        for _ in range(50):
            with admission.admit(soon(30)):
                with lock:
                    inside += 1
                    most = max(most, inside)
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(16)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert admission.stats().admitted == 800 and 1 <= most <= 3
