"""Streams: as many lanes as there are, first come, first served, never past a deadline."""

from __future__ import annotations

import threading
import time

import pytest

from lambda_svc.errors import ConfigError, DeadlineExceeded
from lambda_svc.session.streams import Streams


def wait_until(condition) -> None:
    """Spins until another thread has got there; fails after ten seconds."""
    limit = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < limit
        threading.Event().wait(0.001)


def test_each_lane_is_held_by_one():
    streams, held, seen = Streams(3), set(), set()
    lock = threading.Lock()

    def work() -> None:
        for _ in range(200):
            with streams.acquire() as lane:
                with lock:
                    assert lane not in held
                    held.add(lane)
                    seen.add(lane)
                with lock:
                    held.remove(lane)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = streams.stats()
    assert (stats.acquired, stats.busy, stats.waiting, stats.expired) == (1600, 0, 0, 0)
    assert seen <= {0, 1, 2} and stats.streams == 3


def test_waiters_are_served_in_order():
    streams, order = Streams(1), []

    def work(name: int) -> None:
        with streams.acquire():
            order.append(name)

    threads = []
    with streams.acquire():
        for name in range(4):
            threads.append(threading.Thread(target=work, args=(name,)))
            threads[-1].start()
            wait_until(lambda: streams.stats().waiting == name + 1)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3]
    assert streams.stats().waited == 4
    assert streams.stats().wait_us_max <= streams.stats().wait_us_total


def test_a_deadline_ends_the_wait_and_an_expired_one_never_gets_a_lane():
    streams = Streams(1)
    with pytest.raises(DeadlineExceeded, match="had passed"), streams.acquire(time.monotonic_ns() - 1):
        raise AssertionError("got a lane")
    with streams.acquire():
        with pytest.raises(DeadlineExceeded, match="no stream of 1"), streams.acquire(time.monotonic_ns() + 20_000_000):
            raise AssertionError("got a lane")
    assert streams.stats().expired == 2
    with streams.acquire(time.monotonic_ns() + 10**10) as lane:
        assert lane == 0


def test_a_lane_comes_back_after_an_error():
    streams = Streams(1)
    with pytest.raises(ZeroDivisionError), streams.acquire():
        raise ZeroDivisionError
    assert streams.stats().busy == 0


def test_no_streams_is_a_configuration_error():
    with pytest.raises(ConfigError, match="streams: got 0"):
        Streams(0)
