"""Every pass in every engine on recorded requests: times, processor time, and how far the scores are off.

Imports tensorflow.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lambda_svc.errors import EngineError, EngineUnavailable
from models.errors import GraphError
from models.passes import PASSES, Cost, DenseGraph, apply, cost
from tools.engines import DenseRequest, Lane, lanes
from tools.engines.request import aligned

from .dense_part import DensePart
from .deviation import Comparison, Deviation
from .exported import ExportedGraph, Original
from .requests import Request

__all__ = ["PLAIN", "Measured", "Result", "Speed", "Step", "measure", "measure_stock"]

PLAIN = "plain"
_TIMED_MAX, _TIMED_MAX_QUICK = 24, 6
_ROUNDS_MIN, _ROUNDS_MAX = 3, 9
_REASON_CHARACTERS_MAX = 400
_SECONDS, _SECONDS_QUICK = 60.0, 8.0


@dataclass(frozen=True)
class Speed:
    """`ms`: the median latency of a request. `core_ms`: processor time of all threads a request takes, the mean; its
    inverse is what a core can do when all are busy."""

    ms: float
    core_ms: float

    @property
    def per_core(self) -> float:
        """Requests a second and core."""
        return 1e3 / max(self.core_ms, 1e-6)


@dataclass(frozen=True)
class Result:
    """A graph in an engine."""

    speed: Speed
    deviation: Deviation


@dataclass(frozen=True)
class Step:
    """The graph after a pass, on top of those before.

    Attributes:
        cost: of a request of the median number of rows; the reason when it cannot be counted.
        changed: whether the pass found anything to do; where it did not, results are those of the step before.
        lanes: by lane the result, why it was skipped, or None where it was not to be measured.
    """

    name: str
    cost: Cost | str
    changed: bool
    lanes: Mapping[Lane, Result | str | None]


@dataclass(frozen=True)
class Measured:
    """All of it in turn, on `timed` of the requests of `rows` rows (the median).

    Attributes:
        stock: the original.
        whole: the exported graph in one session, with nothing else done to it.
        front: the share of every step that the operations before the dense part take; None when there are none.
        stopped: the pass that ended the chain, with its reason.
    """

    stock: Speed
    whole: Speed
    front: Speed | None
    timed: int
    rows: int
    steps: tuple[Step, ...]
    stopped: tuple[str, str] | None


class _Clock:
    """Runs all timed requests once a call, keeping times of all calls but the first."""

    def __init__(self, run: Callable[[int], object], requests: int):
        self._run, self._requests = run, requests
        self._samples: list[tuple[float, float]] | None = None

    def __call__(self) -> None:
        taken = []
        for number in range(self._requests):
            start, used = time.perf_counter(), time.process_time()
            self._run(number)
            taken.append((time.perf_counter() - start, time.process_time() - used))
        self._samples = [] if self._samples is None else [*self._samples, *taken]

    def speed(self) -> Speed:
        wall, used = zip(*self._samples, strict=True)
        return Speed(1e3 * statistics.median(wall), 1e3 * statistics.fmean(used))


def measure_stock(original: Original, requests: Sequence[Request], quick: bool) -> Speed:
    """The original alone, for models of which nothing else can be measured."""
    timed = _sample(requests, quick)
    clock = _Clock(lambda number: original.stock(timed[number].inputs), len(timed))
    _in_turn([clock], quick)
    return clock.speed()


def measure(part: DensePart, exported: ExportedGraph, original: Original, requests: Sequence[Request], quick: bool,
            told: Callable[[str], None]) -> Measured:
    """Applies pass after pass and runs each step in each engine; the plain graph and the last step are compared with
    the original on all requests, those between on the ones that are timed. `quick` runs no steps between."""
    timed, rows = _sample(requests, quick), int(statistics.median(request.rows for request in requests))
    graphs, stopped = _chain(part.plain, told)
    changed = _changed(graphs)
    last = next(name for name in reversed(graphs) if changed[name])
    feeder = _Feeder(part, exported)
    want = [part.scores(original.call(request.inputs)) for request in requests]
    prepared = [feeder.prepared(request) for request in timed]
    every = [(request.record, feeder.prepared(request), scores) for request, scores in zip(requests, want, strict=True)]
    some = [one for one in every if one[0] in {request.record for request in timed}]
    found: dict[str, dict[Lane, Deviation | str | None]] = {name: {} for name in graphs}
    clocks: dict[tuple[str, Lane], _Clock] = {}
    for name, dense in graphs.items():
        for lane in lanes():
            if not changed[name] or (quick and name not in (PLAIN, last)):
                found[name][lane] = None
                continue
            told(f"running {name} in {lane.kind} {lane.precision}")
            found[name][lane], run = _compared(dense, lane, feeder, every if name in (PLAIN, last) else some)
            if run is not None:
                clocks[name, lane] = _Clock(lambda number, run=run: run(prepared[number]), len(timed))
    told("measuring")
    stock = _Clock(lambda number: original.stock(timed[number].inputs), len(timed))
    whole = _Clock(lambda number: exported.call(timed[number].inputs), len(timed))
    front = _Clock(lambda number: feeder.values(prepared[number]), len(timed))
    _in_turn([stock, whole, *([front] if part.front else []), *clocks.values()], quick)
    steps, before, counted = [], {}, ""
    for name, dense in graphs.items():
        if changed[name]:
            before = {lane: Result(clocks[name, lane].speed(), seen) if isinstance(seen, Deviation) else seen
                      for lane, seen in found[name].items()}
            told(f"counting {name}")
            counted = _cost(dense, rows)
        steps.append(Step(name, counted, changed[name], before))
    shared = front.speed() if part.front else None
    return Measured(stock.speed(), whole.speed(), shared, len(timed), rows, tuple(steps), stopped)


def _sample(requests: Sequence[Request], quick: bool) -> list[Request]:
    """Evenly over the file."""
    most = _TIMED_MAX_QUICK if quick else _TIMED_MAX
    places = np.unique(np.linspace(0, len(requests) - 1, min(most, len(requests))).astype(int))
    return [requests[at] for at in places]


def _in_turn(clocks: Sequence[_Clock], quick: bool) -> None:
    start = time.perf_counter()
    for clock in clocks:
        clock()
    fitting = int((_SECONDS_QUICK if quick else _SECONDS) / max(time.perf_counter() - start, 1e-6))
    for _ in range(max(_ROUNDS_MIN, min(_ROUNDS_MAX, fitting))):
        for clock in clocks:
            clock()


def _chain(plain: DenseGraph, told: Callable[[str], None]) -> tuple[dict[str, DenseGraph], tuple[str, str] | None]:
    """The graph after each pass, in canonical form; where a pass finds nothing to do, the very graph before it."""
    graphs, dense, before = {PLAIN: plain}, plain, b""
    for name, run in PASSES.items():
        told(f"pass {name}")
        try:
            before = before or _bytes(apply(plain, ()))
            dense = run(dense)
            after = apply(dense, ())
        except GraphError as error:
            return graphs, (name, str(error))
        now = _bytes(after)
        last = graphs[next(reversed(graphs))]
        graphs[name], before = last if now == before else after, now
    return graphs, None


def _bytes(dense: DenseGraph) -> bytes:
    return b"|".join(graph.SerializeToString(deterministic=True) for graph in dense.graphs().values())


def _changed(graphs: Mapping[str, DenseGraph]) -> dict[str, bool]:
    """Whether each step's graph is another one than that before."""
    before = [None, *list(graphs.values())[:-1]]
    return {name: dense is not last for (name, dense), last in zip(graphs.items(), before, strict=True)}


