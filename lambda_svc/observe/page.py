"""The status page: one document without scripts or links to elsewhere; it asks for itself anew every few seconds.

Names, reasons and everything else that came from outside pass through `_text`, and the server forbids scripts as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from typing import Any

__all__ = ["render"]

REFRESH_S = 5
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --good: #18794e; --bad: #ce2c31; --busy: #ad5700; }
@media (prefers-color-scheme: dark) { :root { --good: #3dd68c; --bad: #ff9592; --busy: #ffca16; } }
* { box-sizing: border-box; }
body { font: 14px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1.25rem; max-width: 82rem; }
h1 { font-size: 1.25rem; margin: 0; } h2 { font-size: 1rem; margin: 1.75rem 0 .5rem; }
header { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; }
header .end { margin-left: auto; } .dim { opacity: .7; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .75rem; margin: 1rem 0 0; }
.facts div { border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .75rem; }
.facts dt { opacity: .7; font-size: .85em; } .facts dd { margin: 0; font-size: 1.15rem; }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: .5rem; }
table { border-collapse: collapse; width: 100%; } tr + tr td { border-top: 1px solid var(--line); }
th, td { text-align: left; padding: .4rem .75rem; vertical-align: top; overflow-wrap: break-word; max-width: 24rem; }
th { background: var(--soft); font-weight: 600; white-space: nowrap; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.state { border: 1px solid; border-radius: 1rem; padding: 0 .6rem; white-space: nowrap; }
.serving, .ready { color: var(--good); } .failed, .not { color: var(--bad); } .loading { color: var(--busy); }
.reason { min-width: 20rem; max-width: 48rem; white-space: pre-wrap; overflow-wrap: anywhere; }
td:has(.reason) { max-width: none; }
"""


def render(document: dict[str, Any], refreshes: bool = True) -> bytes:
    """The page of a status document (lambda_svc.observe.status), UTF-8."""
    parts = [_head(document, refreshes), _facts(document), _scenarios(document), _versions(document["versions"]),
             _rollouts(document["rollouts"]), _errors(document), _stages(document["scenarios"]), _queues(document),
             _switches(document["last_switches"], document["switches"])]
    refresh = f'<meta http-equiv="refresh" content="{REFRESH_S}">' if refreshes else ""
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{refresh}'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<title>lambda-svc {_text(document["listen"])}</title><style>{_STYLE}</style></head>\n'
            f'<body>{"".join(parts)}</body></html>\n').encode()


def _text(value: Any) -> str:
    return escape(str(value), quote=True)


def _head(document: dict[str, Any], refreshes: bool) -> str:
    state = ('<span class="state ready">ready</span>' if document["ready"] else
             f'<span class="state not">not ready: {_text(document["unready"])}</span>')
    now = datetime.now(UTC).strftime("%H:%M:%S UTC")
    how = f'every {REFRESH_S} s · <a href="/?refresh=off">hold</a>' if refreshes else 'held · <a href="/">go on</a>'
    return (f'<header><h1>lambda-svc</h1>{state}<span class="dim">{_text(document["listen"])}</span>'
            f'<span class="end dim">{now} · {how} · <a href="/status.json">JSON</a> · <a href="/metrics">metrics</a>'
            '</span></header>')


def _facts(document: dict[str, Any]) -> str:
    process, rss = document["process"], document["process"]["rss_bytes"]
    rate = sum(one["recent"]["per_second"] for one in document["scenarios"] if one["recent"])
    facts = [("up", _duration(document["uptime_s"])), ("requests per second", _number(rate)),
             ("switches", document["switches"]), ("resident memory", "" if rss is None else f"{rss / 2**20:,.0f} MiB"),
             ("CPU time", f"{process['cpu_s']:,.0f} s"),
             ("interpreter wait p99", _ms(process["interpreter_wait_p99_ms"]))]
    facts += [] if document["epoch"] is None else [("epoch", document["epoch"])]
    facts += [("version", document["version"])] if document["version"] else []
    listed = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{listed}</dl>'


def _scenarios(document: dict[str, Any]) -> str:
    rows = []
    for one in document["scenarios"]:
        recent, split = one["recent"], one["split"]
        shares = "" if split is None else f"{split['share']:.1%} to {split['version']}"
        labels = ", ".join(f"{label} {version}" for label, version in one["labels"].items())
        spent = [_number(recent["per_second"]), sum(recent["errors"].values()), _ms(recent["p50_ms"]),
                 _ms(recent["p99_ms"])] if recent else ["0", 0, "", ""]
        rows.append([one["scenario"], one["model"], "none" if one["version"] is None else one["version"],
                     ", ".join(map(str, one["versions"])), labels, shares, one["engine"], *spent])
    heads = ["scenario", "model", "serves", "loaded", "labels", "split", "engine", "#requests/s", "#errors", "#p50",
             "#p99"]
    return _table(f"Scenarios · last {document['window_s']:.0f} s", heads, rows)


