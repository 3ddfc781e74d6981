"""The measurements of `bench engines`, model by model. Imports tensorflow."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lambda_svc.errors import EngineError, EngineUnavailable
from lambda_svc.session import TensorFlowOptions
from models import zoo
from models.errors import GraphError
from models.passes import PASSES, DenseGraph, apply, cost
from tools.bench.figures import Figure, Interleaved, figure, interleave, missing

from .floor import Peaks, floor_ms, peaks
from .real import real_data
from .request import DenseRequest, Lane, lane_name, lanes
from .scores import differences

__all__ = ["measure"]

CANDIDATES = (100, 500, 2_000, 5_000)
SLICED_FROM, SLICE_ROWS = 1_000, 256
"""Candidates of models over long histories are scored in slices, as a server does: their tensors would not fit."""
SPEEDUP_MIN = {("din", "f32", 500): 4.0, ("din", "bf16", 500): 9.0}
CEILING_MIN = {"f32": 0.5, "bf16": 0.35}
PASSES_IN = (Lane("tensorflow", "f32"), Lane("openvino", "f32"), Lane("openvino", "bf16"))
REQUEST_MS_MAX = 300.0
STOCK = "stock"


def measure(quick: bool) -> list[Figure]:
    """Measures; --quick takes DIN at 500 candidates, without the passes one by one."""
    seen = peaks()
    figures = [figure(f"engines.peak_gflops/precision={p}", [v], "GF/s", scale=1e-9) for p, v in seen.flops_s.items()]
    figures.append(figure("engines.peak_gbytes", [seen.bytes_s], "GB/s", scale=1e-9))
    if quick:
        return [*figures, *_model("din", 500, seen, rounds=5)]
    for name in zoo.NAMES:
        own = zoo.get(name).definition.candidates
        for n in sorted({own, *CANDIDATES}):
            figures += _model(name, n, seen, rounds=9, passes=n == own)
    return [*figures, *_forty(seen), *real_data()]


def _model(name: str, n: int, seen: Peaks, rounds: int, passes: bool = False) -> Iterator[Figure]:
    plain, feeds_of = zoo.dense(name)
    feeds = feeds_of(n, np.random.default_rng(0))
    sliced = SLICE_ROWS if name == "din_long" and n > SLICE_ROWS else 0
    requests, absent = _requests(plain, feeds, sliced, passes)
    samples = interleave({key: _timed(request) for key, request in requests.items()}, rounds, warmup=2)
    stock = min((key for key in requests if key.startswith(STOCK)), key=samples.median)
    at = f"model={name},n={n}"
    yield from _scores(at, requests, stock)
    yield from _times(at, samples, stock)
    yield from _absent(at, absent)
    rewritten = apply(plain)
    for precision in seen.flops_s:
        found = [key for key in requests if key.startswith("variant=all") and f"precision={precision}" in key]
        if found:
            yield from _speedups(name, n, precision, samples, stock, min(found, key=samples.median),
                                 floor_ms(rewritten, n, precision, seen))


def _absent(at: str, absent: dict[str, str]) -> Iterator[Figure]:
    for key, reason in absent.items():
        yield missing(f"engines.ms/{at},{key}", "ms", reason, better="lower")


def _requests(plain: DenseGraph, feeds, sliced: int, passes: bool) -> tuple[dict[str, DenseRequest], dict[str, str]]:
    """Everything to measure by key, and what could not be loaded with the reason."""
    wanted: dict[str, tuple[DenseGraph, Lane]] = {}
    for threads in (1, 2):
        for executor in ("SINGLE_THREADED_EXECUTOR", ""):
            options = TensorFlowOptions(intra_op_threads=threads, inter_op_threads=threads, executor=executor)
            key = f"{STOCK},threads={threads},executor={'single' if executor else 'default'}"
            wanted[key] = plain, Lane("tensorflow", "f32", options)
    everything = apply(plain)
    for lane in lanes():
        wanted[f"variant=plain,{lane_name(lane)}"] = plain, lane
        wanted[f"variant=all,{lane_name(lane)}"] = everything, lane
    if passes:
        names = list(PASSES)
        for count in range(1, len(names) + 1):
            for lane in PASSES_IN:
                wanted[f"up_to={names[count - 1]},{lane_name(lane)}"] = apply(plain, names[:count]), lane
    loaded, absent = {}, {}
    for key, (dense, lane) in wanted.items():
        try:
            loaded[key] = DenseRequest(dense, feeds, lane, sliced)
        except (EngineError, EngineUnavailable, GraphError) as error:
            absent[key] = str(error)
    return loaded, absent


def _timed(request: DenseRequest):
    def once() -> None:
        request.run()

    return once


def _times(at: str, samples: Interleaved, stock: str) -> Iterator[Figure]:
    for key, values in samples.samples.items():
        if not key.startswith(STOCK) or key == stock:
            yield figure(f"engines.ms/{at},{key}", values, "ms", better="lower", scale=1e3)


def _scores(at: str, requests: dict[str, DenseRequest], stock: str) -> Iterator[Figure]:
    want = requests[stock].run()
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


def _speedups(name: str, n: int, precision: str, samples: Interleaved, stock: str, best: str,
              floor: float) -> Iterator[Figure]:
    at = f"model={name},precision={precision},n={n}"
    ratios = samples.ratios(stock, best)
    ceiling = samples.median(stock) * 1e3 / floor
    yield figure(f"engines.speedup/{at}", ratios, "x", of=f"engines.ms/model={name},n={n},{stock}",
                 target=SPEEDUP_MIN.get((name, precision, n)))
    yield figure(f"engines.ceiling/{at}", [ceiling], "x", of=f"engines.ms/model={name},n={n},{stock}")
    yield figure(f"engines.of_ceiling/{at}", [ratio / ceiling for ratio in ratios], "1",
                 of=f"engines.ceiling/{at}", target=CEILING_MIN[precision])
    untouched = f"variant=plain,engine=openvino,precision={precision}"
    if untouched in samples.samples:
        yield figure(f"engines.over_untouched_openvino/{at}", samples.ratios(untouched, best), "x",
                     of=f"engines.ms/model={name},n={n},{untouched}", target=1.0)


def _forty(seen: Peaks) -> Iterator[Figure]:
    """The request of 40 GFLOP: DLRM at size large, as many candidates as its scenario has."""
    entry = zoo.get("dlrm", "large")
    plain, feeds_of = entry.dense()
    n = entry.definition.candidates
    dense = apply(plain)
    feeds = feeds_of(n, np.random.default_rng(0))
    yield figure("engines.request_gflop", [cost(plain, n).flops], "GF", scale=1e-9)
    for lane in (Lane("openvino", precision) for precision in seen.flops_s):
        key = f"engines.request_ms/model=dlrm_large,n={n},{lane_name(lane)}"
        try:
            request = DenseRequest(dense, feeds, lane)
        except (EngineError, EngineUnavailable) as error:
            yield missing(key, "ms", str(error), better="lower")
            continue
        samples = interleave({"request": _timed(request)}, 7, warmup=2)
        yield figure(key, samples.samples["request"], "ms", better="lower", scale=1e3, target=REQUEST_MS_MAX)
        floor = floor_ms(dense, n, lane.precision, seen)
        yield figure(f"engines.request_of_floor/model=dlrm_large,precision={lane.precision}",
                     [floor / 1e3 / s for s in samples.samples["request"]], "1", of="the floor")
