"""Every real model at hand, on real rows where there are some: exports, is equal, and is measured."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from models import zoo
from models.loaders import load_saved_model
from tests.models.loaders.test_shared_models import DEEPFM, TAXI, deepfm_inputs, deepfm_tables, example
from tools.adopt import measure as measuring
from tools.adopt import prediction_log_pb2 as pb
from tools.cli import app
from tools.engines import Lane

from .recorded import predict_log, write_records


@pytest.fixture(autouse=True)
def briefly(monkeypatch):
    monkeypatch.setattr(measuring, "lanes", lambda: (Lane("tensorflow", "f32"), Lane("openvino", "f32")))
    monkeypatch.setattr(measuring, "_SECONDS_QUICK", 0.1)


def adopt(*arguments):
    return CliRunner().invoke(app, ["adopt", *map(str, arguments), "--quick"])


@pytest.fixture(scope="module")
def taxi_rows(shared_dir):
    with (shared_dir / "data" / "taxi" / "chicago_taxi_data.csv").open() as file:
        return [example(row) for row, _ in zip(csv.DictReader(file), range(120), strict=False)]


@pytest.mark.parametrize("kind, signature", [("classify_log", "classification"), ("regress_log", "regression"),
                                             ("predict_log", "predict")])
def test_taxi(shared_dir, taxi_rows, tmp_path, kind, signature):
    logs = []
    for first in range(0, 120, 40):
        rows = taxi_rows[first:first + 40]
        if kind == "predict_log":
            logs.append(predict_log({"examples": np.array(rows, object)}, signature))
            continue
        log = pb.PredictionLog()
        request = getattr(log, kind).request
        request.model_spec.signature_name = signature
        request.input.example_list.examples.extend(rows)
        logs.append(log.SerializeToString())
    done = adopt(shared_dir / "models" / TAXI, "--requests", write_records(tmp_path / "w", logs))
    assert done.exit_code == 1, done.output
    reason = "no output can be a head" if kind == "classify_log" else "string cannot be fed"
    for words in (f"* exports: no: signature {signature!r}", reason, "* equal: yes",
                  "operations that stay in TensorFlow",
                  "vocabulary vocab_compute_and_apply_vocabulary_vocabulary fills", "3 requests of w (PredictionLog)",
                  "company_xf/weights [1010, 1] stays in the graph: the ids of lookup"):
        assert words in done.output, words


def test_deepfm(shared_dir, tmp_path):
    loaded = load_saved_model(shared_dir / "models" / DEEPFM)
    inputs = deepfm_inputs(loaded.signature("predict"), deepfm_tables(loaded), 60)
    done = adopt(loaded.path, "--requests", write_records(tmp_path / "w", [predict_log(inputs)]))
    assert done.exit_code == 0, done.output
    assert "* equal: yes" in done.output and "* equal after all passes: yes" in done.output


def test_a_zoo_model_of_history_and_candidates(tmp_path):
    """DIN as a team would hand it over: one row of what is the user's, three dimensions of history."""
    plain, feeds = zoo.dense("din", "small")
    (tmp_path / "din.pb").write_bytes(plain.item.SerializeToString())
    types, rng = {"f32": "float32", "i32": "int32", "i64": "int64"}, np.random.default_rng(0)
    (tmp_path / "SIGNATURES.json").write_text(json.dumps({"din.pb": {
        "inputs": {e.name[:-2]: [e.name, types[e.dtype], list(e.shape)] for e in plain.inputs},
        "outputs": {head.head: [head.name, "float32"] for head in plain.heads}}}))
    logs = [predict_log({name[:-2]: value for name, value in feeds(n, rng).items()}) for n in (30, 50)]
    done = adopt(tmp_path / "din.pb", "--requests", write_records(tmp_path / "w", logs), "--json", tmp_path / "j")
    assert done.exit_code == 1 and "expected [-1] or [-1, width], a row a candidate" in done.output
    assert "* frozen: yes\n" in done.output and "* equal after all passes: yes" in done.output
    values = {one["name"]: one["value"] for one in json.loads((tmp_path / "j").read_text())["figures"]}
    assert values["adopt.flops/after=split_user"] < 0.7 * values["adopt.flops/after=plain"]


def test_vespa(shared_dir, tmp_path):
    rng = np.random.default_rng(0)
    user, items = rng.normal(size=(1, 128)) / 16, rng.normal(size=(50, 128)) / 16
    columns = {"input_u": [np.repeat(user, 50, 0).tolist()], "input_d": [items.tolist()]}
    pq.write_table(pa.table(columns), tmp_path / "r")
    done = adopt(shared_dir / "models" / "frozen" / "vespa__blog_recommendation.pb", "--requests", tmp_path / "r")
    assert done.exit_code == 0, done.output
    assert "with input_u once a request, all passes leave" in done.output and "33% of the FLOPs saved" in done.output
