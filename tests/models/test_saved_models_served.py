"""A SavedModel in the layout of TensorFlow Serving is served as it came: equal to what Python's session computes."""

import random
import shutil

import numpy as np
import pytest
import tensorflow as tf
import yaml
from tensorflow.core.protobuf import saved_model_pb2

from lambda_svc.config import SavedModelConfig, check
from lambda_svc.errors import PackageRejected
from lambda_svc.lifecycle import take_in
from lambda_svc.saved_models import is_saved_model, read_saved_model, saved_versions
from models.errors import FreezeError
from models.loaders import FrameworkModel, load_saved_model

from . import package_fixture
from .served_process import serve_once

ROWS, DIM, N = 40, 3, 150
RNG = np.random.default_rng(8)
TAXI, DEEPFM = "tfx__chicago_taxi_estimator_serving", "DeepCTR__deepfm_criteo_raw_serving"


class Ranker(tf.Module):
    """Ids of both sides, a scalar of the moment, int32, a lookup table filled at load."""

    def __init__(self):
        super().__init__()
        self.items = tf.Variable(RNG.normal(size=(ROWS, DIM)).astype(np.float32))
        self.users = tf.Variable(RNG.normal(size=(ROWS, DIM)).astype(np.float32))
        self.w = tf.Variable(RNG.normal(size=(2 * DIM + 3, 2)).astype(np.float32))
        self.prices = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
            tf.range(10, dtype=tf.int64), tf.constant(RNG.normal(size=10).astype(np.float32))), -1.0)

    @tf.function(input_signature=[
        tf.TensorSpec([None, 1], tf.int64, name="user"), tf.TensorSpec([None], tf.int64, name="item"),
        tf.TensorSpec([1], tf.float32, name="hour"), tf.TensorSpec([None], tf.int32, name="kind"),
        tf.TensorSpec([None], tf.int32, name="device")])
    def serve(self, user, item, hour, kind, device):
        rows = tf.shape(item)[0]
        both = tf.concat([tf.gather(self.users, user[:, 0]), tf.nn.embedding_lookup(self.items, item),
                          tf.tile(hour[:, None], [rows, 1]), self.prices.lookup(item)[:, None],
                          tf.cast(kind + device, tf.float32)[:, None]], 1)
        logits = both @ self.w
        return {"click": tf.sigmoid(logits[:, 0]), "order": tf.sigmoid(logits[:, 1:]), "both": logits}


SETTINGS = {"user": ["user", "device"], "context": ["hour"]}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    model = Ranker()
    tf.saved_model.save(model, str(folder / "ranker" / "7"), {"serving_default": model.serve})
    return folder


def test_the_served_scores_are_the_frameworks(repository, tmp_path):
    source = repository / "ranker" / "7"
    inputs = {"item": RNG.integers(0, ROWS, N), "kind": RNG.integers(-3, 3, N)}
    got = serve_once(tmp_path, repository, "ranker", "click + order", {
        "user:user": np.array([[7]]), "user:device": np.array([2]), "context:hour": np.float32([0.5]),
        **{f"item:{key}": value for key, value in inputs.items()}}, SETTINGS)
    want = FrameworkModel(source).call("serving_default", {
        "item": inputs["item"], "kind": inputs["kind"].astype(np.int32), "hour": np.float32([0.5]),
        "user": np.full((N, 1), 7), "device": np.full(N, 2, np.int32)})
    for head in ("click", "order"):
        np.testing.assert_allclose(got["heads"][head], want[head].reshape(-1), atol=1e-6, rtol=0)
    assert set(got["heads"]) == {"click", "order"} and got["variant"] == "saved_model" and got["bytes_copied"] == 0


def test_a_click_model_of_tensorflow_1(shared_dir, tmp_path):
    """Variables by reference, checks in old control flow, int32 ids; two fields of the user's."""
    shutil.copytree(shared_dir / "models" / DEEPFM, tmp_path / "repository" / "deepfm" / "1")
    saved = load_saved_model(tmp_path / "repository" / "deepfm" / "1")
    types = {key: spec.dtype for key, spec in saved.signature("predict").inputs.items()}
    inputs = {key: RNG.normal(size=N).astype(np.float32) if kind == "float32" else RNG.integers(0, 2, N)
              for key, kind in types.items()}
    inputs |= {key: np.repeat(inputs[key][:1], N) for key in ("C1", "I1")}
    got = serve_once(tmp_path, tmp_path / "repository", "deepfm", "pred", {
        **{f"item:{key}": value for key, value in inputs.items() if key not in ("C1", "I1")},
        **{f"user:{key}": inputs[key][:1] for key in ("C1", "I1")}},
        {"signature": "predict", "user": ["C1", "I1"], "heads": ["pred"]})
    want = FrameworkModel(saved.path).call("predict", {key: inputs[key].astype(kind) for key, kind in types.items()})
    np.testing.assert_allclose(got["heads"]["pred"], want["pred"].reshape(-1), atol=1e-6, rtol=0)


