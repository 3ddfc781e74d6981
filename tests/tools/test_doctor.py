"""The doctor: every check reports, JSON and table agree, and what is missing sets the exit code."""

import json

import pytest

from tools import doctor
from tools.doctor import Finding


def test_every_check_finds_something_on_this_machine():
    for check in doctor.CHECKS:
        findings = list(check())
        assert findings, check.__name__
        for finding in findings:
            assert finding.advice or finding.status == "ok", finding


def test_the_service_can_run_here(capsys):
    assert doctor.run(as_json=True) == 0
    names = {item["name"] for item in json.loads(capsys.readouterr().out)}
    assert {"allocator", "cores", "instruction set used", "tensorflow library", "transparent huge pages"} <= names


def test_a_failure_sets_the_exit_code_and_shows_its_advice(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "CHECKS", (lambda: [Finding("core", "gone", "fail", "build it")],))
    assert doctor.run(as_json=False) == 1
    out = capsys.readouterr().out
    assert "build it" in out and "The service cannot run here" in out.splitlines()[-1]


@pytest.mark.parametrize(("finding", "end"), [
    (Finding("pages", "never [madvise]", "warn", "echo"), "1 of 1 findings could be better, see warn."),
    (Finding("pages", "[madvise]"), "1 findings, nothing to mend."),
])
def test_the_last_line_sums_up_and_no_column_is_empty(monkeypatch, capsys, finding, end):
    monkeypatch.setattr(doctor, "CHECKS", (lambda: [finding],))
    assert doctor.run(as_json=False) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == f"The service can run here; {end}"
    assert ("what to do" in out) == bool(finding.advice) and "[madvise]" in out


def test_a_missing_tensorflow_is_a_failure(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (finding,) = doctor.tensorflow_library()
    assert finding.status == "fail" and "pip install" in finding.advice


def test_a_library_that_does_not_open_is_named(monkeypatch, tmp_path):
    for part in ("cc", "framework"):
        (tmp_path / f"libtensorflow_{part}.so.2").write_text("not a library")
    spec = type("Spec", (), {"submodule_search_locations": [str(tmp_path)]})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    (finding,) = doctor.tensorflow_library()
    assert finding.status == "fail" and "libtensorflow" in finding.value
