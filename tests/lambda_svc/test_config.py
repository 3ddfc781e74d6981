"""Every problem of a config at once, each with its path."""

from __future__ import annotations

import pytest

from lambda_svc import config as config_file
from lambda_svc.errors import ConfigError
from tests.lambda_svc.world import config_text


def problems(tmp_path, text: str) -> list[str]:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return config_file.check(path)


def test_a_good_file_has_no_problems_and_paths_are_beside_it(world_dir, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert config_file.check(world_dir / "config.yaml") == []
    config = config_file.load(world_dir / "config.yaml")
    assert config.repository == world_dir / "repository" and config.work_dir == world_dir / "run"


def test_every_problem_at_once_with_its_path(tmp_path):
    found = problems(tmp_path, """
repository: 5
server: {listen: nowhere, rpc_threads: 0, colour: red}
scenarios:
  rank: {model: m, formula: liked, slice_rows: 100, candidates_max: 0, version: newest}
  "no spaces": {model: m, formula: liked}
  empty: {}
""")
    paths = {line.split(":")[0] for line in found}
    for path in (
        "repository", "server.listen", "server.rpc_threads", "server.colour", "scenarios.rank.slice_rows",
        "scenarios.rank.candidates_max", "scenarios.empty.model", "scenarios.empty.formula",
    ):
        assert path in paths, (path, found)
    assert any(line.startswith("scenarios.no spaces") for line in found)
    assert any(line.startswith("scenarios.rank.version") and "'newest'" in line for line in found)


@pytest.mark.parametrize("text,expected", [
    ("", "expected a mapping"), ("[1, 2]", "expected a mapping"), ("a: [", "not YAML"), ("\x00", "not YAML"),
])
def test_what_is_no_config_at_all(tmp_path, text, expected):
    assert expected in problems(tmp_path, text)[0]


def test_missing_files_and_models_are_named(tmp_path, world_dir):
    assert "no such folder" in problems(tmp_path, config_text(tmp_path))[0]
    (tmp_path / "repository").mkdir()
    found = problems(tmp_path, config_text(tmp_path))
    assert len(found) == 2 and all("no such file" in line for line in found)
    text = config_text(world_dir, model="other").replace("run", "run2")
    path = world_dir / "other.yaml"
    path.write_text(text)
    assert "no version of 'other'" in config_file.check(path)[0] and "lambda-svc push" in config_file.check(path)[0]


@pytest.mark.parametrize("formula", ["liked +", "likd", "liked * bid", "pow(liked)", "((((", "1 ~ 2"])
def test_an_invalid_formula_is_found_before_serving(world_dir, formula):
    path = world_dir / "formula.yaml"
    path.write_text(config_text(world_dir, formula=f'"{formula}"'))
    assert config_file.check(path)[0].startswith("scenarios.rank.formula")
    with pytest.raises(ConfigError, match="scenarios.rank.formula"):
        config_file.load(path)


def test_refusing_unknown_candidates_needs_something_to_know_them_by(world_dir):
    path = world_dir / "refuse_blindly.yaml"
    text = config_text(world_dir, unknown_candidates="refuse").replace("item_features: {path: items.parquet}\n", "")
    path.write_text(text)
    [problem] = config_file.check(path)
    assert problem.startswith("scenarios.rank.unknown_candidates: refuse needs item_features")


def test_a_missing_config_says_so(tmp_path):
    assert "cannot be read" in config_file.check(tmp_path / "none.yaml")[0]
