"""Shadow scoring: requests that were answered are scored again by the version on trial, aside, for nobody."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from lambda_svc.errors import LambdaError
from lambda_svc.plan import ScenarioPlan

__all__ = ["Shadow"]

QUEUED_MAX = 4
DEADLINE_S = 10.0


class Shadow:
    """One thread that scores what it is given; what comes while it is busy is dropped and counted."""

    def __init__(self, scored: Callable[[str, float, dict[str, Any]], None], failed: Callable[[str], None]) -> None:
        """`scored(scenario, ms, heads)` and `failed(scenario)` get what became of each."""
        self._scored, self._failed = scored, failed
        self._queue: queue.Queue = queue.Queue(QUEUED_MAX)
        self.dropped = 0
        self._thread = threading.Thread(target=self._work, name="shadow", daemon=True)
        self._thread.start()

    def offer(self, plan: ScenarioPlan, arguments: dict[str, Any]) -> None:
        """Arguments of the pipeline's rank, whose memory stays as it is."""
        try:
            self._queue.put_nowait((plan, arguments))
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Ends the thread once it has scored what waits."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        # Nothing of a request may be held while the next one is awaited: it would keep its version in memory.
        while self._next():
            pass

    def _next(self) -> bool:
        offered = self._queue.get()
        if offered is None:
            return False
        plan, arguments = offered
        start = time.monotonic_ns()
        try:
            result = plan.pipeline.rank(**arguments, deadline_ns=start + int(DEADLINE_S * 1e9), cancel=None)
        except LambdaError:
            self._failed(plan.scenario)
            return True
        ms = (time.monotonic_ns() - start) / 1e6
        self._scored(plan.scenario, ms, dict(zip(plan.heads, result.heads, strict=True)))
        return True
