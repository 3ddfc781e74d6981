"""`lambda-svc adopt` on models made here: its answer, its exit codes, and what it says of input that cannot be."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from typer.testing import CliRunner

from lambda_svc.errors import EngineUnavailable
from models.errors import GraphError
from models.passes import PASSES
from tools.adopt import measure as measuring
from tools.adopt.constant_rows import constant_inputs
from tools.adopt.deviation import Comparison
from tools.adopt.examine import Options, examine
from tools.adopt.requests import Request
from tools.adopt.text import html, markdown
from tools.cli import app
from tools.engines import DenseRequest, Lane

from .recorded import ROWS, example, predict_log, requests, write_records

TF = Lane("tensorflow", "f32")


def adopt(*arguments):
    return CliRunner().invoke(app, ["adopt", *map(str, arguments)])


@pytest.fixture
def one_lane(monkeypatch):
    monkeypatch.setattr(measuring, "lanes", lambda: (TF,))
    monkeypatch.setattr(measuring, "_SECONDS", 0.1)
    monkeypatch.setattr(measuring, "_SECONDS_QUICK", 0.1)


def saved(path, function, spec, **held):
    """A SavedModel of one function."""
    model = tf.Module()
    for name, value in held.items():
        setattr(model, name, value)
    model.f = tf.function(function(model), input_signature=[spec])
    tf.saved_model.save(model, str(path), {"serving_default": model.f})
    return path


def columns(path, **inputs):
    pq.write_table(pa.table({name: [value.tolist()] for name, value in inputs.items()}), path)
    return path


def test_the_whole_answer(ranker, warmup, tmp_path, monkeypatch):
    """In every engine that is installed, with every pass."""
    monkeypatch.setattr(measuring, "_SECONDS", 0.5)
    done = adopt(ranker, "--requests", warmup, "--report", tmp_path / "report", "--json", tmp_path / "a.json")
    assert done.exit_code == 0, done.output
    text, page = ((tmp_path / "report" / f"ranker.{suffix}").read_text() for suffix in ("md", "html"))
    assert text in done.output
    assert "* exports: yes, a package of" in text
    assert "* equal: yes, largest difference" in text and "over 5 requests" in text
    assert "* equal after all passes: yes" in text
    assert f"table items [{ROWS}, 4] leaves the graph for the parameter server: rows for item" in text
    assert "user: one value for all rows, found so in every request; computed once a request" in text
    assert "5 requests of warmup (PredictionLog), 20 to 24 rows, median 22" in text
    assert "output best is compared with the original, but runs in no engine: int64, not float32" in text
    rows = [line.split(" | ")[0].strip("| ") for line in text.split("## Passes")[1].splitlines() if line[:2] == "| "]
    assert rows[1:12] == ["plain", *PASSES]
    assert not re.search(r"src=|href=|http|<script", page), "readable without a network"
    for tag in ("svg", "table", "tr", "td", "h2", "li"):
        assert len(re.findall(f"<{tag}[ >]", page)) == page.count(f"</{tag}>") > 0
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["exports"] and document["equal"] and document["user"] == document["constant"] == ["user"]
    names = {figure["name"]: figure["value"] for figure in document["figures"]}
    assert names["adopt.ms/variant=stock"] > 0 and names["adopt.requests_s_core/variant=stock"] > 0
    assert names["adopt.flops/after=split_user"] < names["adopt.flops/after=plain"]
    assert names["adopt.ms/after=plain,engine=tensorflow,precision=f32"] > 0
    assert names["adopt.score_difference/after=split_user,engine=tensorflow,precision=f32"] <= 1e-6


def test_the_user_s_side(ranker, warmup, tmp_path, one_lane):
    found = {user: examine(Options(ranker, warmup, user=(user,), quick=True)) for user in ("auto", "none", "user")}
    assert {user: one.user for user, one in found.items()} == {"auto": ("user",), "none": (), "user": ("user",)}
    flops = {user: one.measured.steps[-1].cost.flops_user for user, one in found.items()}
    assert flops["none"] == 0 < flops["auto"] == flops["user"]
    assert all(one.equal and one.user_once[1].flops < one.user_once[0].flops for one in found.values())
    assert "--user user computes them once" in markdown(found["none"])
    assert "--user user" not in markdown(found["auto"])
    done = adopt(ranker, "--requests", warmup, "--user", "item")
    assert done.exit_code == 2 and "record 0: --user item: its rows differ from each other" in done.output
    done = adopt(ranker, "--requests", warmup, "--user", "age")
    assert done.exit_code == 2 and "--user age: signature 'serving_default' has no such input, it has item, user" in (
        done.output)
    same = write_records(tmp_path / "w", [predict_log({n: np.repeat(v[:1], 9, 0) for n, v in requests(1)[0].items()})])
    copies = examine(Options(ranker, same, quick=True))
    assert copies.user == () and "are these real requests?" in markdown(copies)
    single = write_records(tmp_path / "s", [predict_log({n: v[:1] for n, v in requests(1)[0].items()})])
    assert "every request has one row" in markdown(examine(Options(ranker, single, quick=True)))


def test_one_row_for_all_is_the_user_s_as_it_is(tmp_path, one_lane):
    """A model that tiles its user's features itself is fed one row of them."""
    def score(model):
        def call(inputs):
            user = tf.tile(inputs["user"], [tf.shape(inputs["item"])[0], 1])
            return {"y": tf.sigmoid(tf.reduce_sum(tf.concat([user, inputs["item"]], 1) @ model.w, 1))}
        return call

    model = tf.Module()
    model.w = tf.Variable(np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32))
    call = score(model)
    model.f = tf.function(lambda user, item: call({"user": user, "item": item}), input_signature=[
        tf.TensorSpec([None, 4], name="user"), tf.TensorSpec([None, 4], name="item")])
    tf.saved_model.save(model, str(tmp_path / "m"), {"serving_default": model.f})
    rng = np.random.default_rng(1)
    file = columns(tmp_path / "r", user=rng.normal(size=(1, 4)), item=rng.normal(size=(30, 4)))
    found = examine(Options(tmp_path / "m", file, quick=True))
    assert found.equal and found.measured.steps[-1].cost.flops_user > 0
    assert "it does not run with a row of each input a candidate" in found.no_package
    assert {line.name: line.use for line in found.inputs} == {"user": "user", "item": "item"}


