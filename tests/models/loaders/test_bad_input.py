"""What is no model, or only part of one, is told with its path, what came and what was expected."""

import json
import random

import numpy as np
import pytest
import tensorflow as tf

from models.errors import FreezeError, ModelsError, SavedModelError, SignatureError
from models.loaders import FrameworkModel, load_frozen, load_saved_model


@pytest.fixture
def saved(tmp_path):
    model = tf.Module()
    model.w = tf.Variable([[2.0]], name="w")
    model.f = tf.function(lambda x: {"y": x @ model.w}, input_signature=[tf.TensorSpec([None, 1], name="x")])
    tf.saved_model.save(model, tmp_path / "m", {"score": model.f})
    return tmp_path / "m"


def test_no_saved_model_there(tmp_path):
    with pytest.raises(SavedModelError, match=r"saved_model\.pb: expected a SavedModel: No such file") as caught:
        load_saved_model(tmp_path)
    assert caught.value.path == tmp_path / "saved_model.pb"
    with pytest.raises(SavedModelError, match="expected a SavedModel"):
        FrameworkModel(tmp_path)
    (tmp_path / "saved_model.pbtxt").write_text("")
    with pytest.raises(SavedModelError, match="binary form"):
        load_saved_model(tmp_path)


def test_a_truncated_graph(saved):
    file = saved / "saved_model.pb"
    whole = file.read_bytes()
    for size in random.Random(3).sample(range(len(whole)), 25):
        file.write_bytes(whole[:size])
        with pytest.raises(ModelsError) as caught:
            load_saved_model(saved)
        assert "saved_model.pb" in str(caught.value) or str(saved) in str(caught.value)
    file.write_bytes(b"")
    with pytest.raises(SavedModelError, match="no graph at all"):
        load_saved_model(saved)


def test_other_tags(saved):
    with pytest.raises(SavedModelError, match=r"tags \['train'\] expected, the file has \[\['serve'\]\]"):
        load_saved_model(saved, tags=["train"])


def test_missing_and_damaged_variables(saved):
    index, data = saved / "variables" / "variables.index", saved / "variables" / "variables.data-00000-of-00001"
    raw = data.read_bytes()
    data.write_bytes(raw[:2])
    with pytest.raises(SavedModelError, match="data-00000-of-00001: 2 bytes came, the index says at least"):
        load_saved_model(saved)
    data.write_bytes(bytes([raw[0] ^ 1]) + raw[1:])
    with pytest.raises(FreezeError, match="cannot be read"):
        load_saved_model(saved).freeze("score")
    data.unlink()
    with pytest.raises(SavedModelError, match="data-00000-of-00001: the variables cannot be read: No such file"):
        load_saved_model(saved)
    whole = index.read_bytes()
    for damaged in (b"", whole[:-1], whole[:40], bytes(len(whole))):
        index.write_bytes(damaged)
        with pytest.raises(SavedModelError, match="variables.index"):
            load_saved_model(saved)
    index.unlink()
    with pytest.raises(SavedModelError, match=r"variables\.index: the variables' index cannot be read"):
        load_saved_model(saved)


def test_an_unknown_signature_and_other_inputs(saved):
    with pytest.raises(SignatureError, match="'serving_default' came, expected one of the model's: score"):
        load_saved_model(saved).freeze()
    with pytest.raises(SignatureError, match=r"inputs \['z'\] came, expected \['x'\]"):
        FrameworkModel(saved).call("score", {"z": np.zeros((1, 1), np.float32)})


def test_a_missing_vocabulary(tmp_path):
    (tmp_path / "words.txt").write_text("a\n")
    model = tf.Module()
    model.table = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(
        str(tmp_path / "words.txt"), tf.string, 0 - 2, tf.int64, 0 - 1), -1)
    model.f = tf.function(lambda w: {"n": model.table.lookup(w)}, input_signature=[tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(model, tmp_path / "m", {"score": model.f})
    (tmp_path / "m" / "assets" / "words.txt").unlink()
    with pytest.raises(SavedModelError, match=r"assets.words\.txt: the graph reads this vocabulary"):
        load_saved_model(tmp_path / "m")


def test_frozen_graphs_that_are_none(tmp_path):
    file, listing = tmp_path / "g.pb", tmp_path / "SIGNATURES.json"
    with pytest.raises(SavedModelError, match=r"g\.pb: expected a frozen graph, the file cannot be read"):
        load_frozen(file)
    file.write_bytes(b"\xff\xff")
    with pytest.raises(SavedModelError, match="2 bytes came that are no whole GraphDef"):
        load_frozen(file)
    file.write_bytes(b"")
    with pytest.raises(SavedModelError, match="one without nodes"):
        load_frozen(file)
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="x", op="Placeholder").attr["dtype"].type = tf.float32.as_datatype_enum
    file.write_bytes(graph_def.SerializeToString())
    with pytest.raises(SavedModelError, match=r"SIGNATURES\.json: names a frozen graph's inputs"):
        load_frozen(file)
    good = {"inputs": {"x": ["x:0", "float32", [-1]]}, "outputs": {"y": ["x:0", "float32"]}}
    for text, words in (
        ("{", "expected JSON"), ("[]", "no object for 'g.pb'; it has list"),
        ('{"a": {}}', "no object for 'g.pb'; it has a"),
        (json.dumps({"g.pb": {**good, "inputs": []}}), "inputs: expected an object of tensors"),
        (json.dumps({"g.pb": {**good, "inputs": {"x": "x:0"}}}), r"'x': expected \[tensor, dtype, shape\], came 'x:0'"),
        (json.dumps({"g.pb": {**good, "inputs": {"x": ["x:0", "float99", [1]]}}}), "expected a dtype .* 'float99'"),
        (json.dumps({"g.pb": {**good, "inputs": {"x": ["x:0", "float32", [-7]]}}}), r"expected a shape .*\[-7\]"),
        (json.dumps({"g.pb": {**good, "outputs": {"y": ["gone:0", "float32"]}}}), "'y': 'gone:0' is not in the graph"),
        (json.dumps({"g.pb": {**good, "outputs": {}}}), "no outputs"),
    ):
        listing.write_text(text)
        with pytest.raises(ModelsError, match=words):
            load_frozen(file)
    listing.write_text(json.dumps({"g.pb": good}))
    assert list(load_frozen(file).freeze().outputs) == ["y"]
