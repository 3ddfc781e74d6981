"""Figures, their verdicts and their JSON, and variants that run in turn."""

import json

import pytest
from rich.console import Console

from tools.bench.figures import Figure, Report, figure, host_line, interleave, missing, render, write_json


def text_of(report: Report, width: int = 200) -> str:
    console = Console(width=width, record=True)
    console.print(render(report))
    return console.export_text()


def test_variants_run_in_turn_and_the_warmup_is_forgotten():
    order = []

    def variant(name, values):
        return lambda: order.append(name) or values.pop(0)

    result = interleave({"a": variant("a", [9.0, 1.0, 2.0]), "b": variant("b", [9.0, 4.0, 6.0])}, rounds=2)
    assert order == ["a", "b"] * 3
    assert result.samples == {"a": (1.0, 2.0), "b": (4.0, 6.0)}
    assert result.ratios("b", of="a") == (4.0, 3.0)
    assert result.median("b") == 5.0


def test_a_variant_without_a_number_is_timed():
    result = interleave({"a": lambda: None}, rounds=3)
    assert len(result.samples["a"]) == 3 and all(0 <= seconds < 1 for seconds in result.samples["a"])


def test_interleave_refuses_nothing_to_run():
    with pytest.raises(ValueError, match="at least one variant"):
        interleave({}, rounds=1)


def test_a_figure_is_the_median_with_its_spread_scaled():
    result = figure("a.b_ms/n=1", [0.003, 0.001, 0.002], "ms", better="lower", target=2.5, scale=1e3)
    assert (result.value, result.min, result.median, result.max) == (2.0, 1.0, 2.0, 3.0)
    assert result.met is True


@pytest.mark.parametrize(("better", "value", "met"), [
    ("higher", 2.0, True), ("higher", 1.9, False), ("lower", 2.0, True), ("lower", 2.1, False),
])
def test_the_target_is_judged_on_the_better_side(better, value, met):
    assert Figure("a", value, "x", better, target=2.0).met is met


def test_the_table_says_what_was_missed_and_what_is_missing():
    report = Report("demo", "some host", (
        figure("slow", [1.0], "x", of="peer", target=2.0), missing("peer", "ids/s", "pip install the-peer"),
    ))
    text = text_of(report)
    assert "not met" in text and "missing: pip install the-peer" in text and "some host" in text


def test_no_name_is_broken_at_80_columns():
    name, of = "rank.outside_engine_ms/n=1682,beside=quiet", "lookup.ms/dict_and_numpy/rows=0.2M"
    report = Report("demo", "some host", (figure(name, [11e6, 14e6], "ids/s", of=of, target=2e6),))
    lines = text_of(report, width=80).splitlines()
    assert any(line.startswith(name) for line in lines) and any(line.strip().endswith(of) for line in lines)
    assert any("11,000,000 .. 14,000,000" in line and line.endswith(">= 2,000,000 met") for line in lines), lines


def test_the_json_has_the_fields_of_the_contract(tmp_path):
    path = tmp_path / "figures.json"
    write_json(path, [Report("demo", "some host", (figure("a", [1.0, 2.0], "ms", of="b"),))])
    document = json.loads(path.read_text())
    assert document["host"] == "some host"
    fields = {"name", "value", "unit", "of", "better", "target", "min", "median", "max"}
    assert fields <= document["figures"][0].keys()
    assert document["figures"][0]["of"] == "b"


def test_the_host_line_does_not_name_the_host():
    import socket
    assert socket.gethostname() not in host_line()
    assert "cores" in host_line() and "GiB" in host_line()