def test_by_default_every_input_is_an_item_feature(repository):
    settings = SavedModelConfig()
    with pytest.raises(PackageRejected, match=r"input 'hour': shape \[1\].*is it of the user side"):
        read_saved_model(repository / "ranker" / "7", settings)
    saved = read_saved_model(repository / "ranker" / "7", SavedModelConfig(context=("hour",)))
    assert {entry.key: (entry.side, entry.tiled) for _, entry in saved.inputs} == {
        "user": ("item", False), "item": ("item", False), "kind": ("item", False), "device": ("item", False),
        "hour": ("context", False)}
    assert set(saved.left_out) == {"both"}


def test_versions_are_those_of_packages_and_of_saved_models(tmp_path):
    package_fixture.write(tmp_path, 3)
    for name in ("2", "3", "010", "x", "4"):
        (tmp_path / "tiny" / name).mkdir(exist_ok=True)
        (tmp_path / "tiny" / name / "saved_model.pb").touch()
    (tmp_path / "tiny" / "4" / "saved_model.pb").unlink()
    assert saved_versions(tmp_path, "tiny") == [2] and saved_versions(tmp_path, "none") == []
    assert not is_saved_model(tmp_path / "tiny" / "3")


def config_of(tmp_path, repository, formula="click", **saved):
    file = tmp_path / "service.yaml"
    file.write_text(yaml.safe_dump({"repository": str(repository), "saved_models": saved,
                                    "scenarios": {"rank": {"model": "ranker", "formula": formula}}}))
    return file


def test_config_check_understands_signatures(repository, tmp_path):
    assert check(config_of(tmp_path, repository, ranker=SETTINGS)) == []
    for saved, formula, problem in (
            ({"ranker": SETTINGS}, "like", "scenarios.rank.formula: "),
            ({"ranker": {**SETTINGS, "user": ["age"]}}, "click", "'age' came as an input of the user side, expected"),
            ({"ranker": {**SETTINGS, "heads": ["both"]}}, "both", r"output 'both': shape [-1, 2] came"),
            ({"ranker": {**SETTINGS, "signature": "x"}}, "click", "signature 'x' came, expected one of the model's"),
            ({"ranker": {**SETTINGS, "sides": 1}}, "click", "saved_models.ranker.sides: unknown field 'sides'"),
            ({"ranker": SETTINGS, "other": {}}, "click", "saved_models.other: no scenario serves that model"),
            ({}, "click", "scenarios.rank.model: ")):
        found = check(config_of(tmp_path, repository, formula, **saved))
        assert len(found) == 1 and problem in found[0], found


def save(path, function, **held):
    module = tf.Module()
    module.serve = function
    for name, value in held.items():
        setattr(module, name, value)
    tf.saved_model.save(module, str(path), {"serving_default": function})
    return path


def numbers(function):
    return tf.function(function, input_signature=[tf.TensorSpec([None], tf.float32, name="x")], autograph=False)


def test_what_does_more_than_score_is_refused(tmp_path):
    counter = tf.Variable(1.0)
    hostile = {
        "WriteFile": lambda x: [tf.io.write_file("/tmp/never-written", "x"), {"y": x}][1],
        "ReadFile": lambda x: {"y": x + tf.cast(tf.strings.length(tf.io.read_file("/etc/hostname")), tf.float32)},
        "EagerPyFunc": lambda x: {"y": tf.py_function(lambda v: v, [x], tf.float32)},
        "AssignAddVariableOp": lambda x: {"y": x + counter.assign_add(1.0)},
    }
    for number, (op, function) in enumerate(hostile.items(), 1):
        source = save(tmp_path / "repository" / "bad" / str(number), numbers(function), counter=counter)
        with pytest.raises(PackageRejected, match=rf"^{source}/saved_model\.pb: node .* of function .*\({op}\): not"):
            take_in(source, tmp_path / "run")
        with pytest.raises(PackageRejected, match=rf"\({op}\)"):
            read_saved_model(source, SavedModelConfig())


def test_what_cannot_be_frozen_is_served(tmp_path):
    """A large table whose ids the graph computes: export refuses and says why, a session has it all the same."""
    table = tf.Variable(RNG.normal(size=(200, 2)).astype(np.float32))
    function = numbers(lambda x: {"y": tf.gather(table, tf.cast(tf.abs(x), tf.int32))[:, 0]})
    source = save(tmp_path / "repository" / "big" / "1", function, table=table)
    with pytest.raises(FreezeError, match="to be served as SavedModel: .*has 1600 bytes"):
        load_saved_model(source).freeze(rows_min=10, constant_bytes_max=100)
    x = RNG.uniform(0, 199, N).astype(np.float32)
    got = serve_once(tmp_path, tmp_path / "repository", "big", "y", {"item:x": x})
    np.testing.assert_allclose(got["heads"]["y"], FrameworkModel(source).call("serving_default", {"x": x})["y"],
                               atol=1e-6, rtol=0)


def codes_file(tmp_path):
    (tmp_path / "codes.txt").write_text("30\n10\n20\n")
    return tf.lookup.TextFileInitializer(str(tmp_path / "codes.txt"), tf.int64, tf.lookup.TextFileIndex.WHOLE_LINE,
                                         tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER)