def test_examples_are_read_in_front(ranker, tmp_path, one_lane):
    (inputs,) = requests(1)
    raw = np.array([example(inputs, row, "user", "item") for row in range(20)], object)
    file = write_records(tmp_path / "w", [predict_log({"examples": raw}, "examples")])
    found = examine(Options(ranker, file))
    assert not found.exports and "input 'examples': string cannot be fed" in found.no_package
    assert found.equal and found.recorded.signature.name == "examples" and found.part.front_ops["ParseExampleV2"] == 1
    assert found.measured.front.ms < found.measured.stock.ms * 20
    text = markdown(found)
    assert "stay in TensorFlow and take" in text and "| stock | exported, whole |" in text
    assert "| examples | string | [any] | no | read in front |" in text
    (lane,) = found.measured.steps[-1].lanes.values()
    assert lane.deviation.scaled <= 1e-6


def test_a_package_with_lookup_tables_is_for_tensorflow(tmp_path, one_lane):
    """Its tables stay in front of what other engines could run."""
    rng = np.random.default_rng(0)
    model = tf.Module()
    model.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
        tf.range(100, dtype=tf.int64) * 7, tf.range(100, dtype=tf.int64)), 100)
    model.rows = tf.Variable(rng.normal(size=(101, 4)).astype(np.float32), name="rows")
    model.w = tf.Variable(rng.normal(size=(4, 1)).astype(np.float32), name="w")
    model.f = tf.function(lambda item: {"y": tf.sigmoid(tf.gather(model.rows, model.table.lookup(item)) @ model.w)},
                          input_signature=[tf.TensorSpec([None], tf.int64, name="item")])
    tf.saved_model.save(model, str(tmp_path / "m"), {"serving_default": model.f})
    found = examine(Options(tmp_path / "m", columns(tmp_path / "r", item=rng.integers(0, 700, 50)), quick=True))
    assert found.exports and found.equal, (found.no_package, found.unequal)
    assert found.part.front_ops["LookupTableFindV2"] == 1 and found.measured.front is not None
    assert "engine tensorflow alone" in markdown(found)


def test_a_frozen_graph(ranker, warmup, tmp_path, one_lane, loaded):
    frozen = loaded.freeze(rows_min=10**6)
    (tmp_path / "g.pb").write_bytes(frozen.graph_def.SerializeToString())
    (tmp_path / "SIGNATURES.json").write_text(json.dumps({"g.pb": {
        "inputs": {k: [s.name, s.dtype, list(s.shape)] for k, s in frozen.inputs.items()},
        "outputs": {k: [s.name, s.dtype] for k, s in frozen.outputs.items()}}}))
    done = adopt(tmp_path / "g.pb", "--requests", warmup, "--quick")
    assert done.exit_code == 0 and "a session on the frozen graph" in done.output, done.output
    assert "output pair is no head of the package: [20, 2] came for 20 candidates" in done.output


