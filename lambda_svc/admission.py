"""Stage 3: a queue with a bound. Work whose deadline has passed never runs; more than the bound is refused at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lambda_svc.errors import DeadlineExceeded, ResourceExhausted, Unavailable

__all__ = ["Admission", "AdmissionStats"]


@dataclass(frozen=True)
class AdmissionStats:
    """Counts since start; `running` and `waiting` are of this moment."""

    running: int
    waiting: int
    admitted: int
    expired: int
    refused: int


class Admission:
    """Lets at most `streams` requests run at once and `queue_max` wait, in order of arrival. Thread-safe."""

    def __init__(self, streams: int, queue_max: int) -> None:
        self._streams = streams
        self._queue_max = queue_max
        self._changed = threading.Condition()
        self._waiting: list[object] = []
        self._running = self._admitted = self._expired = self._refused = 0
        self._closed = False

    @contextmanager
    def admit(self, deadline_ns: int) -> Iterator[None]:
        """Holds a place until the block ends; `deadline_ns` is on time.monotonic_ns.

        Raises DeadlineExceeded when it passes first, ResourceExhausted when the queue is full, Unavailable once closed.
        """
        self._enter(deadline_ns)
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Refuses what has not been admitted yet; what runs goes on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def stats(self) -> AdmissionStats:
        """A consistent reading of the counters."""
        with self._changed:
            return AdmissionStats(self._running, len(self._waiting), self._admitted, self._expired, self._refused)

    def _enter(self, deadline_ns: int) -> None:
        ticket = object()
        with self._changed:
            if len(self._waiting) >= self._queue_max and self._running >= self._streams:
                self._refused += 1
                waiting = len(self._waiting)
                raise ResourceExhausted(f"queue full: {waiting} requests wait, queue_max is {self._queue_max}")
            self._waiting.append(ticket)
            try:
                self._wait_for_turn(ticket, deadline_ns)
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()
            self._running += 1
            self._admitted += 1

    def _wait_for_turn(self, ticket: object, deadline_ns: int) -> None:
        while True:
            if self._closed:
                raise Unavailable("the server is draining; ask another replica")
            left_ns = deadline_ns - time.monotonic_ns()
            if left_ns <= 0:
                self._expired += 1
                raise DeadlineExceeded("deadline passed before the model could run")
            if self._running < self._streams and self._waiting[0] is ticket:
                return
            self._changed.wait(left_ns / 1e9)
