"""`zoo report`: every pass and engine has its row, and what was skipped says why."""

import re

import numpy as np
import pytest
from typer.testing import CliRunner

from lambda_svc.errors import EngineUnavailable
from models import zoo
from models.passes import PASSES
from tools.cli import app
from tools.engines import report as reports
from tools.engines.request import DenseRequest


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
    text, page = reports.markdown(found), reports.html(found)
    assert "* openvino f32: every step: OpenVINO's <library> was not found" in text and "| skipped |" in text
    assert "&lt;library&gt;" in page and "<library>" not in page and "openvino" not in page.split("<h2>Passes")[0]


@pytest.mark.parametrize("name, message", [("dim", "did you mean 'din'?"), ("1234", "there are two_tower")])
def test_a_model_that_is_not_there(tmp_path, name, message):
    done = CliRunner().invoke(app, ["zoo", "report", name, str(tmp_path / "out")])
    assert done.exit_code == 1 and message in done.output and not (tmp_path / "out").exists()
