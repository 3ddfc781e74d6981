"""`lambda-svc status`: what a server's status page shows, as tables in the terminal or as JSON."""

from __future__ import annotations

import json
import re
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["run"]

TIMEOUT_S = 10
BYTES_MAX = 16 << 20
_STYLES = {"serving": "green", "loading": "yellow", "failed": "red", "running": "yellow", "promoted": "green",
           "rolled_back": "red", "aborted": "red"}


def run(target: str, as_json: bool) -> int:
    """Asks the HTTP port at HOST:PORT and prints; returns the exit code: 0 ready, 1 not ready, 2 not to be had."""
    try:
        document = fetch(target)
    except ValueError as error:
        typer.echo(f"lambda-svc: {error}", err=True)
        return 2
    if as_json:
        typer.echo(json.dumps(document, indent=1))
    else:
        show(document, Console())
    return 0 if document["ready"] else 1


def fetch(target: str) -> dict[str, Any]:
    """The status document of a server. Raises ValueError saying what is wrong with the address or with what came."""
    match = re.fullmatch(r"(?:[^\s:/@]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})", target)
    if match is None or not 1 <= int(match.group(1)) <= 65_535:
        raise ValueError(f"got {target!r}; expected HOST:PORT of server.http, such as 127.0.0.1:8501")
    try:
        with build_opener(ProxyHandler({})).open(f"http://{target}/status.json", timeout=TIMEOUT_S) as answer:
            document = json.loads(answer.read(BYTES_MAX))
    except HTTPError as error:
        raise ValueError(f"{target} answers {error.code}; is it server.http of lambda-svc?") from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise ValueError(f"no status at {target} ({reason}); server.http says where it is served") from None
    except ValueError:
        document = None
    if not isinstance(document, dict) or "scenarios" not in document:
        raise ValueError(f"{target} answers something else than a status; is it server.http of lambda-svc?")
    return document


def show(document: dict[str, Any], console: Console) -> None:
    """Prints the tables."""
    process = document["process"]
    state = Text("ready", "green") if document["ready"] else Text(f"not ready: {document['unready']}", "red")
    rss = "" if process["rss_bytes"] is None else f", {process['rss_bytes'] / 2**20:,.0f} MiB"
    wait = process["interpreter_wait_p99_ms"]
    console.print(Text.assemble("lambda-svc ", document["listen"], "  ", state,
                                f"  up {document['uptime_s']:,.0f} s, {process['cpu_s']:,.1f} s of CPU{rss}",
                                "" if wait is None else f", interpreter wait p99 {wait:g} ms",
                                "" if document["epoch"] is None else f", epoch {document['epoch']}"))
    console.print(_table(f"scenarios, last {document['window_s']:.0f} s",
                         ["scenario", "model", "serves", "split", "#req/s", "#errors", "#p50 ms", "#p99 ms",
                          "#waiting", "#refused", "#expired"], map(_scenario, document["scenarios"])))
    console.print(_table("model versions", ["model", "#version", "state", "reason", "#next try"],
                         map(_version, document["versions"])))
    errors = [[one["scenario"], code, count] for one in document["scenarios"] if one["recent"]
              for code, count in sorted(one["recent"]["errors"].items())]
    errors += [["", code, count] for code, count in sorted(document["refused"].items())]
    if errors:
        console.print(_table("errors", ["scenario", "status", "#requests"], errors))
    if document["rollouts"]:
        console.print(_table("rollouts", ["scenario", "#version", "state", "#share", "reason"],
                             ([one["scenario"], one["version"], _state(one["state"]), f"{one['share']:.1%}",
                               one["reason"]] for one in document["rollouts"])))


def _scenario(one: dict[str, Any]) -> list[Any]:
    recent, queue, split = one["recent"], one["queue"], one["split"]
    spent = [f"{recent['per_second']:.3g}", sum(recent["errors"].values()),
             *("" if recent[name] is None else f"{recent[name]:.3g}" for name in ("p50_ms", "p99_ms"))] \
        if recent else [0, 0, "", ""]
    return [one["scenario"], one["model"], "none" if one["version"] is None else one["version"],
            "" if split is None else f"{split['share']:.1%} to {split['version']}", *spent,
            *([queue["waiting"], queue["refused"], queue["expired"]] if queue else ["", "", ""])]


def _version(one: dict[str, Any]) -> list[Any]:
    again = f"{one['retry_in_s']:.0f} s" if one["state"] == "failed" else ""
    return [one["model"], one["version"], _state(one["state"]), one["reason"], again]


def _state(state: str) -> Text:
    return Text(state, _STYLES.get(state, ""))


def _table(title: str, heads: list[str], rows) -> Table:
    """Heads that begin with # are of numbers. Cells are texts, whatever markup they may hold."""
    table = Table(title=title, title_justify="left")
    for head in heads:
        table.add_column(head.removeprefix("#"), justify="right" if head.startswith("#") else "left",
                         overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(_printable(cell)) for cell in row))
    return table


def _printable(value: Any) -> str:
    """Without what a terminal would obey."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value))
