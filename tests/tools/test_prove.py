"""`make prove` resumes: what is done for a commit is not run again, a failure does not stop the rest."""

import re

from tools.bench import BENCHMARKS
from tools.prove import CHECKOUT, STEPS, Step, run_steps


def outcomes(folder, commit, steps, **options):
    return {step.name: outcome for step, outcome in run_steps(steps, folder, commit, **options)}


def test_a_step_runs_once_per_commit_and_leaves_its_log(tmp_path):
    step = Step("count", "counts its runs", 'echo run >> "$PROVE/runs"; echo said')
    assert outcomes(tmp_path, "a", [step])["count"].startswith("passed")
    assert outcomes(tmp_path, "a", [step])["count"].startswith("done before")
    assert (tmp_path / "runs").read_text() == "run\n"
    assert outcomes(tmp_path, "b", [step])["count"].startswith("passed")
    assert outcomes(tmp_path, "b", [step], again=True)["count"].startswith("passed")
    assert (tmp_path / "runs").read_text() == "run\n" * 3
    assert (tmp_path / "count.log").read_text() == "said\n"


def test_a_failed_step_is_tried_again_and_does_not_stop_others(tmp_path):
    steps = [Step("bad", "fails", "echo why; exit 3"), Step("good", "passes", ":")]
    for _ in range(2):
        found = outcomes(tmp_path, "a", steps)
        assert found["bad"].startswith("failed with 3")
        assert found["good"].split()[0] in ("passed", "done")
    assert "why" in (tmp_path / "bad.log").read_text()


def test_a_failure_within_a_pipe_counts(tmp_path):
    assert outcomes(tmp_path, "a", [Step("pipe", "fails", "false | cat")])["pipe"].startswith("failed")


def test_every_step_names_what_exists():
    commands = [step.command for step in STEPS]
    assert {name for command in commands for name in re.findall(r"bench (\w+)", command)} == set(BENCHMARKS)
    paths = [path for command in commands for path in re.findall(r"\b(?:tests|tools)/[\w/.]+", command)]
    assert paths and all((CHECKOUT / path).exists() for path in paths)
