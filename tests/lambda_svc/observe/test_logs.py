"""Log lines: one for each failed request, as text or JSON, on one line whatever callers write into their fields."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest

from lambda_svc.errors import EngineError, NotFound
from lambda_svc.observe.logs import line_fields, set_up
from lambda_svc.proto import ranking_pb2 as pb

MESSAGE = pb.RankRequest(scenario="rank", user_id=1, candidate_ids=np.arange(10).tobytes(), request_id="r 1\n\"evil\"")


@pytest.fixture
def lines(capsys, request):
    """A function from a format to a function that returns the lines logged since."""
    root = logging.getLogger()
    kept, level = list(root.handlers), root.level

    def begin(log_format: str):
        set_up(log_format)
        return lambda: capsys.readouterr().err.splitlines()

    yield begin
    root.handlers[:] = kept
    root.setLevel(level)


def test_a_failed_request_is_one_line_of_text(observe, lines):
    observed = observe()
    logged = lines("text")
    with pytest.raises(NotFound):
        observed.client.call(pb.RankRequest(**{"scenario": "rank", "version": 7, "request_id": "r 1\n\"evil\""}), 5)
    observed.client.call(MESSAGE, 5)
    [line] = logged()
    told = r'WARNING lambda_svc.requests: a request failed request_id="r 1\n\"evil\"" scenario=rank code=NOT_FOUND ms='
    assert told in line
    assert 'error="version: got 7' in line


def test_lines_are_json_objects_with_the_request_in_fields(observe, lines):
    observed = observe(server=", log_format: json, log_requests: 1")
    logged = lines("json")
    observed.client.call(MESSAGE, 5)
    with pytest.raises(NotFound):
        observed.client.call(pb.RankRequest(scenario="<b>nowhere", request_id="r2"), 5)
    answered, failed = map(json.loads, logged())
    assert {name: answered[name] for name in ("level", "request_id", "scenario", "version", "code")} == {
        "level": "INFO", "request_id": MESSAGE.request_id, "scenario": "rank", "version": 1, "code": "OK"}
    assert answered["ms"] > 0 and answered["time"].endswith("+00:00")
    assert (failed["code"], failed["scenario"], failed["request_id"]) == ("NOT_FOUND", "<b>nowhere", "r2")
    assert "version" not in failed and failed["message"] == "a request failed"


def test_a_defect_brings_its_traceback_in_the_same_line(observe, lines, monkeypatch):
    observed = observe()
    logged = lines("json")

    def broken(*_):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("lambda_svc.response.build", broken)
    with pytest.raises(EngineError):
        observed.client.call(MESSAGE, 5)
    [line] = map(json.loads, logged())
    assert line["level"] == "ERROR" and line["code"] == "INTERNAL" and "ZeroDivisionError" in line["traceback"]


def test_other_lines_stay_as_they_were(lines):
    logged = lines("text")
    logging.getLogger("lambda_svc").info("ready on %s:%d", "here", 1)
    logging.getLogger("lambda_svc").info("fields", extra=line_fields(empty="", nothing=None, word="two words"))
    first, second = logged()
    assert first.endswith(" INFO lambda_svc: ready on here:1") and second.endswith(' fields word="two words"')
