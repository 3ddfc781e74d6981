"""`zoo report`: every pass and engine has its row, and what was skipped says why."""

import re

import numpy as np
import pytest
from typer.testing import CliRunner

from lambda_svc.errors import EngineUnavailable
from models import zoo
from models.errors import GraphError
from models.passes import PASSES, apply
from tools.cli import app
from tools.engines import report as reports
from tools.engines.report_text import html, markdown
from tools.engines.request import DenseRequest, Lane


def test_the_command_writes_both(tmp_path):
    done = CliRunner().invoke(app, ["zoo", "report", "din", str(tmp_path), "--size", "small", "--candidates", "50"])
    assert done.exit_code == 0, done.output
    text, page = (tmp_path / "din_small.md").read_text(), (tmp_path / "din_small.html").read_text()
    rows = [line.split(" | ")[0].strip("| ") for line in text.splitlines() if line.startswith("| ")]
    assert rows[1:12] == ["plain", *PASSES]
    assert not re.search(r"src=|href=|http|<script", page), "readable without a network"
    for tag in ("svg", "text", "table", "tr", "td", "th", "h2", "h3"):
        assert len(re.findall(f"<{tag}[ >]", page)) == page.count(f"</{tag}>") > 0
    assert page.count("<svg") >= 2 and all(page.count(f">{name}<") >= 3 for name in PASSES)


def test_what_is_skipped_says_why(monkeypatch):
    class Lacking(DenseRequest):
        def __init__(self, dense, feeds, lane, slice_rows=0):
            if lane.kind == "openvino":
                raise EngineUnavailable("OpenVINO's <library> was not found")
            super().__init__(dense, feeds, lane, slice_rows)

    monkeypatch.setattr(reports, "DenseRequest", Lacking)
    plain, feeds = zoo.dense("two_tower", "small")
    found = reports.measure_report("two_tower", plain, feeds(20, np.random.default_rng(0)), 20)
    text, page = markdown(found), html(found)
    assert "* openvino f32: every step: OpenVINO's <library> was not found" in text and "| skipped |" in text
    assert "&lt;library&gt;" in page and "<library>" not in page and "openvino" not in page.split("<h2>Passes")[0]


@pytest.mark.parametrize("name, message", [("dim", "did you mean 'din'?"), ("1234", "there are two_tower")])
def test_a_model_that_is_not_there(tmp_path, name, message):
    done = CliRunner().invoke(app, ["zoo", "report", name, str(tmp_path / "out")])
    assert done.exit_code == 1 and message in done.output and not (tmp_path / "out").exists()


def test_a_pass_that_cannot_read_the_graph_ends_the_chain_and_is_named(monkeypatch):
    def refusing(dense, names):
        if "merge_parallel" in names:
            raise GraphError("a loop in 'while'")
        return apply(dense, names)

    monkeypatch.setattr(reports, "apply", refusing)
    monkeypatch.setattr(reports, "lanes", lambda: (Lane("tensorflow", "f32"),))
    plain, feeds = zoo.dense("two_tower", "small")
    found = reports.measure_report("two_tower", plain, feeds(20, np.random.default_rng(0)), 20)
    assert [step.name for step in found.steps] == ["plain", *list(PASSES)[:list(PASSES).index("merge_parallel")]]
    assert "* pass merge_parallel and those after it: a loop in 'while'" in markdown(found)
    assert "a loop in" in html(found)


def test_export_publishes_and_prints_the_report(tmp_path, monkeypatch):
    monkeypatch.setattr(reports, "lanes", lambda: (Lane("tensorflow", "f32"),))
    arguments = ["export", "two_tower", "--size", "small", "--out", str(tmp_path / "models"), "--report",
                 str(tmp_path / "report"), "--candidates", "20"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "models" / "two_tower_small" / "1" / "manifest.json").is_file()
    assert (tmp_path / "report" / "two_tower_small.md").read_text() in done.output
    assert (tmp_path / "report" / "two_tower_small.html").is_file()
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 1 and "not exported" in again.output