def _cost(dense: DenseGraph, rows: int) -> Cost | str:
    try:
        return cost(dense, rows)
    except GraphError as error:
        return str(error)


class _Feeder:
    """Feeds of the dense part, in memory aligned as the server's is. Rows of cut tables are looked up and the front is
    computed anew each time, as a server would do it."""

    def __init__(self, part: DensePart, exported: ExportedGraph):
        self._part, self._exported = part, exported
        self._front = exported.fetcher(part.front) if part.front else None
        self._lookups = {f"{name}:0": lookup for name, lookup in exported.lookups.items()}

    def prepared(self, request: Request) -> dict:
        """What a request needs: its inputs by tensor, and where rows go."""
        fed = self._exported.feeds(request.inputs)
        return {"fed": {name: value if value.dtype == object else aligned(value) for name, value in fed.items()},
                "ids": {name: np.asarray(request.inputs[self._exported.ids_of(ids)])
                        for name, (ids, _) in self._lookups.items()}}

    def values(self, prepared: Mapping) -> dict[str, np.ndarray]:
        """Values of the boundary by tensor."""
        values = prepared["fed"]
        for name, (_, rows) in self._lookups.items():
            rows(prepared["ids"][name], out=values[name])
        return values if self._front is None else values | dict(zip(self._part.front, self._front(values), strict=True))

    def feeds(self, prepared: Mapping) -> dict[str, np.ndarray]:
        """Feeds by input of the dense part."""
        return self._part.feeds(self.values(prepared))


def _compared(dense: DenseGraph, lane: Lane, feeder: _Feeder, requests: Sequence[tuple]):
    """(the deviation, a run of a prepared request); (the reason, None) when the engine cannot."""
    try:
        loaded = DenseRequest(dense, feeder.feeds(requests[0][1]), lane)
        compared = Comparison()
        for record, prepared, want in requests:
            compared.add(record, loaded.run(feeder.feeds(prepared)), want)
    except (EngineError, EngineUnavailable, GraphError, ValueError) as error:
        return " ".join(str(error).split())[:_REASON_CHARACTERS_MAX], None
    return compared.result(), lambda prepared: loaded.run(feeder.feeds(prepared))
