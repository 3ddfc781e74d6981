"""The answer as Markdown, and as one HTML page with plots. Imports tensorflow."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from models.passes import Cost
from tools.engines.page import COLOURS, ITEM_COLOUR, USER_COLOUR, bars, html_table, markdown_table, page

from .deviation import Deviation
from .examine import TOLERANCE_BF16, Adoption
from .measure import PLAIN, Result, Speed, Step
from .verdict import best, choices, outcome, ratio, tolerance_of, within

__all__ = ["html", "markdown"]

_Rows = list[list[str]]
_ENGINES = ("Stock is {path}, with the default executor and all threads, as TensorFlow Serving runs it; no network "
            "and no parsing on either side. Latencies are medians of {timed} requests in turn; a core's requests a "
            "second follow from the processor time of all threads. Every row includes the operations that stay in "
            "TensorFlow and the lookups of rows. The score difference is the largest over all requests, of scores "
            "above 1 relative to the score: {f32:.0e} is allowed in f32, {bf16:.0e} in bf16.")
_PASSES = ("Each pass on top of those before, of a request with {rows} rows; = is a pass that finds nothing to do. "
           "FLOPs are of matrix products; bytes are what operations of the dense part read and write, as if each went "
           "to memory.")


def markdown(found: Adoption) -> str:
    """The report as Markdown."""
    lines = [f"# {_title(found)}", "", found.host, "", *(f"* {line}" for line in _verdict(found)), ""]
    for title, text, tables in _sections(found):
        lines += [f"## {title}", "", *([text, ""] if text else [])]
        for rows in tables:
            lines += markdown_table(rows)
    for title, items in _lists(found):
        lines += [f"## {title}", "", *(f"* {item}" for item in items), ""]
    return "\n".join(lines)


def html(found: Adoption) -> str:
    """The report as one page that needs no network: the verdict, plots of times and of work, and the tables."""
    def listed(items) -> str:
        return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"

    body = listed(_verdict(found)) + _plots(found)
    for title, text, tables in _sections(found):
        body += f"<h2>{escape(title)}</h2>" + (f"<p>{escape(text)}</p>" if text else "")
        body += "".join(html_table(rows) for rows in tables)
    for title, items in _lists(found):
        body += f"<h2>{escape(title)}</h2>{listed(items)}"
    return page(_title(found), found.host, body)


def _title(found: Adoption) -> str:
    return f"{found.options.model.name}, signature {found.recorded.signature.name}"


def _verdict(found: Adoption) -> Iterator[str]:
    """A line for each question."""
    if found.exports:
        yield f"exports: yes, a package of {_amount(found.package_bytes)}B"
    else:
        yield f"exports: no: {found.refusal or found.no_package}"
    if found.no_package:
        front = found.measured is not None and found.measured.front is not None
        yield f"frozen: yes{', and measured with what engines lack in front, in TensorFlow' if front else ''}"
    if found.deviation is not None:
        yield (f"equal: {'yes' if found.equal else 'no'}, {_difference(found.deviation)}; "
               f"{found.options.tolerance:.0e} is allowed")
    for line in found.unequal:
        yield f"equal: no, {line}"
    stock = found.measured.stock if found.measured else found.stock
    if found.no_dense:
        yield f"engines: {found.no_dense}"
    if found.measured is None:
        if stock is not None:
            yield f"stock: {stock.ms:.3g} ms a request, {stock.per_core:,.0f} requests a second and core"
        return
    yield from _rewritten(found)
    fastest, cheapest = best(found), best(found, per_core=True)
    if fastest is None:
        yield "no engine's scores are within their tolerance: raise --tolerance, or stay with the SavedModel"
        return
    wins = outcome(stock.ms, fastest.result.speed.ms) == "wins"
    yield (f"a request: {'' if wins else 'nothing is faster than stock; closest is '}{fastest}: "
           f"{fastest.result.speed.ms:.3g} ms, stock {stock.ms:.3g} ms ({ratio(stock.ms, fastest.result.speed.ms)})")
    wins = outcome(stock.core_ms, cheapest.result.speed.core_ms) == "wins"
    yield (f"a core: {'' if wins else 'nothing does more than stock; closest is '}{cheapest}: "
           f"{cheapest.result.speed.per_core:,.0f} requests/s, stock {stock.per_core:,.0f} "
           f"({ratio(stock.core_ms, cheapest.result.speed.core_ms)})")
    yield from _work(found)


def _rewritten(found: Adoption) -> Iterator[str]:
    """Whether what export would publish beside the plain graph is equal, too."""
    for lane, result in found.measured.steps[-1].lanes.items():
        if (lane.kind, lane.precision) == ("tensorflow", "f32") and isinstance(result, Result):
            allowed = tolerance_of(found, lane)
            yield (f"equal after all passes: {'yes' if result.deviation.scaled <= allowed else 'no'}, "
                   f"{_difference(result.deviation)} in TensorFlow")


def _work(found: Adoption) -> Iterator[str]:
    first, last = found.measured.steps[0].cost, found.measured.steps[-1].cost
    if isinstance(first, Cost) and not isinstance(last, Cost):
        yield (f"work of a request with {found.measured.rows} rows: {_amount(first.flops)}FLOP and "
               f"{_amount(first.bytes)}B before; after all passes it does not follow from the inputs' shapes")
    if isinstance(first, Cost) and isinstance(last, Cost):
        yield (f"work of a request with {found.measured.rows} rows: {_amount(first.flops)}FLOP before, "
               f"{_amount(last.flops)}FLOP after; {_amount(first.bytes)}B before, {_amount(last.bytes)}B after")
    if found.measured.front is not None:
        yield (f"in front: {sum(found.part.front_ops.values()):,} operations stay in TensorFlow and take "
               f"{found.measured.front.ms:.3g} ms of every engine's time")


def _difference(seen: Deviation) -> str:
    where = f" ({seen.where})" if seen.where else ""
    relative = f", {seen.scaled:.1e} relative to scores above 1" if seen.largest != seen.scaled else ""
    return f"largest difference {_number(seen.largest)}{relative}{where} over {seen.requests:,} requests"


def _number(value: float) -> str:
    return f"{value:.1e}" if value else "0"


def _sections(found: Adoption) -> Iterator[tuple[str, str, list[_Rows]]]:
    """(title, text, tables)."""
    if found.measured is not None:
        measured = found.measured
        yield "Engines", _ENGINES.format(path=found.stock_path, timed=measured.timed, f32=found.options.tolerance,
                                         bf16=TOLERANCE_BF16), [list(_engine_rows(found))]
        tables = [list(_pass_rows(found))]
        if any(isinstance(r, Result) for step in measured.steps for r in step.lanes.values()):
            tables.append(list(_difference_rows(found)))
        yield "Passes", _PASSES.format(rows=measured.rows), tables
    yield "Requests", _requests(found), [list(_input_rows(found))]


def _engine_rows(found: Adoption) -> Iterator[list[str]]:
    stock = found.measured.stock
    yield ["engine", "graph", "ms", "of stock", "requests/s and core", "of stock", "score difference", "top 10 kept",
           "verdict"]
    def row(engine: str, graph: str, speed: Speed, seen: Deviation, close: bool) -> list[str]:
        request, core = outcome(stock.ms, speed.ms), outcome(stock.core_ms, speed.core_ms)
        verdict = request if request == core else f"request {request}, core {core}"
        return [engine, graph, f"{speed.ms:.3g}", ratio(stock.ms, speed.ms), f"{speed.per_core:,.0f}",
                ratio(stock.core_ms, speed.core_ms), _number(seen.scaled),
                "-" if seen.top10 is None else f"{seen.top10:.2f}",
                verdict + ("" if close else "; scores beyond tolerance")]

    yield ["stock", "original", f"{stock.ms:.3g}", "1.00x", f"{stock.per_core:,.0f}", "1.00x", "0", "-", ""]
    yield row("stock", "exported, whole", found.measured.whole, found.deviation, found.equal)
    for choice in choices(found.measured):
        yield row(f"{choice.lane.kind} {choice.lane.precision}", choice.graph, choice.result.speed,
                  choice.result.deviation, within(found, choice))


def _pass_rows(found: Adoption) -> Iterator[list[str]]:
    lanes = list(found.measured.steps[0].lanes)
    yield ["after", "nodes", "FLOP", "of it once a user", "bytes", *(f"{l.kind} {l.precision}, ms" for l in lanes)]
    for step in found.measured.steps:
        counted = step.cost
        work = ["-", "-", "-", "-"] if isinstance(counted, str) else [
            f"{counted.nodes:,}", *(_amount(n).strip() for n in (counted.flops, counted.flops_user, counted.bytes))]
        yield [step.name, *work, *(_cell(step, lane, lambda r: f"{r.speed.ms:.3g}") for lane in lanes)]


def _difference_rows(found: Adoption) -> Iterator[list[str]]:
    lanes = list(found.measured.steps[0].lanes)
    yield ["score difference after", *(f"{lane.kind} {lane.precision}" for lane in lanes)]
    for step in found.measured.steps:
        yield [step.name, *(_cell(step, lane, lambda r: _number(r.deviation.scaled)) for lane in lanes)]


def _cell(step: Step, lane, shown) -> str:
    result = step.lanes[lane]
    if not step.changed:
        return "="
    return "-" if result is None else "skipped" if isinstance(result, str) else shown(result)


def _requests(found: Adoption) -> str:
    rows = sorted(request.rows for request in found.recorded.requests)
    others = "".join(f"; {count} for signature {name!r} left out" for name, count in found.recorded.others.items())
    return (f"{len(rows):,} requests of {found.recorded.file.name} ({found.recorded.format}), "
            + (f"{rows[0]:,} rows each" if rows[0] == rows[-1] else
               f"{rows[0]:,} to {rows[-1]:,} rows, median {rows[len(rows) // 2]:,}") + f"{others}.")


def _input_rows(found: Adoption) -> Iterator[list[str]]:
    yield ["input", "dtype", "shape", "one value a request", "use"]
    for line in found.inputs:
        yield [line.name, line.dtype, line.shape, "yes" if line.constant else "no", line.use or "-"]


def _lists(found: Adoption) -> Iterator[tuple[str, list[str]]]:
    """(title, items) of what is better read line by line."""
    user = list(_user_lines(found))
    if user:
        yield "User side", user
    if found.notes:
        yield "Export", list(found.notes)
    skipped = list(_skipped(found))
    if skipped:
        yield "Skipped", skipped


def _user_lines(found: Adoption) -> Iterator[str]:
    constant = [line.name for line in found.inputs if line.constant]
    asked = found.options.user
    if found.user:
        how = "found so in every request" if asked == ("auto",) else "as --user says, checked on every request"
        yield f"{', '.join(found.user)}: one value for all rows, {how}; computed once a request"
    elif constant and len(constant) == len(found.inputs):
        yield ("every input has one value for all rows of each request, so that nothing tells the candidates apart: "
               "are these real requests?")
    elif all(request.rows == 1 for request in found.recorded.requests):
        yield "every request has one row: which inputs are the user's does not show"
    hinted = [name for name in constant if name not in found.user]
    if hinted and len(constant) < len(found.inputs):
        yield (f"{', '.join(hinted)}: one value for all rows of every request; if that is so by design, "
               f"{' '.join(f'--user {name}' for name in hinted)} computes them once")
    if found.user_once is not None:
        without, with_user = found.user_once
        saved = 1 - with_user.flops / without.flops if without.flops else 0.0
        yield (f"with {', '.join(constant)} once a request, all passes leave {_amount(with_user.flops)}FLOP and "
               f"{_amount(with_user.bytes)}B of {_amount(without.flops)}FLOP and {_amount(without.bytes)}B: "
               f"{saved:.0%} of the FLOPs saved")


def _skipped(found: Adoption) -> Iterator[str]:
    for output, reason in found.left_out.items():
        yield f"output {output} is compared with the original, but runs in no engine: {reason}"
    if found.part is not None and found.part.front_ops:
        ops = ", ".join(f"{count} {op}" for op, count in list(found.part.front_ops.items())[:12])
        more = len(found.part.front_ops) - 12
        yield f"operations that stay in TensorFlow: {ops}{f' and {more} other kinds' if more > 0 else ''}"
    if found.measured is None:
        return
    if found.measured.stopped is not None:
        yield "pass {} and those after it: {}".format(*found.measured.stopped)
    reasons: dict[tuple[str, str], list[str]] = {}
    for step in found.measured.steps:
        if isinstance(step.cost, str):
            reasons.setdefault(("FLOPs", step.cost), []).append(step.name)
        for lane, result in step.lanes.items():
            if isinstance(result, str):
                reasons.setdefault((f"{lane.kind} {lane.precision}", result), []).append(step.name)
    for (what, reason), steps in reasons.items():
        yield f"{what}: {'every step' if len(steps) == len(found.measured.steps) else ', '.join(steps)}: {reason}"
    if found.options.quick and len(found.measured.steps) > 2:
        yield "steps between the plain graph and the last pass: not run, as --quick asks"


def _plots(found: Adoption) -> str:
    if found.measured is None:
        return ""
    stock, steps = found.measured.stock, found.measured.steps
    times = [("stock", [(stock.ms, USER_COLOUR)])]
    times += [(f"{c.lane.kind} {c.lane.precision}{'' if c.graph == PLAIN else ', passes'}",
               [(c.result.speed.ms, ITEM_COLOUR)]) for c in choices(found.measured)]
    drawn = f"<h2>Milliseconds a request</h2>{bars('milliseconds', times, max(p[0][0] for _, p in times))}"
    costs = [(step.name, step.cost) for step in steps if isinstance(step.cost, Cost)]
    for title, name, scale in (("MFLOP", "flops", 1e-6), ("MB moved", "bytes", 1e-6)):
        parts = [(step, [(getattr(c, f"{name}_user") * scale, USER_COLOUR),
                         (getattr(c, f"{name}_item") * scale, ITEM_COLOUR)]) for step, c in costs]
        if parts:
            drawn += f"<h3>{title}</h3>{bars(title, parts, max(sum(v for v, _ in row) for _, row in parts))}"
    return drawn + COLOURS


def _amount(value: float) -> str:
    for scale, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:.3g} {prefix}"
    return f"{value:.3g} "
