"""An engine report as Markdown, and as one HTML page with its plots inside. Imports tensorflow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from .report import PLAIN, ROUNDS, EngineReport
from .request import Lane

__all__ = ["html", "markdown"]

_BAR_PX, _ROW_PX, _LABEL_PX, _VALUE_PX = 520, 22, 170, 80
_USER, _ITEM = "#d98b3a", "#4a78b5"
_PASSES = (f"Each pass on top of those before. FLOPs are of matrix products; bytes are what operations read and write, "
           f"as if each went to memory; times are medians of {ROUNDS} runs in turn.")
_SCORES = ("Against TensorFlow on the plain graph: the largest difference of a probability after each pass, then the "
           "plain graph and all passes closer. The weights are random, so there is no AUC here: the benchmark of "
           "engines has its difference on the trained model.")
_STYLE = ("body{font:15px/1.45 system-ui,sans-serif;max-width:1080px;margin:2em auto;padding:0 1em;color:#222}"
          "table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:1em 0}"
          "td,th{padding:.25em .7em;border-bottom:1px solid #ddd;text-align:right}"
          "td:first-child,th:first-child{text-align:left}h3{margin:1.2em 0 .3em}svg{max-width:100%}"
          "td{white-space:nowrap}div{overflow-x:auto}")

Rows = Sequence[Sequence[str]]


def markdown(report: EngineReport) -> str:
    """The report as Markdown."""
    def table(rows: Rows) -> list[str]:
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        return [lines[0], "|---|" + "---:|" * (len(rows[0]) - 1), *lines[1:], ""]

    lines = [f"# {_title(report)}", "", report.host, "", "## Passes", "", _PASSES, "", *table(list(_rows(report))),
             "## Scores", "", _SCORES, "", *table(list(_difference_rows(report))), *table(list(_score_rows(report)))]
    skipped = list(_skipped(report))
    if skipped:
        lines += ["## Skipped", "", *(f"* {what}: {why}" for what, why in skipped), ""]
    return "\n".join(lines)


def html(report: EngineReport) -> str:
    """The report as one page that needs no network: plots of times and of work, and the tables."""
    def table(rows: Rows) -> str:
        head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:])
        return f"<div><table><tr>{head}</tr>{body}</table></div>"

    plots = "".join(f"<h3>{escape(f'{lane.kind} {lane.precision}')}</h3>{_times_plot(report, lane)}"
                    for lane in _lanes(report) if any(isinstance(s.lanes[lane], tuple) for s in report.steps))
    skipped = "".join(f"<li>{escape(what)}: {escape(why)}</li>" for what, why in _skipped(report))
    return (f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(_title(report))}</title><style>{_STYLE}"
            f"</style><h1>{escape(_title(report))}</h1><p>{escape(report.host)}</p><h2>Milliseconds a request</h2>"
            f"<p>Each pass on top of those before; one scale for all.</p>{plots}<h2>Work a request</h2>"
            f"{_work_plots(report)}<h2>Passes</h2><p>{escape(_PASSES)}</p>{table(list(_rows(report)))}<h2>Scores</h2>"
            f"<p>{escape(_SCORES)}</p>{table(list(_difference_rows(report)))}{table(list(_score_rows(report)))}"
            + (f"<h2>Skipped</h2><ul>{skipped}</ul>" if skipped else "") + "</html>\n")


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
    shown = [(step.name, [(step.lanes[lane][0], _ITEM)]) for step in report.steps
             if isinstance(step.lanes[lane], tuple)]
    return _bars(f"times in {lane.kind} {lane.precision}", shown, most)


def _work_plots(report: EngineReport) -> str:
    """FLOPs and bytes of each step, what runs once a user in a colour of its own."""
    def parts(name: str, scale: float) -> list:
        return [(step.name, [(getattr(step.cost, f"{name}_user") * scale, _USER),
                             (getattr(step.cost, f"{name}_item") * scale, _ITEM)]) for step in report.steps]

    plots = (("GFLOP", parts("flops", 1e-9)), ("MB moved", parts("bytes", 1e-6)))
    return (f'<p><span style="color:{_ITEM}">&#9632;</span> for each candidate, <span style="color:{_USER}">&#9632;'
            "</span> once a user.</p>"
            + "".join(f"<h3>{title}</h3>{_bars(title, rows, max(sum(v for v, _ in row) for _, row in rows))}"
                      for title, rows in plots))


def _bars(label: str, rows: Sequence[tuple[str, Sequence[tuple[float, str]]]], most: float) -> str:
    """Horizontal bars of (value, colour) parts, the sum written behind each; `most` fills the width."""
    drawn = []
    for i, (name, parts) in enumerate(rows):
        y, x = i * _ROW_PX, float(_LABEL_PX)
        drawn.append(f'<text x="{_LABEL_PX - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        for value, colour in parts:
            width = value / (most or 1.0) * _BAR_PX
            drawn.append(f'<rect x="{x:.1f}" y="{y + 3}" width="{width:.1f}" height="{_ROW_PX - 6}" fill="{colour}"/>')
            x += width
        total = sum(value for value, _ in parts)
        drawn.append(f'<text x="{x + 6:.1f}" y="{y + 15}">{total:.3g}</text>')
    width, height = _LABEL_PX + _BAR_PX + _VALUE_PX, len(rows) * _ROW_PX
    return (f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-size="13" font-family="system-ui,sans-serif">{"".join(drawn)}</svg>')
