"""An engine report as Markdown, and as one HTML page with its plots inside. Imports tensorflow."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from .page import COLOURS, ITEM_COLOUR, USER_COLOUR, bars, html_table, markdown_table, page
from .report import PLAIN, ROUNDS, EngineReport
from .request import Lane

__all__ = ["html", "markdown"]

_PASSES = (f"Each pass on top of those before. FLOPs are of matrix products; bytes are what operations read and write, "
           f"as if each went to memory; times are medians of {ROUNDS} runs in turn.")
_SCORES = ("Against TensorFlow on the plain graph: the largest difference of a probability after each pass, then the "
           "plain graph and all passes closer. The weights are random, so there is no AUC here: the benchmark of "
           "engines has its difference on the trained model.")


def markdown(report: EngineReport) -> str:
    """The report as Markdown."""
    lines = [f"# {_title(report)}", "", report.host, "", "## Passes", "", _PASSES, "",
             *markdown_table(list(_rows(report))), "## Scores", "", _SCORES, "",
             *markdown_table(list(_difference_rows(report))), *markdown_table(list(_score_rows(report)))]
    skipped = list(_skipped(report))
    if skipped:
        lines += ["## Skipped", "", *(f"* {what}: {why}" for what, why in skipped), ""]
    return "\n".join(lines)


def html(report: EngineReport) -> str:
    """The report as one page that needs no network: plots of times and of work, and the tables."""
    plots = "".join(f"<h3>{escape(f'{lane.kind} {lane.precision}')}</h3>{_times_plot(report, lane)}"
                    for lane in _lanes(report) if any(isinstance(s.lanes[lane], tuple) for s in report.steps))
    skipped = "".join(f"<li>{escape(what)}: {escape(why)}</li>" for what, why in _skipped(report))
    body = ("<h2>Milliseconds a request</h2><p>Each pass on top of those before; one scale for all.</p>"
            f"{plots}<h2>Work a request</h2>{_work_plots(report)}<h2>Passes</h2><p>{escape(_PASSES)}</p>"
            f"{html_table(list(_rows(report)))}<h2>Scores</h2><p>{escape(_SCORES)}</p>"
            f"{html_table(list(_difference_rows(report)))}{html_table(list(_score_rows(report)))}"
            + (f"<h2>Skipped</h2><ul>{skipped}</ul>" if skipped else ""))
    return page(_title(report), report.host, body)


def _title(report: EngineReport) -> str:
    return f"{report.model}, {report.candidates} candidates"


def _lanes(report: EngineReport) -> list[Lane]:
    return list(report.steps[0].lanes)


def _skipped(report: EngineReport) -> Iterator[tuple[str, str]]:
    """(what, why), one line for steps that were skipped for the same reason."""
    if report.stopped is not None:
        yield f"pass {report.stopped[0]} and those after it", report.stopped[1]
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
        yield [step.name, str(step.cost.nodes), f"{step.cost.flops / 1e9:.3g}", f"{step.cost.flops_user / 1e9:.3g}",
               f"{step.cost.bytes / 1e6:.3g}", *times]


def _difference_rows(report: EngineReport) -> Iterator[list[str]]:
    yield ["after", *(f"{lane.kind} {lane.precision}" for lane in _lanes(report))]
    for step in report.steps:
        yield [step.name, *(f"{r[1].probability:.1e}" if isinstance(r, tuple) else "skipped"
                            for r in step.lanes.values())]


def _score_rows(report: EngineReport) -> Iterator[list[str]]:
    """Of the plain graph, and of the last step."""
    yield ["graph", "engine", "probability, most", "logit, p99", "mean shift", "top 10 kept"]
    for step in (report.steps[0], report.steps[-1]):
        for lane, result in step.lanes.items():
            if isinstance(result, tuple):
                d = result[1]
                yield [step.name if step.name == PLAIN else "all passes", f"{lane.kind} {lane.precision}",
                       f"{d.probability:.1e}", f"{d.logit_p99:.1e}", f"{d.mean_shift:.1e}", f"{d.top10:.2f}"]


def _times_plot(report: EngineReport, lane: Lane) -> str:
    """A bar for each step, all lanes on one scale."""
    most = max(r[0] for step in report.steps for r in step.lanes.values() if isinstance(r, tuple))
    shown = [(step.name, [(step.lanes[lane][0], ITEM_COLOUR)]) for step in report.steps
             if isinstance(step.lanes[lane], tuple)]
    return bars(f"times in {lane.kind} {lane.precision}", shown, most)


def _work_plots(report: EngineReport) -> str:
    """FLOPs and bytes of each step, what runs once a user in a colour of its own."""
    def parts(name: str, scale: float) -> list:
        return [(step.name, [(getattr(step.cost, f"{name}_user") * scale, USER_COLOUR),
                             (getattr(step.cost, f"{name}_item") * scale, ITEM_COLOUR)]) for step in report.steps]

    plots = (("GFLOP", parts("flops", 1e-9)), ("MB moved", parts("bytes", 1e-6)))
    return (COLOURS + "".join(f"<h3>{title}</h3>{bars(title, rows, max(sum(v for v, _ in row) for _, row in rows))}"
                              for title, rows in plots))
