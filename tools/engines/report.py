"""What each pass and engine does to one model: nodes, FLOPs, bytes, times, score differences; Markdown and HTML.

Imports tensorflow.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html import escape

import numpy as np

from lambda_svc.errors import EngineError, EngineUnavailable
from models.errors import GraphError
from models.passes import PASSES, Cost, DenseGraph, apply, cost
from models.rewritten import run as framework_scores
from tools.bench.figures import host_line, interleave

from .request import DenseRequest, Lane, lanes
from .scores import Differences, differences

__all__ = ["EngineReport", "Step", "html", "markdown", "measure_report"]

PLAIN, ROUNDS = "plain", 7
_BAR_PX, _ROW_PX, _LABEL_PX = 520, 22, 260


@dataclass(frozen=True)
class Step:
    """The graph after a pass, on top of those before: its cost, and by lane (ms, differences) or why it was skipped."""

    name: str
    cost: Cost
    lanes: Mapping[Lane, tuple[float, Differences] | str]


@dataclass(frozen=True)
class EngineReport:
    """All steps of a model at a number of candidates, "plain" first."""

    model: str
    candidates: int
    host: str
    steps: tuple[Step, ...]


def measure_report(model: str, plain: DenseGraph, feeds: Mapping[str, np.ndarray], candidates: int,
                   told: Callable[[str], None] = lambda _: None) -> EngineReport:
    """Applies pass after pass and runs each step in each engine, in turn; `told` hears what is going on. A pass that
    cannot read the graph ends the chain and is named."""
    want = framework_scores(plain, feeds)
    graphs = {PLAIN: plain}
    for count, name in enumerate(PASSES, 1):
        told(f"pass {name}")
        graphs[name] = apply(plain, list(PASSES)[:count])
    requests: dict[tuple[str, Lane], DenseRequest] = {}
    found: dict[str, dict] = {name: {} for name in graphs}
    for name, dense in graphs.items():
        for lane in lanes():
            told(f"loading {name} in {lane.kind} {lane.precision}")
            try:
                requests[name, lane] = DenseRequest(dense, feeds, lane)
            except (EngineError, EngineUnavailable, GraphError) as error:
                found[name][lane] = str(error)
    told("measuring")
    samples = interleave({key: _timed(request) for key, request in requests.items()}, ROUNDS, warmup=2)
    for (name, lane), request in requests.items():
        taken = statistics.median(samples.samples[name, lane]) * 1e3
        found[name][lane] = taken, differences(request.run(), want)
    steps = tuple(Step(name, cost(dense, candidates), found[name]) for name, dense in graphs.items())
    return EngineReport(model, candidates, host_line(), steps)


def _timed(request: DenseRequest) -> Callable[[], None]:
    def once() -> None:
        request.run()

    return once


def _title(report: EngineReport) -> str:
    return f"{report.model}, {report.candidates} candidates"


def _lanes(report: EngineReport) -> list[Lane]:
    return list(report.steps[0].lanes)


def _skipped(report: EngineReport) -> Iterator[tuple[str, str]]:
    """(what, why), one line for steps that were skipped for the same reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for step in report.steps:
        for lane, result in step.lanes.items():
            if isinstance(result, str):
                reasons.setdefault((f"{lane.kind} {lane.precision}", result), []).append(step.name)
    for (lane, reason), steps in reasons.items():
        yield f"{lane}: {'every step' if len(steps) == len(report.steps) else ', '.join(steps)}", reason


def _rows(report: EngineReport) -> Iterator[list[str]]:
    yield ["after", "nodes", "GFLOP", "of it user", "MB moved",
           *(f"{lane.kind} {lane.precision}, ms" for lane in _lanes(report))]
    for step in report.steps:
        times = [f"{r[0]:.2f}" if isinstance(r, tuple) else "skipped" for r in step.lanes.values()]
        yield [step.name, str(step.cost.nodes), f"{step.cost.flops / 1e9:.3f}", f"{step.cost.flops_user / 1e9:.3f}",
               f"{step.cost.bytes / 1e6:.1f}", *times]