def _versions(versions: list[dict[str, Any]]) -> str:
    rows = []
    for one in versions:
        again = "" if one["state"] != "failed" else f"try {one['attempts'] + 1} in {_duration(one['retry_in_s'])}"
        rows.append([one["model"], one["version"], _Html(f'<span class="state {_text(one["state"])}">'
                                                         f'{_text(one["state"])}</span>'),
                     _Html(f'<div class="reason">{_text(one["reason"])}</div>'), again])
    return _table("Model versions", ["model", "#version", "state", "reason", "next"], rows)


def _errors(document: dict[str, Any]) -> str:
    rows = [[one["scenario"], code, count] for one in document["scenarios"] if one["recent"]
            for code, count in sorted(one["recent"]["errors"].items())]
    rows += [["(no scenario)", code, count] for code, count in sorted(document["refused"].items())]
    title = f"Errors · last {document['window_s']:.0f} s"
    return _table(title, ["scenario", "status", "#requests"], rows) if rows else f"<h2>{_text(title)}</h2><p>none</p>"


def _stages(scenarios: list[dict[str, Any]]) -> str:
    """A row for each scenario, a column for each stage."""
    asked = {one["scenario"]: one["recent"]["stages_us"] for one in scenarios if one["recent"]}
    names = list(dict.fromkeys(name for stages in asked.values() for name in stages))
    rows = [[scenario, *(" / ".join(_ms(us / 1e3) for us in stages[name][:2]) if name in stages else ""
                         for name in names)] for scenario, stages in asked.items()]
    return _table("Stages · p50 / p99", ["scenario", *(f"#{name}" for name in names)], rows) if names else ""


def _queues(document: dict[str, Any]) -> str:
    rows = [[one["scenario"], one["queue"]["running"], f"{one['queue']['waiting']} of {one['queue']['queue_max']}",
             one["queue"]["admitted"], one["queue"]["refused"], one["queue"]["expired"]]
            for one in document["scenarios"] if one["queue"]]
    heads = ["scenario", "#running", "#waiting", "#admitted", "#refused", "#expired"]
    streams = [[one["model"], f"{one['busy']} of {one['streams']}", one["waiting"], one["acquired"], one["waited"],
                _ms(one["wait_us_max"] / 1e3)] for one in document["streams"]]
    stream_heads = ["model", "#streams busy", "#waiting", "#runs", "#that waited", "#longest wait"]
    return ((_table("Queues · since the start", heads, rows) if rows else "") +
            (_table("Streams · since the start", stream_heads, streams) if streams else ""))


def _rollouts(rollouts: list[dict[str, Any]]) -> str:
    rows = [[one["scenario"], one["version"], one["state"], "beside" if one["shadow"] else f"{one['share']:.1%}",
             one["stable_requests"], one["trial_requests"], one["reason"]] for one in rollouts]
    heads = ["scenario", "#version", "state", "#share of users", "#requests of stable", "#of the version", "reason"]
    return _table("Rollouts", heads, rows) if rows else ""


def _switches(switches: list[dict[str, Any]], total: int) -> str:
    rows = [[datetime.fromtimestamp(one["time_s"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC"), one["scenario"],
             "start" if one["before"] is None else one["before"], one["after"]] for one in switches]
    return _table(f"Last switches · {total} in all", ["time", "scenario", "#from", "#to"], rows) if rows else ""


class _Html(str):
    """Markup, already safe."""


def _table(title: str, heads: Iterable[str], rows: Iterable[list[Any]]) -> str:
    """Heads that begin with # are of numbers, which stand to the right."""
    kinds = [' class="n"' if head.startswith("#") else "" for head in heads]
    top = "".join(f"<th{kind}>{_text(head.removeprefix('#'))}</th>" for head, kind in zip(heads, kinds, strict=True))
    lines = "".join("<tr>" + "".join(f"<td{kind}>{cell if isinstance(cell, _Html) else _text(cell)}</td>"
                                     for cell, kind in zip(row, kinds, strict=True)) + "</tr>\n" for row in rows)
    return (f'<h2>{_text(title)}</h2><div class="wide"><table><thead><tr>{top}</tr></thead>'
            f"<tbody>{lines}</tbody></table></div>\n")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ms(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value * 1e3:.0f} µs" if value < 1 else f"{value:.3g} ms" if value < 100 else f"{value:,.0f} ms"


def _duration(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} d"
