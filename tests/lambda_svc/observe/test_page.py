"""The status page and document: complete, and deaf to what hostile names would have a browser do."""

from __future__ import annotations

import dataclasses
import json
import threading
from html.parser import HTMLParser

import pytest

from lambda_svc.errors import NotFound
from lambda_svc.lifecycle import VersionStatus
from lambda_svc.observe.page import render
from lambda_svc.proto import ranking_pb2 as pb
from tests.lambda_svc.live_worlds import until
from tests.lambda_svc.world import MODEL, World

EVIL = "<script>alert('x')</script>\"onload=\"alert(1)&amp;"
VOID = {"meta", "br", "link", "img", "input", "hr"}


class Parsed(HTMLParser):
    """Elements with their attributes and the text in each kind; asserts that every element is closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.cells: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag in ("td", "dd", "h2"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if {"td", "dd", "h2"} & set(self._open):
            self.cells[-1] += data


def hostile(document: dict) -> dict:
    """The document with every text in it replaced, but for the states, which are our own."""
    def swap(value, key=""):
        if isinstance(value, dict):
            return {EVIL if key in ("labels", "errors") else name: swap(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [swap(inner) for inner in value]
        return EVIL if isinstance(value, str) else value

    return swap(document)


def test_a_page_of_hostile_names_has_no_scripts_and_no_attributes_of_theirs(observe):
    document = observe(extra=f"models: {{{MODEL}: {{labels: {{stable: 1}}}}}}\n").status()
    document["scenarios"][0]["recent"] = {"per_second": 1.0, "errors": {"INTERNAL": 1}, "p50_ms": 1.0, "p99_ms": 2.0,
                                          "stages_us": {"run": [1.0, 2.0, 3.0]}}
    document["scenarios"][0]["split"] = {"version": 2, "share": 0.25}
    document |= {"ready": False, "unready": "starting", "refused": {"UNAVAILABLE": 2}, "version": "1.0"}
    failed = VersionStatus(MODEL, 2, "failed", "reason", 3, 4.0)
    document["versions"].append(dataclasses.asdict(failed))
    document["rollouts"] = [{"scenario": "rank", "version": 2, "state": "rolled_back", "shadow": False, "share": 0.05,
                             "reason": "drift", "stable_requests": 10, "trial_requests": 3}]
    page = render(hostile(document)).decode()
    parsed = Parsed(page)
    assert {tag for tag, _ in parsed.elements} <= {
        "html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "span", "a", "dl", "div", "dt", "dd",
        "table", "thead", "tbody", "tr", "th", "td", "p"}
    assert not [attributes for _, attributes in parsed.elements if any(name.startswith("on") for name in attributes)]
    links = {attributes["href"] for tag, attributes in parsed.elements if tag == "a"}
    assert links == {"/?refresh=off", "/status.json", "/metrics"}
    assert "<script" not in page and "alert(" in page
    for cell in (EVIL, f"{EVIL} 1", "25.0% to 2"):
        assert cell in parsed.cells


def test_the_page_and_the_document_tell_what_serves_and_why_a_version_failed(observe):
    observed = observe(extra=f"models: {{{MODEL}: {{labels: {{shown: 1}}}}}}\n")
    World().write_package(observed.home / "repository", version=2)
    damaged = observed.home / "repository" / MODEL / "2" / "graph/item.pb"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    observed.client.rank("rank", 1, list(World().items)[:10])
    with pytest.raises(NotFound):
        observed.client.rank("rank", 1, [1], version=9)
    observed.keeper.look()
    status = observed.status()
    assert [(v["version"], v["state"]) for v in status["versions"]] == [(1, "serving"), (2, "failed")]
    assert "graph/item.pb: damaged" in status["versions"][1]["reason"] and status["versions"][1]["attempts"] == 1
    [scenario] = status["scenarios"]
    assert (scenario["scenario"], scenario["model"], scenario["version"]) == ("rank", MODEL, 1)
    assert scenario["labels"] == {"shown": 1} and scenario["split"] is None
    assert scenario["recent"]["errors"] == {"NOT_FOUND": 1}
    assert 0 < scenario["recent"]["p50_ms"] <= scenario["recent"]["p99_ms"]
    assert status["ready"] and status["epoch"] is None
    code, text = observed.get("/")
    page = Parsed(text)
    assert code == 200 and ("meta", {"http-equiv": "refresh", "content": "5"}) in page.elements
    assert any("graph/item.pb: damaged" in cell for cell in page.cells)
    assert {"rank", MODEL, "failed", "NOT_FOUND", "shown 1", "engine"} - {"engine"} <= set(page.cells)
    held = Parsed(observed.get("/?refresh=off")[1])
    assert not [1 for tag, attributes in held.elements if attributes.get("http-equiv") == "refresh"]
    assert observed.metric("lambda_svc_model_versions", model=MODEL, state="failed") == 1


def test_status_is_plain_json_with_nothing_but_itself(observe):
    observed = observe()
    text = observed.get("/status.json")[1]
    assert json.loads(text)["scenarios"][0]["recent"] is None
    assert str(observed.home) not in text


def test_health_and_readiness_before_the_models_during_serving_and_while_draining(observe):
    observed = observe(server=", drain_s: 60")
    assert observed.get("/healthz") == (200, "alive\n") and observed.get("/readyz") == (200, "ready\n")
    observer = observed.observation.observer
    routes, observer.routes = observer.routes, {}
    assert observed.get("/readyz") == (503, "not ready: no version serves rank\n")
    observer.routes = routes
    request = pb.RankRequest(scenario="rank", user_id=1, candidate_ids=bytes(80))
    stopping = threading.Thread(target=observed.server.stop)
    with observed.server.ranking.plan("rank").model.streams.acquire():
        accepted = []
        asking = threading.Thread(target=lambda: accepted.append(observed.client.call(request, 60)))
        asking.start()
        until(lambda: observed.server.ranking.stats()["rank"].waiting == 1)
        stopping.start()
        until(lambda: observed.get("/readyz")[0] != 200)
        assert stopping.is_alive() and not accepted, "the port is still open, and what was accepted still runs"
        assert observed.get("/readyz") == (503, "not ready: starting or draining\n")
        assert observed.get("/healthz")[0] == 200
        assert observed.metric("lambda_svc_ready") == 0
    asking.join()
    stopping.join()
    assert len(accepted[0].candidate_ids) == 80


def test_two_servers_in_a_process_do_not_share_counts(observe):
    first, second = observe(), observe()
    first.client.rank("rank", 1, [1, 2])
    assert first.metric("lambda_svc_requests_total") == 1
    assert "lambda_svc_requests_total{" not in second.get("/metrics")[1]
