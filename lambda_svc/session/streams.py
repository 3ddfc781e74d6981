"""Streams: k independent execution lanes; each run of an executable occupies one."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lambda_svc.errors import ConfigError, DeadlineExceeded, Unavailable

__all__ = ["DRAINING", "StreamStats", "Streams"]

DRAINING = "the server is draining; ask another replica"


@dataclass(frozen=True)
class StreamStats:
    """Counters since the start; `busy` and `waiting` are of now."""

    streams: int
    busy: int
    waiting: int
    acquired: int
    waited: int
    wait_us_total: int
    wait_us_max: int
    expired: int


class _Waiter:
    """One caller in the queue; `lane` is set before it is woken."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.lane: int | None = None


class Streams:
    """A bounded pool of lanes 0 to k-1, handed out first come, first served. Thread-safe."""

    def __init__(self, streams: int) -> None:
        if streams < 1:
            raise ConfigError(f"streams: got {streams}; expected 1 or more")
        self._lock = threading.Lock()
        self._free = deque(range(streams))
        self._queue: deque[_Waiter] = deque()
        self._streams = streams
        self._closed = False
        self._acquired = self._waited = self._wait_us_total = self._wait_us_max = self._expired = 0

    @contextmanager
    def acquire(self, deadline_ns: int = 0) -> Iterator[int]:
        """Occupies a lane and yields its number.

        `deadline_ns` is on time.monotonic_ns(), 0 none. Raises DeadlineExceeded when no lane came free in time; a
        deadline that has already passed never gets a lane. Raises Unavailable once closed.
        """
        lane = self._take(deadline_ns)
        try:
            yield lane
        finally:
            self._give(lane)

    @property
    def idle(self) -> bool:
        """Whether a lane is free at this moment."""
        return bool(self._free)

    def close(self) -> None:
        """Hands out no more lanes and wakes whoever waits, with Unavailable; what runs goes on."""
        with self._lock:
            self._closed = True
            for waiter in self._queue:
                waiter.ready.set()

    def stats(self) -> StreamStats:
        """A snapshot of the counters; waits in microseconds."""
        with self._lock:
            return StreamStats(
                streams=self._streams,
                busy=self._streams - len(self._free),
                waiting=len(self._queue),
                acquired=self._acquired,
                waited=self._waited,
                wait_us_total=self._wait_us_total,
                wait_us_max=self._wait_us_max,
                expired=self._expired,
            )

    def _take(self, deadline_ns: int) -> int:
        start_ns = time.monotonic_ns()
        with self._lock:
            if deadline_ns and start_ns >= deadline_ns:
                self._expired += 1
                raise DeadlineExceeded("the deadline had passed before a stream was asked for")
            if self._closed:
                raise Unavailable(DRAINING)
            if self._free:
                self._acquired += 1
                return self._free.popleft()
            waiter = _Waiter()
            self._queue.append(waiter)
        waiter.ready.wait(None if not deadline_ns else (deadline_ns - start_ns) / 1e9)
        return self._after_wait(waiter, (time.monotonic_ns() - start_ns) // 1000)

    def _after_wait(self, waiter: _Waiter, wait_us: int) -> int:
        with self._lock:
            self._waited += 1
            self._wait_us_total += wait_us
            self._wait_us_max = max(self._wait_us_max, wait_us)
            if waiter.lane is None:
                self._queue.remove(waiter)
                if self._closed:
                    raise Unavailable(DRAINING)
                self._expired += 1
                raise DeadlineExceeded(f"no stream of {self._streams} came free within {wait_us} us")
            self._acquired += 1
            return waiter.lane

    def _give(self, lane: int) -> None:
        with self._lock:
            if not self._queue:
                self._free.append(lane)
                return
            waiter = self._queue.popleft()
            waiter.lane = lane
            waiter.ready.set()
