"""The measurements of `bench engines`, model by model. Imports tensorflow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from lambda_svc.errors import EngineError, EngineUnavailable
from models import zoo
from models.errors import GraphError
from models.passes import PASSES, DenseGraph, apply
from tools.bench.figures import Figure, Interleaved, figure, interleave, missing

from .floor import Probes, floor_ms
from .real import real_data
from .request import DenseRequest, Lane, lane_name, lanes
from .scores import differences
from .stock import Elsewhere, Setting, settings, stock_request

__all__ = ["measure"]

CANDIDATES = (100, 500, 2_000, 5_000)
SLICE_ROWS = 256
"""Candidates of models over long histories are scored in slices, as a server does: their tensors would not fit."""
SPEEDUP_MIN = {("din", "f32", 500): 4.0, ("din", "bf16", 500): 9.0}
CEILING_MIN = {"f32": 0.5, "bf16": 0.35}
PASSES_IN = (Lane("tensorflow", "f32"), Lane("openvino", "f32"), Lane("openvino", "bf16"))
REQUEST_MS_MAX = 300.0
ROUNDS_MIN, ROUNDS_MAX, SECONDS_MAX = 3, 9, 45.0
"""Of one model at one number of candidates: what is slow is measured in fewer rounds."""


class _Bench(NamedTuple):
    """What all models share."""

    probes: Probes
    elsewhere: Elsewhere


class _Model(NamedTuple):
    """A zoo model with the feeds of one request; `sliced` is candidates per run, 0 all at once."""

    name: str
    n: int
    plain: DenseGraph
    feeds: Mapping[str, np.ndarray]
    sliced: int = 0

    @property
    def at(self) -> str:
        """As figures name it."""
        return f"model={self.name},n={self.n}"


def measure(quick: bool, names: tuple[str, ...] = zoo.NAMES) -> list[Figure]:
    """Measures; --quick takes DIN at 500 candidates, without the passes one by one."""
    with Elsewhere() as elsewhere:
        bench = _Bench(Probes(), elsewhere)
        figures: list[Figure] = []
        if quick:
            figures += _model(bench, _loaded("din", "base", 500), rounds_max=5)
        else:
            for name in names:
                own = zoo.get(name).definition.candidates
                for n in sorted({own, *CANDIDATES}):
                    figures += _model(bench, _loaded(name, "base", n), passes=n == own)
            if "dlrm" in names:
                figures += _forty(bench)
            figures += real_data()
    return [*_peaks(bench.probes), *figures]


def _peaks(probes: Probes) -> Iterator[Figure]:
    for precision in probes.precisions:
        yield figure(f"engines.peak_gflops/precision={precision}", probes.samples[precision], "GF/s", scale=1e-9)
    yield figure("engines.peak_gbytes", probes.samples["copy"], "GB/s", scale=1e-9)


def _loaded(name: str, size: str, n: int) -> _Model:
    plain, feeds = zoo.dense(name, size)
    sliced = SLICE_ROWS if name == "din_long" and n > SLICE_ROWS else 0
    return _Model(name if size == "base" else f"{name}_{size}", n, plain, feeds(n, np.random.default_rng(0)), sliced)


def _model(bench: _Bench, model: _Model, passes: bool = False, rounds_max: int = ROUNDS_MAX) -> Iterator[Figure]:
    stock, run_stock, want = _best_stock(bench.elsewhere, model)
    requests, absent = _requests(model, passes)
    samples = _in_turn({str(stock): run_stock, **{key: _timed(request) for key, request in requests.items()},
                        **bench.probes.variants()}, rounds_max)
    yield from _scores(model.at, requests, want)
    yield from _times(model.at, samples)
    for key, reason in absent.items():
        yield missing(f"engines.ms/{model.at},{key}", "ms", reason, better="lower")
    rewritten, seen = apply(model.plain), bench.probes.peaks(samples.samples)
    for precision in bench.probes.precisions:
        yield from _speedups(model, precision, samples, str(stock), floor_ms(rewritten, model.n, precision, seen))


def _best_stock(elsewhere: Elsewhere, model: _Model):
    """The fastest setting in two rounds, a request in it, and the scores of the plain graph."""
    given = (model.plain, model.feeds)
    here = settings()[0].intra_op
    runs: dict[Setting, Callable] = {
        s: stock_request(*given, s, model.sliced) if s.intra_op == here else elsewhere.load(*given, s, model.sliced)
        for s in settings()}
    want = runs[settings()[0]]()
    tried = interleave({str(s): _seconds(run) for s, run in runs.items()}, 2, warmup=1)
    best = min(runs, key=lambda setting: min(tried.samples[str(setting)]))
    return best, _seconds(runs[best]), want


def _seconds(run: Callable) -> Callable[[], float]:
    """A run elsewhere tells its seconds; of one here they are taken."""
    def once() -> float:
        start = time.perf_counter()
        answer = run()
        return answer if isinstance(answer, float) else time.perf_counter() - start

    return once


def _in_turn(variants: Mapping[str, Callable], rounds_max: int) -> Interleaved:
    """As many rounds as fit, after a first that is forgotten."""
    start = time.perf_counter()
    for run in variants.values():
        run()
    fitting = int(SECONDS_MAX / (time.perf_counter() - start))
    rounds = max(ROUNDS_MIN, min(rounds_max, fitting))
    return interleave(variants, rounds, warmup=int(rounds == rounds_max))


def _requests(model: _Model, passes: bool) -> tuple[dict[str, DenseRequest], dict[str, str]]:
    """Everything to measure by key, and what could not be loaded with the reason. With `passes` also the graph after
    each pass, and untouched in every engine; without, untouched in OpenVINO only."""
    everything = apply(model.plain)
    wanted = {f"variant=all,{lane_name(lane)}": (everything, lane) for lane in lanes()}
    wanted |= {f"variant=plain,{lane_name(lane)}": (model.plain, lane) for lane in lanes()
               if passes or lane.kind == "openvino"}
    names = list(PASSES) if passes else []
    for count in range(1, len(names)):  # after the last one it is variant=all
        dense = apply(model.plain, names[:count])
        wanted |= {f"up_to={names[count - 1]},{lane_name(lane)}": (dense, lane) for lane in PASSES_IN}
    loaded, absent = {}, {}
    for key, (dense, lane) in wanted.items():
        try:
            loaded[key] = DenseRequest(dense, model.feeds, lane, model.sliced)
        except (EngineError, EngineUnavailable, GraphError) as error:
            absent[key] = str(error)
    return loaded, absent


def _timed(request: DenseRequest) -> Callable[[], None]:
    def once() -> None:
        request.run()

    return once


def _times(at: str, samples: Interleaved) -> Iterator[Figure]:
    for key, values in samples.samples.items():
        if not key.startswith("peak="):
            yield figure(f"engines.ms/{at},{key}", values, "ms", better="lower", scale=1e3)


def _scores(at: str, requests: Mapping[str, DenseRequest], want: Mapping[str, np.ndarray]) -> Iterator[Figure]:
    for key, request in requests.items():
        if not key.startswith("variant=all"):
            continue
        found = differences(request.run(), want)
        if "precision=f32" in key:
            yield figure(f"engines.score_difference/{at},{key}", [found.probability], "1", better="lower", target=1e-6)
            continue
        yield figure(f"engines.logit_p99/{at},{key}", [found.logit_p99], "1", better="lower", target=0.02)
        yield figure(f"engines.mean_shift/{at},{key}", [found.mean_shift], "1", better="lower", target=1e-3)
        yield figure(f"engines.top10/{at},{key}", [found.top10], "1", target=0.99)


def _fastest(samples: Interleaved, precision: str) -> str | None:
    """With all passes."""
    found = [k for k in samples.samples if k.startswith("variant=all") and k.endswith(f"precision={precision}")]
    return min(found, key=samples.median, default=None)


def _speedups(model: _Model, precision: str, samples: Interleaved, stock: str, floor: float) -> Iterator[Figure]:
    at = f"model={model.name},precision={precision},n={model.n}"
    best = _fastest(samples, precision)
    if best is None:
        return
    of_stock = f"engines.ms/{model.at},{stock}"
    yield figure(f"engines.speedup/{at}", samples.ratios(stock, best), "x", of=of_stock,
                 target=SPEEDUP_MIN.get((model.name, precision, model.n)))
    yield figure(f"engines.floor_ms/{at}", [floor], "ms", better="lower")
    yield figure(f"engines.ceiling/{at}", [1e3 * s / floor for s in samples.samples[stock]], "x", of=of_stock)
    yield figure(f"engines.of_ceiling/{at}", [floor / 1e3 / s for s in samples.samples[best]], "1",
                 of=f"engines.ceiling/{at}", target=CEILING_MIN[precision])
    untouched = f"variant=plain,engine=openvino,precision={precision}"
    if untouched in samples.samples:
        yield figure(f"engines.over_untouched_openvino/{at}", samples.ratios(untouched, best), "x",
                     of=f"engines.ms/{model.at},{untouched}", target=1.0)


def _forty(bench: _Bench) -> Iterator[Figure]:
    """The request of 40 GFLOP and more: DLRM at size large, as many candidates as its scenario has."""
    model = _loaded("dlrm", "large", zoo.get("dlrm", "large").definition.candidates)
    dense = apply(model.plain)
    stock, run_stock, _ = _best_stock(bench.elsewhere, model)
    variants: dict[str, Callable] = {str(stock): run_stock}
    for lane in lanes():
        key = f"variant=all,{lane_name(lane)}"
        try:
            variants[key] = _timed(DenseRequest(dense, model.feeds, lane))
        except (EngineError, EngineUnavailable, GraphError) as error:
            yield missing(f"engines.request40_ms/{model.at},{key}", "ms", str(error), better="lower")
    samples = _in_turn({**variants, **bench.probes.variants()}, ROUNDS_MAX)
    seen = bench.probes.peaks(samples.samples)
    for key in variants:
        yield figure(f"engines.request40_ms/{model.at},{key}", samples.samples[key], "ms", better="lower", scale=1e3)
    for precision in bench.probes.precisions:
        at, best = f"model={model.name},precision={precision},n={model.n}", _fastest(samples, precision)
        if best is None:
            continue
        floor = floor_ms(dense, model.n, precision, seen)
        yield figure(f"engines.request40/{at}", samples.samples[best], "ms", better="lower", scale=1e3,
                     target=REQUEST_MS_MAX)
        yield figure(f"engines.request40_floor_ms/{at}", [floor], "ms", better="lower")
        yield figure(f"engines.request40_of_floor/{at}", [floor / 1e3 / s for s in samples.samples[best]], "1",
                     of=f"engines.request40_floor_ms/{at}")