def test_a_model_that_does_not_export_says_why_and_is_timed(tmp_path):
    file = columns(tmp_path / "r", x=np.ones((3, 2)))
    spec = tf.TensorSpec([None, 2], name="x")

    def counting(model):
        return lambda x: {"y": tf.reduce_sum(x, 1) + model.calls.assign_add(1.0)}

    path = saved(tmp_path / "m", counting, spec, calls=tf.Variable(0.0, name="calls"))
    done = adopt(path, "--requests", file)
    assert done.exit_code == 1, done.output
    assert re.search(r"exports: no: it may not be pushed: node .*\(AssignAddVariableOp\)", done.output)
    assert "stock: " in done.output and "requests a second and core" in done.output

    def reading(_):
        return lambda x: {"y": tf.reduce_sum(x, 1) + tf.cast(tf.strings.length(tf.io.read_file(__file__)), tf.float32)}

    done = adopt(saved(tmp_path / "reads", reading, spec), "--requests", file)
    assert done.exit_code == 1 and "it may not be pushed: node" in done.output and "(ReadFile)" in done.output

    def looking(model):
        return lambda x: {"y": model.table.lookup(tf.cast(x[:, 0], tf.int64))}

    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)
    done = adopt(saved(tmp_path / "looks", looking, spec, table=table), "--requests", file)
    assert done.exit_code == 1 and re.search(r"exports: no: table .* is filled by no initialisation.*; serve the Saved",
                                             done.output), done.output


def test_scores_that_differ_exit_with_1(tmp_path, one_lane):
    tf.random.set_seed(None)  # a seed left by another test would make both sessions draw the same
    def drawing(model):
        return lambda x: {"y": tf.reduce_sum(x @ model.w, 1) + tf.random.uniform([])}

    path = saved(tmp_path / "m", drawing, tf.TensorSpec([None, 2], name="x"), w=tf.Variable(tf.ones([2, 2])))
    done = adopt(path, "--requests", columns(tmp_path / "r", x=np.array([[1.0, 2], [3, 4]])), "--quick")
    assert done.exit_code == 1 and "* equal: no, largest difference" in done.output
    assert "draws random numbers on every call" in done.output


def test_what_loses_is_shown_as_losing(ranker, warmup, one_lane, monkeypatch):
    class Slow(DenseRequest):
        def run(self, feeds=None):
            for _ in range(40):
                answer = super().run(feeds)
            return answer

    monkeypatch.setattr(measuring, "DenseRequest", Slow)
    text = markdown(examine(Options(ranker, warmup, quick=True)))
    rows = [line for line in text.splitlines() if line.startswith("| tensorflow f32 |")]
    assert len(rows) == 2 and all(row.endswith("| loses |") for row in rows)
    assert "a request: nothing is faster than stock" in text and "a core: nothing does more than stock" in text


def test_what_is_skipped_says_why(ranker, warmup, one_lane, monkeypatch):
    class Lacking(DenseRequest):
        def __init__(self, dense, feeds, lane, slice_rows=0):
            if lane.kind == "openvino":
                raise EngineUnavailable("OpenVINO's <library> was not found")
            super().__init__(dense, feeds, lane, slice_rows)

    def refusing(dense):
        raise GraphError("a loop in 'while'")

    monkeypatch.setattr(measuring, "DenseRequest", Lacking)
    monkeypatch.setattr(measuring, "PASSES", {**PASSES, "merge_parallel": refusing})
    monkeypatch.setattr(measuring, "lanes", lambda: (TF, Lane("openvino", "f32")))
    found = examine(Options(ranker, warmup, quick=True))
    text, page = markdown(found), html(found)
    assert "* pass merge_parallel and those after it: a loop in 'while'" in text
    assert "* openvino f32: every step: OpenVINO's <library> was not found" in text or "openvino f32:" in text
    assert "&lt;library&gt;" in page and "<library>" not in page
    assert not [line for line in text.splitlines() if line.startswith("| openvino f32 |")]


