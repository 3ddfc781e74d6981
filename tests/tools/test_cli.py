"""The command line: help everywhere, light start, exit codes and one-line errors."""

import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from tools import bench
from tools.bench.figures import figure
from tools.cli import app
from tools.rank_once import parse_ids, parse_inputs

COMMANDS = ["serve", "rank", "demo", "push", "doctor", "bench", "config", "config check"]


def invoke(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    result = invoke(*command.split(), "--help")
    assert result.exit_code == 0 and "Usage" in result.output
    assert "Examples" in result.output or command == "config"


def test_help_loads_neither_numpy_nor_grpc():
    code = "import sys, tools.cli; print({'numpy', 'grpc', 'pydantic', 'pyarrow'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stdout.strip() == "set()", result.stderr


def test_bench_lists_what_there_is_and_refuses_the_rest(monkeypatch):
    monkeypatch.setattr(bench, "names", lambda: ["lookup"])
    result = invoke("bench", "nothing")
    assert result.exit_code == 2 and "there are: lookup" in result.output


def test_bench_below_target_still_exits_0(monkeypatch, tmp_path):
    class Module:
        """A benchmark that misses its target."""

        @staticmethod
        def run(quick):
            return [figure(f"demo.speed/quick={quick}", [1.0], "x", target=2.0)]

    monkeypatch.setattr(bench, "BENCHMARKS", {"demo": "tools.bench.figures"})
    monkeypatch.setattr("importlib.import_module", lambda name: Module)
    path = tmp_path / "out.json"
    result = invoke("bench", "demo", "--quick", "--json", str(path))
    assert result.exit_code == 0 and "not met" in result.output
    assert "demo.speed/quick=True" in path.read_text()


def test_ids_are_numbers_and_ranges_of_64_bits():
    assert parse_ids("5, 7,100-102").tolist() == [5, 7, 100, 101, 102]
    assert parse_ids("-3,18446744073709551615").tolist() == [-3, -1]
    assert parse_ids("1").dtype == np.int64


@pytest.mark.parametrize("text", ["", "a", "1-", "1-2-3", "5-3", "0-9999999999"])
def test_bad_ids_are_named(text):
    with pytest.raises(ValueError, match="candidates"):
        parse_ids(text)


def test_formula_inputs_are_names_and_numbers():
    assert parse_inputs(["bid=1.5", "weight=2"]) == {"bid": 1.5, "weight": 2.0}
    for text in ("bid", "bid=x", "=1"):
        with pytest.raises(ValueError, match="NAME=NUMBER"):
            parse_inputs([text])


def test_rank_without_a_server_ends_in_one_line():
    nobody = ("--server", "127.0.0.1:1", "--timeout-ms", "500")
    result = invoke("rank", "demo", "--user", "1", "--candidates", "1-3", *nobody)
    assert result.exit_code == 1
    assert result.output.startswith("lambda-svc: ") and "Traceback" not in result.output


def test_config_check_names_the_problem(tmp_path):
    path = tmp_path / "service.yaml"
    path.write_text("repository: nowhere\nscenarios: {}\n")
    result = invoke("config", "check", str(path))
    assert result.exit_code == 1 and "scenarios" in result.output


def test_push_of_nothing_is_refused_in_one_line(tmp_path):
    result = invoke("push", str(tmp_path / "absent"), str(tmp_path))
    assert result.exit_code == 1 and result.output.startswith("lambda-svc: not pushed: ")