def _score_rows(report: EngineReport) -> Iterator[list[str]]:
    """Of the last step, and of the plain graph."""
    yield ["graph", "engine", "probability, most", "logit, p99", "mean shift", "top 10 kept"]
    for step in (report.steps[0], report.steps[-1]):
        for lane, result in step.lanes.items():
            if isinstance(result, tuple):
                d = result[1]
                yield [step.name if step.name == PLAIN else "all passes", f"{lane.kind} {lane.precision}",
                       f"{d.probability:.1e}", f"{d.logit_p99:.1e}", f"{d.mean_shift:.1e}", f"{d.top10:.2f}"]


def markdown(report: EngineReport) -> str:
    """The report as Markdown."""
    def table(rows: list[list[str]]) -> list[str]:
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]

    lines = [f"# {_title(report)}", "", report.host, "",
             "Each pass on top of those before. FLOPs are of matrix products; bytes are what ops read and write; times "
             f"are medians of {ROUNDS} runs in turn.", "", *table(list(_rows(report))), "", "## Scores", "",
             "Against TensorFlow on the plain graph.", "", *table(list(_score_rows(report)))]
    skipped = list(_skipped(report))
    if skipped:
        lines += ["", "## Skipped", "", *(f"* {what}: {why}" for what, why in skipped)]
    return "\n".join(lines) + "\n"


def html(report: EngineReport) -> str:
    """The report as one page that needs no network: a plot of times, and the tables."""
    def table(rows: list[list[str]]) -> str:
        head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:])
        return f"<table><tr>{head}</tr>{body}</table>"

    plots = "".join(f"<h3>{escape(f'{lane.kind} {lane.precision}')}</h3>{_bars(report, lane)}"
                    for lane in _lanes(report) if any(isinstance(s.lanes[lane], tuple) for s in report.steps))
    skipped = "".join(f"<li>{escape(what)}: {escape(why)}</li>" for what, why in _skipped(report))
    return (f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(_title(report))}</title><style>{_STYLE}"
            f"</style><h1>{escape(_title(report))}</h1><p>{escape(report.host)}</p><h2>Milliseconds a request</h2>"
            f"<p>Each pass on top of those before; one scale for all.</p>{plots}<h2>Passes</h2>"
            f"{table(list(_rows(report)))}<h2>Scores</h2><p>Against TensorFlow on the plain graph.</p>"
            f"{table(list(_score_rows(report)))}" + (f"<h2>Skipped</h2><ul>{skipped}</ul>" if skipped else "")
            + "</html>\n")


_STYLE = ("body{font:15px/1.45 system-ui,sans-serif;max-width:1080px;margin:2em auto;padding:0 1em;color:#222}"
          "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
          "td,th{padding:.25em .7em;border-bottom:1px solid #ddd;text-align:right}"
          "td:first-child,th:first-child{text-align:left}h3{margin:1.2em 0 .3em}")


def _bars(report: EngineReport, lane: Lane) -> str:
    """Horizontal bars, one a step, all lanes on one scale."""
    most = max(r[0] for step in report.steps for r in step.lanes.values() if isinstance(r, tuple))
    shown = [(step.name, step.lanes[lane][0]) for step in report.steps if isinstance(step.lanes[lane], tuple)]
    bars = []
    for row, (name, ms) in enumerate(shown):
        y, width = row * _ROW_PX, max(1.0, ms / most * _BAR_PX)
        bars.append(f'<text x="{_LABEL_PX - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>'
                    f'<rect x="{_LABEL_PX}" y="{y + 3}" width="{width:.1f}" height="{_ROW_PX - 6}" fill="#4a78b5"/>'
                    f'<text x="{_LABEL_PX + width + 6:.1f}" y="{y + 15}">{ms:.2f}</text>')
    return (f'<svg role="img" aria-label="{escape(f"times in {lane.kind} {lane.precision}")}" '
            f'width="{_LABEL_PX + _BAR_PX + 80}" height="{len(shown) * _ROW_PX}" font-size="13" '
            f'font-family="system-ui,sans-serif">{"".join(bars)}</svg>')
