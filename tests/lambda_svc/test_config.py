"""Every problem of a config at once, each with its path."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
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
    assert len(found) == 3 and sum("no such file" in line for line in found) == 2
    assert any("no version of 'tiny'" in line for line in found)
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


def test_a_problem_hides_no_other_kind_of_problem(tmp_path, world_dir):
    found = problems(tmp_path, f"""
repository: {world_dir / "repository"}
server: {{listen: nowhere, threads: 3}}
user_features: {{path: absent.parquet}}
item_features: {{path: {world_dir / "items.parquet"}, key: itemid}}
scenarios:
  known: {{model: tiny, formula: likd, slice_rows: 100}}
  unknown: {{model: other, formula: 5}}
""")
    assert [line.partition(": ")[0] for line in found] == [
        "server.listen", "server.threads", "scenarios.known.slice_rows", "scenarios.unknown.formula",
        "scenarios.known.formula", "scenarios.unknown.model", "user_features.path", "item_features.key",
    ]


@pytest.mark.parametrize(("text", "expected"), [
    ("server: {threads: 5}", "server.threads: unknown field 'threads'; did you mean 'rpc_threads'? fields: listen, "),
    ("server: {listen: here}", "server.listen: expected HOST:PORT with a port of 0 to 65535, got 'here'"),
    ("server: 7", "server: expected a mapping, got 7"),
    ("engine: {kind: x}", "engine.kind: expected 'tensorflow', 'openvino', 'onnxruntime' or 'auto', got 'x'"),
    ("engine: {kind: onnxruntime, precision: bf16}", "engine.precision: expected f32 with onnxruntime"),
    ("engine: {kind: openvino, device: gpu}", "engine.device: expected cpu with this kind of engine; tensorflow and"),
    ("engine: {precision: bf16, device: gpu}", "engine.device: expected cpu with precision bf16"),
    ("engine: {device: gpu, streams: 2}", "engine.device_bytes_max: expected the memory that several streams"),
    ("colour: red", "colour: unknown field 'colour'; fields: repository, "),
    ("scenarios: {}", "scenarios: name at least one scenario"),
    ("scenarios: {a b: {}}", "scenarios.a b: expected a name: letters, digits and '_', no digit first, got 'a b'"),
    ("scenarios: {a: {version: 0}}", "scenarios.a.version: expected 'latest' or a whole number of at least 1, got 0"),
    ("scenarios: {a: {formula_inputs: [b, b]}}", "scenarios.a.formula_inputs: expected names that differ, got ['b', "),
    ("scenarios: {a: {}}", "scenarios.a.model: missing, but required"),
    ("work_dir: a\nwork_dir: b", "work_dir: stands in line 1 and again in line 2; keep one"),
    ("server: {drain_s: 1, drain_s: 2}", "server.drain_s: stands in line 1 and again in line 1; keep one"),
    pytest.param("[" * 5000, "(file): not YAML: nested too deeply", id="deep"),
])
def test_problems_are_in_words(tmp_path, text, expected):
    found = problems(tmp_path, text)
    assert any(line.startswith(expected) for line in found), found


def test_yaml_that_contains_itself_ends(tmp_path):
    assert problems(tmp_path, "scenarios: &again {again: *again}")


def test_swapped_feature_files_are_found_by_their_columns(tmp_path, world_dir):
    shutil.copytree(world_dir / "repository", tmp_path / "repository")
    shutil.copy(world_dir / "users.parquet", tmp_path / "items.parquet")
    shutil.copy(world_dir / "items.parquet", tmp_path / "users.parquet")
    found = problems(tmp_path, config_text(tmp_path))
    user, item = tmp_path / "users.parquet", tmp_path / "items.parquet"
    assert found == [
        f"user_features.path: {user} lacks what tiny version 1 stores: age, occupation, history; "
        "the item file has them: are the two swapped?",
        f"item_features.path: {item} lacks what tiny version 1 stores: genres, price, vector; "
        "the user file has them: are the two swapped?",
    ]


def test_columns_of_another_type_are_found_in_the_schema(tmp_path, world_dir):
    shutil.copytree(world_dir / "repository", tmp_path / "repository")
    shutil.copy(world_dir / "items.parquet", tmp_path / "items.parquet")
    users = pq.read_table(world_dir / "users.parquet")
    users = users.set_column(users.column_names.index("age"), "age", users["age"].cast(pa.string()))
    users = users.set_column(users.column_names.index("id"), "id", users["id"].cast(pa.string()))
    pq.write_table(users, tmp_path / "users.parquet")
    found = problems(tmp_path, config_text(tmp_path))
    assert len(found) == 2, found
    assert found[0].startswith("user_features.key: column 'id' of ") and "expected int64" in found[0]
    assert found[1].startswith("user_features.path: ") and "'age'" in found[1]


def test_a_file_that_is_no_parquet_is_named(tmp_path, world_dir):
    shutil.copytree(world_dir / "repository", tmp_path / "repository")
    shutil.copy(world_dir / "items.parquet", tmp_path / "items.parquet")
    (tmp_path / "users.parquet").write_text("not parquet")
    [problem] = problems(tmp_path, config_text(tmp_path))
    assert problem.startswith(f"user_features.path: {tmp_path / 'users.parquet'} cannot be read as Parquet")


@pytest.mark.parametrize("model,fits", [
    ("my-model", True), ("v2.1", True), ("7up", True), ("../up", False), (".hidden", False), ("a b", False),
])
def test_a_model_may_be_called_what_a_package_may_be_called(world_dir, model, fits):
    path = world_dir / "model.yaml"
    path.write_text(config_text(world_dir, model=f'"{model}"'))
    [problem] = config_file.check(path)
    assert ("no version of" in problem) == fits and ("a model's name" in problem) != fits
