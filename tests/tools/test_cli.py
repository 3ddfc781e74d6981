"""The command line: help everywhere, light start, exit codes and one-line errors."""

import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from lambda_svc.client import RankAnswer
from lambda_svc.errors import DeadlineExceeded, Unavailable
from lambda_svc.proto import ranking_pb2 as pb
from tools import bench, rank_once
from tools.bench.figures import figure
from tools.cli import app
from tests.models import package_fixture
from tools.rank_once import parse_ids, parse_inputs

COMMANDS = ["serve", "rank", "demo", "push", "doctor", "bench", "export", "adopt", "config", "config check", "zoo",
            "zoo export", "zoo report", "zoo table"]


def invoke(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    result = invoke(*command.split(), "--help")
    assert result.exit_code == 0 and "Usage" in result.output
    assert "Examples" in result.output


def test_the_whole_command_explains_itself():
    result = invoke("--help")
    assert result.exit_code == 0 and "A recommendation ranking engine" in result.output
    assert "Examples" in result.output and "lambda-svc serve service.yaml" in result.output
    assert "Usage" in invoke().output


def test_the_version_is_an_option_and_a_command(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"1.2.3 of {name}")
    for asked in ("--version", "version"):
        result = invoke(asked)
        assert (result.exit_code, result.output) == (0, "1.2.3 of lambda-svc\n")


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


def refused(*arguments: str) -> str:
    """The one line of a command that must fail with exit code 1."""
    result = invoke(*arguments)
    assert result.exit_code == 1 and result.output.count("\n") == 1, result.output
    return result.output.strip()


def rank_arguments(**changes: str) -> list[str]:
    options = {"user": "1", "candidates": "1-3", "server": "127.0.0.1:1", "timeout-ms": "500"} | changes
    return ["rank", "demo", *(part for name, value in options.items() for part in (f"--{name}", value))]


def test_rank_without_a_server_says_how_to_get_one():
    assert refused(*rank_arguments()) == (
        "lambda-svc: no server at 127.0.0.1:1; start one with `lambda-svc serve CONFIG`, or pass --server HOST:PORT"
    )


@pytest.mark.parametrize(("changes", "expected"), [
    ({"user": "99999999999999999999999"}, "--user: expected a 64-bit integer"),
    ({"user": "18446744073709551616"}, "--user: expected a 64-bit integer"),
    ({"user": "x"}, "--user: expected a 64-bit integer"),
    ({"candidates": "18446744073709551616"}, "--candidates: got '18446744073709551616'; expected ids of 64 bits"),
    ({"server": "localhost"}, "--server: got 'localhost'; expected HOST:PORT"),
    ({"server": "localhost:0"}, "--server: got 'localhost:0'; expected HOST:PORT"),
    ({"server": "localhost:99999"}, "--server: got 'localhost:99999'; expected HOST:PORT"),
    ({"server": "http://here:80"}, "--server: got 'http://here:80'; expected HOST:PORT"),
])
def test_rank_names_the_option_that_is_wrong(changes, expected):
    assert refused(*rank_arguments(**changes)).startswith(f"lambda-svc: {expected}")


class Answering:
    """A client whose server gives one known answer, or raises one known error."""

    outcome: pb.RankResponse | Exception

    def __init__(self, target: str) -> None:
        pass

    def __enter__(self) -> "Answering":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def rank(self, *_: object, **__: object) -> RankAnswer:
        """The answer, whatever was asked."""
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return RankAnswer.of(self.outcome)


def answer(flags: list[int]) -> pb.RankResponse:
    return pb.RankResponse(
        request_id="r-7",
        candidate_ids=np.array([50, 9], np.int64).tobytes(),
        positions=np.array([1, 0], np.uint32).tobytes(),
        rank_scores=np.array([0.5, np.nan]).tobytes(),
        heads=[pb.HeadScores(head="liked", scores=np.array([0.25, 0.125], np.float32).tobytes())],
        flags=bytes(flags),
        plan=pb.Plan(model="din_mmoe", version=1, engine="tensorflow 2.21.0", precision="f32", slices=7),
        coverage=[pb.Coverage(source="user", asked=5, answered=5), pb.Coverage(source="context", asked=2, answered=0),
                  pb.Coverage(source="table/item", asked=1721, answered=1655)],
        reasons=[pb.Reason(code="unknown_user", count=1)],
        times=pb.StageTimes(parse_us=20, run_us=1_234),
    )


def test_rank_shows_plan_coverage_reasons_and_times_in_words(monkeypatch):
    monkeypatch.setattr(rank_once, "RankingClient", Answering)
    monkeypatch.setattr(Answering, "outcome", answer([3, 0]), raising=False)
    result = invoke(*rank_arguments())
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    for line in (
        "request   r-7",
        "plan      din_mmoe version 1 on tensorflow 2.21.0 f32, 7 slices",
        "coverage  user 5/5, context 0/2, table/item 1655/1721",
        "reasons   unknown_user 1",
    ):
        assert line in lines, result.output
    assert lines[-1].startswith("times     parse 0.02, ") and "run 1.23, " in lines[-1] and lines[-1].endswith(" ms")
    assert "flag" in result.output and "unknown NaN" in result.output


def test_rank_shows_no_flags_when_there_are_none(monkeypatch):
    monkeypatch.setattr(rank_once, "RankingClient", Answering)
    monkeypatch.setattr(Answering, "outcome", answer([0, 0]), raising=False)
    assert "flag" not in invoke(*rank_arguments()).output


@pytest.mark.parametrize(("told", "shown"), [
    ("Deadline Exceeded", ""),
    ("no answer from here within 0.5 s: allow more time", ""),
    ("the deadline passed 7 us before stage run", " (the deadline passed 7 us before stage run)"),
])
def test_a_deadline_says_the_limit_and_what_helps(monkeypatch, told, shown):
    monkeypatch.setattr(rank_once, "RankingClient", Answering)
    monkeypatch.setattr(Answering, "outcome", DeadlineExceeded(told), raising=False)
    advice = "allow more with --timeout-ms, or send fewer candidates"
    assert refused(*rank_arguments()) == f"lambda-svc: no answer within 500 ms{shown}; {advice}"


def test_a_draining_server_is_not_taken_for_none(monkeypatch):
    monkeypatch.setattr(rank_once, "RankingClient", Answering)
    monkeypatch.setattr(Answering, "outcome", Unavailable("the server is draining"), raising=False)
    assert refused(*rank_arguments()) == "lambda-svc: the server is draining"


def test_config_check_names_the_problem(tmp_path):
    path = tmp_path / "service.yaml"
    path.write_text("repository: nowhere\nscenarios: {}\n")
    result = invoke("config", "check", str(path))
    assert result.exit_code == 1 and "scenarios" in result.output


def test_push_of_nothing_is_refused_in_one_line(tmp_path):
    absent = tmp_path / "absent"
    assert refused("push", str(absent), str(tmp_path)) == f"lambda-svc: not pushed: {absent}: no such folder"


def test_push_to_where_nothing_can_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    source = package_fixture.write(tmp_path / "out")
    line = refused("push", str(source), str(tmp_path / "file"))
    assert line.startswith(f"lambda-svc: not pushed: {tmp_path / 'file'}") and "Not a directory" in line


def test_push_says_that_it_replaced_a_damaged_version(tmp_path):
    source, repository = package_fixture.write(tmp_path / "out"), tmp_path / "repository"
    assert invoke("push", str(source), str(repository)).exit_code == 0
    (repository / "tiny" / "1" / "golden.arrow").write_bytes(b"")
    result = invoke("push", str(source), str(repository))
    assert result.exit_code == 0 and "pushed" in result.output, result.output
    assert "damaged (golden.arrow: damaged: 0 bytes" in result.output and ".damaged-1-" in result.output
