"""A model as a team has it becomes a package that serves the framework's own scores."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from typer.testing import CliRunner

from lambda_svc.config import EngineConfig
from lambda_svc.errors import PackageRejected
from lambda_svc.lifecycle.load import load_graphs
from models.errors import ExportCheckError, OpRefusedError, PackageError, SignatureError
from models.export_loaded import export_loaded
from models.loaders import FrameworkModel, load_saved_model
from models.manifest import manifest_bytes
from models.package import check_graphs, verify
from models.push import push
from tools.cli import app

from .served_package import ServedPackage
from .served_process import serve_once

ROWS, DIM = 40, 3
RNG = np.random.default_rng(3)


class Ranker(tf.Module):
    """Ids of both sides, a vector, a scalar of the moment, an int32 input, an input that nothing reads."""

    def __init__(self):
        super().__init__()
        self.items = tf.Variable(RNG.normal(size=(ROWS, DIM)).astype(np.float32), name="items")
        self.users = tf.Variable(RNG.normal(size=(ROWS, DIM)).astype(np.float32), name="users")
        self.w = tf.Variable(RNG.normal(size=(2 * DIM + 4, 2)).astype(np.float32), name="w")

    @tf.function(input_signature=[
        tf.TensorSpec([None, 1], tf.int64, name="user"), tf.TensorSpec([None], tf.int64, name="item"),
        tf.TensorSpec([None, 2], tf.float32, name="vector"), tf.TensorSpec([1], tf.float32, name="hour"),
        tf.TensorSpec([None], tf.int32, name="kind"), tf.TensorSpec([None], tf.string, name="unread")])
    def serve(self, user, item, vector, hour, kind, unread):
        tf.debugging.assert_non_negative(kind)
        rows = tf.shape(item)[0]
        both = tf.concat([tf.gather(self.users, user[:, 0]), tf.nn.embedding_lookup(self.items, item), vector,
                          tf.tile(hour[:, None], [rows, 1]), tf.cast(kind, tf.float32)[:, None]], 1)
        logits = both @ self.w
        return {"click": tf.sigmoid(logits[:, 0]), "order": tf.sigmoid(logits[:, 1:]), "both": logits,
                "likely": logits[:, 0] > 0}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "ranker"
    model = Ranker()
    tf.saved_model.save(model, str(path), {"serving_default": model.serve})
    return path


@pytest.mark.parametrize("rows_min", [1_000, 10])
def test_the_served_scores_are_the_frameworks(saved, tmp_path, rows_min):
    done = export_loaded(load_saved_model(saved), tmp_path / "out", "ranker", 1, user=["user"], context=["hour"],
                         rows_min=rows_min)
    assert done.heads == ("click", "order") and set(done.left_out) == {"both", "likely"}
    manifest = verify(done.path)
    assert {f.name: (f.side, f.dtype, f.kind, f.width) for f in manifest.schema.features} == {
        "user": ("user", "i64", "dense", 1), "item": ("item", "i64", "single", 1),
        "hour": ("context", "f32", "single", 1), "vector": ("item", "f32", "dense", 2),
        "kind": ("item", "i64", "single", 1)}
    assert [table.rows for table in manifest.tables] == ([ROWS] if rows_min == 10 else [])
    assert len(done.kept) == len(manifest.tables)  # the users' ids pass through a slice, which is in the graph
    assert ServedPackage(done.path).golden_error() <= 1e-6
    push(done.path, tmp_path / "repository")
    n = 150
    inputs = {"item": RNG.integers(0, ROWS, n), "vector": RNG.normal(size=(n, 2)).astype(np.float32),
              "kind": RNG.integers(0, 3, n)}
    once = {"user": np.array([[7]]), "hour": np.float32([0.5])}
    got = serve_once(tmp_path, tmp_path / "repository", "ranker", "click + order", {
        "user:user": once["user"], "context:hour": once["hour"], **{f"item:{k}": v for k, v in inputs.items()}})
    want = FrameworkModel(saved).call("serving_default", {
        **inputs, "kind": inputs["kind"].astype(np.int32), "hour": once["hour"], "user": np.full((n, 1), 7),
        "unread": np.full(n, b"", object)})
    for head in done.heads:
        np.testing.assert_allclose(got["heads"][head], want[head].reshape(-1), atol=1e-6, rtol=0)
    assert got["variant"] == "user_once" and got["bytes_copied"] == 0


def test_equal_models_give_equal_bytes(saved, tmp_path):
    paths = [export_loaded(load_saved_model(saved), tmp_path / part, "ranker", 1, user=["user"], context=["hour"]).path
             for part in "ab"]
    assert (paths[0] / "manifest.json").read_bytes() == (paths[1] / "manifest.json").read_bytes()


def test_golden_rows_of_the_teams_own(saved, tmp_path):
    rows = {"user": np.array([[1], [1], [2]]), "item": np.array([3, 4, 5]), "vector": np.ones((3, 2), np.float32),
            "hour": np.float32([1, 1, 1]), "kind": np.array([0, 1, 2])}
    done = export_loaded(load_saved_model(saved), tmp_path, "ranker", 1, user=["user"], context=["hour"], inputs=rows)
    package = ServedPackage(done.path)
    assert package.golden["group"].to_pylist() == [0, 0, 1]
    assert package.golden["user:user"].to_pylist() == [[1], [1], [2]]
    for key, wrong, problem in (("item", None, "'item'. missing"), ("vector", np.ones((3, 3)), "'vector' came"),
                                ("kind", np.array([0, 1]), "rows came"), ("kind", np.array([b"a"] * 3), "came as")):
        changed = {k: wrong if k == key else v for k, v in rows.items() if k != key or wrong is not None}
        with pytest.raises(SignatureError, match=problem):
            export_loaded(load_saved_model(saved), tmp_path, "ranker", 2, user=["user"], context=["hour"],
                          inputs=changed)


def signature(*specs):
    return tf.function(input_signature=[tf.TensorSpec(shape, dtype, name=name) for name, shape, dtype in specs],
                       autograph=False)


def test_what_cannot_be_a_package_says_why(tmp_path):
    counter = tf.Variable(0.0)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
        tf.constant([1, 2], tf.int64), tf.constant([0.5, 0.7])), 0.0)
    x = ("x", [None], tf.float32)
    functions = dict(
        words=signature(("w", [None], tf.string))(lambda w: {"y": tf.strings.to_number(w)}),
        deep=signature(("x", [None, 2, 2], tf.float32))(lambda x: {"y": x[:, 0, 0]}),
        one=signature(("x", [1, 2], tf.float32), ("z", [None], tf.float32))(lambda x, z: {"y": z * x[0, 0]}),
        wide=signature(x)(lambda x: {"y": tf.stack([x, x], 1)}),
        noisy=signature(x)(lambda x: {"y": x + tf.random.uniform(tf.shape(x))}),
        lookup=signature(("x", [None], tf.int64))(lambda x: {"y": table.lookup(x)}),
        counts=signature(x)(lambda x: {"y": x + counter.assign_add(1.0)}),
        fixed=signature(x)(lambda x: {"y": tf.ones([3]) * tf.reduce_sum(x)}),
    )
    holder = tf.Module()
    holder.counter, holder.table = counter, table
    for name, function in functions.items():
        setattr(holder, name, function)
    tf.saved_model.save(holder, str(tmp_path / "m"), functions)
    loaded = load_saved_model(tmp_path / "m")
    for name, error, problem in (
            ("words", SignatureError, "input 'w': string cannot be fed; expected one of float32, int64, int32"),
            ("deep", SignatureError, r"input 'x': shape \[-1, 2, 2\]; expected \[-1\] or \[-1, width\]"),
            ("one", SignatureError, r"input 'x': shape \[1, 2\].*is it of the user side"),
            ("wide", SignatureError, r"no output can be a head; 'y': shape \[-1, 2\] came"),
            ("noisy", SignatureError, "draws random numbers"),
            ("counts", OpRefusedError, "AssignAddVariableOp"),
            ("fixed", ExportCheckError, r"head 'y': float32 \[3\] came for 12 candidates")):
        with pytest.raises(error, match=problem):
            export_loaded(loaded, tmp_path / "out", "m", 1, signature=name)
    with pytest.raises(SignatureError, match="'q' came as an input of the user side"):
        export_loaded(loaded, tmp_path / "out", "m", 1, signature="one", user=["q"])
    with pytest.raises(SignatureError, match="no input is of the item side"):
        export_loaded(loaded, tmp_path / "out", "m", 1, signature="fixed", user=["x"])
    with pytest.raises(SignatureError, match="output 'z': there is no such output; outputs: y"):
        export_loaded(loaded, tmp_path / "out", "m", 1, signature="one", user=["x"], heads=["z"])
    assert not (tmp_path / "out" / "m").exists()
    assert export_loaded(loaded, tmp_path / "out", "m", 1, signature="one", user=["x"]).heads == ("y",)


@pytest.fixture(scope="module")
def codes(tmp_path_factory):
    """A vocabulary of int64 codes in a file, prices by code in the graph, an embedding by place."""
    folder = tmp_path_factory.mktemp("codes")
    (folder / "codes.txt").write_text("30\n10\n20\n")
    places = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(
        str(folder / "codes.txt"), tf.int64, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64,
        tf.lookup.TextFileIndex.LINE_NUMBER), 3)
    prices = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
        tf.constant([10, 20], tf.int64), tf.constant([0.25, 0.5])), 0.125)
    model = tf.Module()
    model.places, model.prices = places, prices
    model.rows = tf.Variable(RNG.normal(size=(4, 2)).astype(np.float32))
    model.serve = tf.function(
        lambda code: {"y": tf.reduce_sum(tf.gather(model.rows, places.lookup(code)), 1) + prices.lookup(code)},
        input_signature=[tf.TensorSpec([None], tf.int64, name="code")], autograph=False)
    tf.saved_model.save(model, str(folder / "saved"), {"serving_default": model.serve})
    return folder / "saved"


def test_lookup_tables_are_filled_from_the_package(codes, tmp_path):
    given = {"code": np.array([10, 20, 30, 40])}
    done = export_loaded(load_saved_model(codes), tmp_path / "out", "codes", 1, inputs=given)
    manifest = verify(done.path)
    assert [one.file for one in manifest.initializers if one.file] == ["assets/codes.txt"]
    assert len(manifest.initializers) == 2 and not manifest.variants and "filled at load" in done.plain_only
    push(done.path, tmp_path / "repository")
    want = FrameworkModel(codes).call("serving_default", {"code": np.array([40, 10, 30])})["y"]
    got = serve_once(tmp_path, tmp_path / "repository", "codes", "y", {"item:code": np.array([40, 10, 30])})
    np.testing.assert_allclose(got["heads"]["y"], want, atol=1e-6, rtol=0)
    with pytest.raises(PackageRejected, match="keeps lookup tables in its graph, which only engine tensorflow fills"):
        load_graphs(done.path, manifest, EngineConfig(kind="openvino"))


def test_a_vocabulary_that_the_manifest_does_not_name_is_refused(codes, tmp_path):
    done = export_loaded(load_saved_model(codes), tmp_path, "codes", 1, inputs={"code": np.array([10])})
    manifest = verify(done.path)
    for kept in ([], [one.model_copy(update={"asset": None, "file": None}) for one in manifest.initializers]):
        with pytest.raises(PackageError, match=r"\(InitializeTableFromTextFileV2\): may only read a file whose path"):
            check_graphs(done.path, dataclasses.replace(manifest, initializers=tuple(kept)))
    fill = next(one for one in manifest.initializers if one.file)
    for wrong, problem in (({"file": "assets/none"}, "'assets/none' is not among files"),
                           ({"file": None}, "asset and file come together")):
        changed = fill.model_copy(update=wrong)
        with pytest.raises(PackageError, match=problem):
            manifest_bytes(dataclasses.replace(manifest, initializers=(changed,)))


def test_old_control_flow_that_stays_is_served(tmp_path):
    """A branch on what is fed: another executor runs the graph, and no pass reads it."""
    tf.compat.v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default():
            x = tf.compat.v1.placeholder(tf.float32, [None], "x")
            tf.compat.v1.assert_greater(x, -100.0)
            y = tf.compat.v1.cond(tf.reduce_sum(x) > 0, lambda: x * 2.0, lambda: tf.ones_like(x) * 7.0)
            with tf.compat.v1.Session() as session:
                tf.compat.v1.saved_model.simple_save(session, str(tmp_path / "saved"), {"x": x}, {"y": y})
    finally:
        tf.compat.v1.enable_control_flow_v2()
    done = export_loaded(load_saved_model(tmp_path / "saved"), tmp_path / "repository", "branch", 1)
    assert "control flow" in done.plain_only
    for x, y in (([1.0, 2.0], [2.0, 4.0]), ([-1.0, -2.0], [7.0, 7.0])):
        got = serve_once(tmp_path, tmp_path / "repository", "branch", "y", {"item:x": np.float32(x)})
        assert got["heads"]["y"] == y


def test_real_models(shared_dir, tmp_path):
    """A click model of Criteo's fields with checks in old control flow, and a frozen graph of two towers."""
    folder = shared_dir / "models"
    for name, user, arguments in (
            ("DeepCTR__deepfm_criteo_raw_serving", ["C1", "I1"], ["--user", "C1", "--user", "I1"]),
            ("frozen/vespa__blog_recommendation.pb", ["input_u"], ["--user", "input_u"])):
        plain = name.split("__")[-1].removesuffix(".pb")
        result = CliRunner().invoke(app, ["export", str(folder / name), "--name", plain, "--out", str(tmp_path),
                                          *arguments])
        assert result.exit_code == 0, result.output
        package = tmp_path / plain / "1"
        manifest = verify(package)
        check_graphs(package, manifest)
        assert ServedPackage(package).golden_error() <= 1e-6
        assert {entry.source.slot for entry in manifest.graph.inputs if entry.side == "user"} == set(user)
        assert ("no rewritten variant" in result.output) == (not manifest.variants)
    n, rng = 70, np.random.default_rng(4)
    saved = load_saved_model(folder / "DeepCTR__deepfm_criteo_raw_serving")
    types = {key: spec.dtype for key, spec in saved.signature("predict").inputs.items()}
    inputs = {key: rng.normal(size=n).astype(np.float32) if kind == "float32" else rng.integers(0, 2, n)
              for key, kind in types.items()}
    inputs |= {key: np.repeat(inputs[key][:1], n) for key in ("C1", "I1")}
    got = serve_once(tmp_path, tmp_path, "deepfm_criteo_raw_serving", "pred", {
        **{f"item:{key}": value for key, value in inputs.items() if key not in ("C1", "I1")},
        **{f"user:{key}": inputs[key][:1] for key in ("C1", "I1")}})
    want = FrameworkModel(saved.path).call("predict", {key: inputs[key].astype(kind) for key, kind in types.items()})
    np.testing.assert_allclose(got["heads"]["pred"], want["pred"].reshape(-1), atol=1e-6, rtol=0)


def test_the_command_refuses_in_one_line(shared_dir, tmp_path):
    taxi = str(shared_dir / "models" / "tfx__chicago_taxi_estimator_serving")
    for arguments, problem in (([taxi], "--name: "), ([taxi, "--name", "taxi"], "not exported: "),
                               ([str(tmp_path / "none.pb"), "--name", "x"], "none.pb: expected a frozen graph")):
        result = CliRunner().invoke(app, ["export", *arguments, "--out", str(tmp_path)])
        assert result.exit_code == 1 and problem in result.output and len(result.output.splitlines()) == 1
