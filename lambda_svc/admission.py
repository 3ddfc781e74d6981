"""Stage 3: a queue with a bound before the streams. Expired work never runs; more than the bound is refused at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from lambda_svc.errors import DeadlineExceeded, ResourceExhausted
from lambda_svc.session.streams import Streams

__all__ = ["Admission", "AdmissionStats"]


@dataclass(frozen=True)
class AdmissionStats:
    """One scenario's counts since start; `running` and `waiting` are of this moment."""

    running: int
    waiting: int
    admitted: int
    expired: int
    refused: int


class Admission:
    """Lets a scenario's requests onto the streams of its model, at most `queue_max` of them waiting. Thread-safe."""

    def __init__(self, streams: Streams, queue_max: int) -> None:
        self._streams = streams
        self._queue_max = queue_max
        self._lock = threading.Lock()
        self._running = self._waiting = self._admitted = self._expired = self._refused = 0

    @contextmanager
    def admit(self, deadline_ns: int) -> Iterator[int]:
        """Occupies a stream until the block ends and yields its number; `deadline_ns` is on time.monotonic_ns.

        Raises DeadlineExceeded when it passes first, ResourceExhausted when the queue is full, Unavailable while
        draining.
        """
        with ExitStack() as stack:
            lane = self._enter(stack, deadline_ns)
            try:
                yield lane
            finally:
                with self._lock:
                    self._running -= 1

    def stats(self) -> AdmissionStats:
        """A consistent reading of the counters."""
        with self._lock:
            return AdmissionStats(self._running, self._waiting, self._admitted, self._expired, self._refused)

    def _enter(self, stack: ExitStack, deadline_ns: int) -> int:
        with self._lock:
            if self._waiting >= self._queue_max and not self._streams.idle:
                self._refused += 1
                raise ResourceExhausted(f"queue full: {self._waiting} requests wait, queue_max is {self._queue_max}")
            self._waiting += 1
        try:
            lane = stack.enter_context(self._streams.acquire(deadline_ns))
        except DeadlineExceeded:
            with self._lock:
                self._expired += 1
            raise
        finally:
            with self._lock:
                self._waiting -= 1
        with self._lock:
            self._running += 1
            self._admitted += 1
        return lane
