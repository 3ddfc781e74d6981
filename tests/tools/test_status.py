"""`lambda-svc status`: tables and JSON of a running server, exit codes, and answers that are none."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from lambda_svc.observe.endpoint import Endpoint, Page
from tools.cli import app

DOCUMENT = {
    "ready": True, "unready": "", "listen": "127.0.0.1:8500", "version": "", "uptime_s": 3.0, "window_s": 3.0,
    "epoch": 4, "process": {"cpu_s": 1.0, "rss_bytes": 1 << 30, "interpreter_wait_p99_ms": 0.25},
    "scenarios": [{"scenario": "rank", "model": "[red]tiny[/red]", "version": 2, "versions": [1, 2], "labels": {},
                   "split": {"version": 3, "share": 0.05}, "engine": "tensorflow",
                   "queue": {"running": 0, "waiting": 7, "admitted": 1, "expired": 8, "refused": 9, "queue_max": 64},
                   "recent": {"seconds": 3.0, "per_second": 12.0, "errors": {"INTERNAL": 5}, "p50_ms": 1.25,
                              "p99_ms": 2.5, "stages_us": {}}}],
    "refused": {"UNAVAILABLE": 6}, "streams": [], "switches": 1, "last_switches": [],
    "versions": [{"model": "tiny", "version": 3, "state": "failed", "reason": "head 'liked'\x1b[2J differs",
                  "attempts": 2, "retry_in_s": 3.6}],
    "rollouts": [{"scenario": "rank", "version": 3, "state": "running", "shadow": False, "share": 0.05, "reason": "",
                  "stable_requests": 1, "trial_requests": 1}],
}


@pytest.fixture
def answered():
    """A function from a page to what the command says of it: (exit code, output)."""
    def ask(page: Page, *arguments: str) -> tuple[int, str]:
        endpoint = Endpoint("127.0.0.1:0", {"/status.json": lambda _: page})
        try:
            result = CliRunner(env={"COLUMNS": "160"}).invoke(app, ["status", f"127.0.0.1:{endpoint.port}", *arguments])
        finally:
            endpoint.stop()
        return result.exit_code, result.output

    return ask


def test_tables_tell_what_serves_and_why_not_and_obey_no_text(answered):
    code, output = answered(Page.json(DOCUMENT))
    assert code == 0
    for text in ("[red]tiny[/red]", "5.0% to 3", "1.25", "2.5", "INTERNAL", "UNAVAILABLE", "failed", "4 s", "epoch 4",
                 "1,024 MiB", "rollouts", "ready", "'liked'\N{REPLACEMENT CHARACTER}[2J differs"):
        assert text in output, output
    assert "\x1b[2J" not in output


def test_a_server_that_is_not_ready_is_exit_1(answered):
    code, output = answered(Page.json(DOCUMENT | {"ready": False, "unready": "starting or draining"}))
    assert code == 1 and "not ready: starting or draining" in output


def test_json_is_the_document_itself(answered):
    code, output = answered(Page.json(DOCUMENT), "--json")
    assert code == 0 and json.loads(output) == DOCUMENT


@pytest.mark.parametrize("page, told", [
    (Page(b"{}", "application/json"), "something else than a status"),
    (Page(b"<html>"), "something else than a status"),
    (Page(b"no", status=500), "answers 500"),
])
def test_answers_that_are_no_status_are_exit_2(answered, page, told):
    code, output = answered(page)
    assert code == 2 and told in output and "Traceback" not in output


@pytest.mark.parametrize("target, told", [("8501", "expected HOST:PORT"), ("a b:1", "expected HOST:PORT"),
                                          ("user@host:1", "expected HOST:PORT"), ("127.0.0.1:1", "no status at")])
def test_addresses_where_nothing_is_are_exit_2(target, told):
    result = CliRunner().invoke(app, ["status", target])
    assert result.exit_code == 2 and told in result.output