def test_a_vocabulary_of_tensorflow_1_is_filled_from_the_copy(tmp_path):
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.int64, [None], "x")
        table = tf.lookup.StaticHashTable(codes_file(tmp_path), -1)
        y = tf.cast(table.lookup(x), tf.float32)
        with tf.compat.v1.Session() as session:
            path = tmp_path / "repository" / "codes" / "1"
            tf.compat.v1.saved_model.simple_save(session, str(path), {"x": x}, {"y": y},
                                                 legacy_init_op=tf.compat.v1.tables_initializer())
    (tmp_path / "codes.txt").unlink()
    got = serve_once(tmp_path, tmp_path / "repository", "codes", "y", {"item:x": np.array([10, 20, 30, 40])})
    assert got["heads"]["y"] == [1.0, 2.0, 0.0, -1.0]
    (tmp_path / "repository" / "codes" / "1" / "assets" / "codes.txt").unlink()
    with pytest.raises(PackageRejected, match=r"asset 'codes\.txt': there is no such file in assets/"):
        take_in(tmp_path / "repository" / "codes" / "1", tmp_path / "run")


def test_a_vocabulary_of_tensorflow_2_is_filled_from_the_copy(tmp_path):
    table = tf.lookup.StaticHashTable(codes_file(tmp_path), -1)
    function = tf.function(lambda x: {"y": tf.cast(table.lookup(x), tf.float32)},
                           input_signature=[tf.TensorSpec([None], tf.int64, name="x")])
    save(tmp_path / "repository" / "codes" / "1", function, table=table)
    (tmp_path / "codes.txt").unlink()
    got = serve_once(tmp_path, tmp_path / "repository", "codes", "y", {"item:x": np.array([10, 20, 30, 40])})
    assert got["heads"]["y"] == [1.0, 2.0, 0.0, -1.0]


@pytest.mark.parametrize("change", ["another file", "another variable"])
def test_a_vocabulary_from_elsewhere_is_refused(tmp_path, change):
    table = tf.lookup.StaticHashTable(codes_file(tmp_path), -1)
    function = tf.function(lambda x: {"y": tf.cast(table.lookup(x), tf.float32)},
                           input_signature=[tf.TensorSpec([None], tf.int64, name="x")])
    source = save(tmp_path / "codes" / "1", function, table=table)
    saved = saved_model_pb2.SavedModel.FromString((source / "saved_model.pb").read_bytes())
    nodes = saved.meta_graphs[0].graph_def.node
    path = nodes.add(name="elsewhere", op="Const")
    path.attr["value"].tensor.string_val.append(b"/etc/hostname")
    if change == "another file":
        next(node for node in nodes if node.op == "AssignVariableOp").input[1] = "elsewhere"
    else:
        nodes.add(name="other", op="VarHandleOp")
        for node in nodes:
            if node.op == "ReadVariableOp":
                node.input[0] = "other"
    (source / "saved_model.pb").write_bytes(saved.SerializeToString())
    with pytest.raises(PackageRejected, match=r"\(InitializeTableFromTextFileV2\): may only read a file whose path is"):
        read_saved_model(source, SavedModelConfig())


def test_damaged_saved_models_end_as_rejections(repository, tmp_path):
    whole = (repository / "ranker" / "7" / "saved_model.pb").read_bytes()
    shutil.copytree(repository / "ranker" / "7", tmp_path / "m" / "1")
    rng, settings, outcomes = random.Random(2), SavedModelConfig(**SETTINGS), set()
    for _ in range(150):
        raw = bytearray(whole[:rng.randrange(len(whole))] if rng.random() < 0.3 else whole)
        for _ in range(rng.randrange(1, 20)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        (tmp_path / "m" / "1" / "saved_model.pb").write_bytes(bytes(raw))
        try:
            read_saved_model(tmp_path / "m" / "1", settings)
            outcomes.add("read")
        except PackageRejected as error:
            outcomes.add("rejected")
            assert str(error).startswith(f"{tmp_path}/m/1/saved_model.pb: ")
    assert outcomes == {"read", "rejected"}


def test_links_and_strangers_are_not_copied(repository, tmp_path):
    source = tmp_path / "ranker" / "1"
    shutil.copytree(repository / "ranker" / "7", source)
    (source / "assets.extra").mkdir()
    (source / "assets.extra" / "warmup").write_bytes(b"x")
    folder, manifest = take_in(source, tmp_path / "run", SavedModelConfig(**SETTINGS))
    assert sorted(path.name for path in folder.iterdir()) == ["saved_model.pb", "variables"]
    assert manifest.golden is None and (manifest.model, manifest.version) == ("ranker", 1)
    (source / "variables" / "more").symlink_to("/etc/hostname")
    with pytest.raises(PackageRejected, match="variables/more: not a plain file"):
        take_in(source, tmp_path / "run", SavedModelConfig(**SETTINGS))


def test_strings_are_refused_by_name(shared_dir):
    with pytest.raises(PackageRejected, match="input 'examples': string cannot be fed; expected one of float32, int64"):
        read_saved_model(shared_dir / "models" / TAXI, SavedModelConfig(signature="predict"))