def test_no_dense_part(tmp_path):
    """A graph that is all strings up to its score."""
    def words(_):
        return lambda x: {"y": tf.strings.to_number(x)}

    path = saved(tmp_path / "m", words, tf.TensorSpec([None], tf.string, name="x"))
    done = adopt(path, "--requests", columns(tmp_path / "r", x=np.array(["1", "2"])))
    assert done.exit_code == 1 and "input 'x': string cannot be fed" in done.output
    assert "frozen: yes" in done.output and "engines: no engine but TensorFlow runs this graph: node" in done.output
    assert "(StringToNumber)" in done.output and "stock: " in done.output


@pytest.mark.parametrize("arguments, words", [
    (["{ranker}/gone", "--requests", "{warmup}"], "the model: .*gone does not exist"),
    (["{ranker}", "--requests", "{warmup}.gone"], "--requests: .*gone does not exist"),
    (["{ranker}", "--requests", "{empty}"], "expected recorded requests, the file is empty"),
    (["{ranker}", "--requests", "{ranker}"], "expected a file of requests, it cannot be read"),
    (["{ranker}", "--requests", "{warmup}", "--signature", "x"], "signature 'x' came, expected one of the model's: ex"),
    (["{ranker}", "--requests", "{warmup}", "--tags", "serve,gpu"], "tags ..gpu', 'serve.. expected, the file has"),
    (["{ranker}/..", "--requests", "{warmup}"], "there are some in it: name one of .*ranker"),
    (["{empty}", "--requests", "{warmup}"], "expected a frozen graph"),
    (["{ranker}", "--requests", "{warmup}", "--report", "{empty}/r"], "empty is no folder that may be written to"),
    (["{ranker}", "--requests", "{warmup}", "--json", "{empty}/r"], "empty is no folder that may be written to"),
    (["{ranker}"], "Missing option '--requests'"),
])
def test_what_cannot_be_is_usage(ranker, warmup, tmp_path, arguments, words):
    empty = tmp_path / "empty"
    empty.touch()
    done = adopt(*(a.format(ranker=ranker, warmup=warmup, empty=empty) for a in arguments))
    assert done.exit_code == 2 and re.search(words, done.output, re.DOTALL), done.output
    assert "Traceback" not in done.output


def test_requests_that_the_model_refuses(ranker, tmp_path):
    (inputs,) = requests(1)
    file = write_records(tmp_path / "w", [predict_log(inputs), predict_log({**inputs, "item": inputs["item"] + ROWS})])
    done = adopt(ranker, "--requests", file)
    assert done.exit_code == 2 and "record 1: the original model refuses it: " in done.output


def test_constant_inputs():
    def request(**inputs):
        return Request(0, inputs, len(next(iter(inputs.values()))))

    nan, words = np.full((3, 2), np.nan, np.float32), np.array([b"a", b"a", b"a"], object)
    moved = np.array([1, 1, 2])
    assert constant_inputs([request(x=nan, w=words, i=moved)]) == ("w", "x")
    assert constant_inputs([request(x=nan, w=words, i=moved), request(x=nan, w=words[::-1], i=moved * 0)]) == ("w", "x")
    assert constant_inputs([request(x=nan), request(x=np.float32([[1, 2], [1, 3]]))]) == ()
    assert constant_inputs([request(x=nan[:1])]) == ()
    assert constant_inputs([request(x=nan[:1]), request(x=nan)]) == ("x",)
    assert constant_inputs([request(z=np.float32([0.0, -0.0]))]) == (), "bits, not numbers"


def test_comparison():
    compared = Comparison()
    rng = np.random.default_rng(0)
    want = {"p": rng.random(50), "logit": np.r_[np.nan, 200.0, rng.normal(size=48)]}
    compared.add(0, want, want)
    same = compared.result()
    assert (same.requests, same.largest, same.scaled, same.top10, same.logit_p99) == (1, 0, 0, 1, 0)
    compared.add(7, {"p": want["p"][::-1], "logit": want["logit"] + np.r_[0, 20.0, np.zeros(48)]}, want)
    worse = compared.result()
    assert worse.largest == pytest.approx(20)
    assert worse.scaled == pytest.approx(np.abs(want["p"] - want["p"][::-1]).max())
    assert worse.where == "record 7, p" and worse.top10 < 1 and worse.logit_p99 > 0.1
    compared.add(8, {"p": want["p"], "logit": np.nan_to_num(want["logit"])}, want)
    assert compared.result().scaled == np.inf
    with pytest.raises(ValueError, match="p: 49 scores came, expected 50"):
        compared.add(9, {"p": want["p"][1:]}, {"p": want["p"]})


