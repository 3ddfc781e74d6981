"""SavedModels of every kind, generated here: frozen, and equal to what the framework computes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from models.errors import FreezeError
from models.loaders import FrameworkModel, admit, load_saved_model

from .frozen_run import FrozenRun, assert_equal, ops

ROWS, DIM = 50, 3
RNG = np.random.default_rng(11)


def check(path, signature, inputs, **options):
    """Freezes, compares with the framework, and returns the frozen model."""
    loaded = load_saved_model(path)
    admit(loaded)
    frozen = loaded.freeze(signature, **options)
    assert_equal(FrozenRun(frozen)(inputs), FrameworkModel(path).call(signature, inputs))
    return frozen


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    file = tmp_path_factory.mktemp("vocabulary") / "words.txt"
    file.write_text("drama\ncomedy\nnoir\n")
    return file


@pytest.fixture(scope="module")
def keras_model(tmp_path_factory, vocabulary):
    """Keras 3: embeddings by id and by word, BatchNorm with real moments, dropout, exported."""
    ids, x = keras.Input((4,), dtype="int64", name="ids"), keras.Input((3,), name="x")
    words = keras.Input((1,), dtype="string", name="words")
    flat = keras.layers.Flatten()
    word = keras.layers.StringLookup(vocabulary=str(vocabulary))(words)
    hidden = keras.layers.Concatenate()([flat(keras.layers.Embedding(ROWS, DIM)(ids)), x,
                                         flat(keras.layers.Embedding(5, 2)(word))])
    norm = keras.layers.BatchNormalization()
    hidden = keras.layers.Dropout(0.5)(norm(hidden))
    model = keras.Model([ids, x, words], keras.layers.Dense(1, "sigmoid")(keras.layers.Dense(4, "relu")(hidden)))
    norm.set_weights([RNG.uniform(0.5, 2, size=w.shape) for w in norm.get_weights()])
    path = tmp_path_factory.mktemp("keras") / "model"
    model.export(path, verbose=False)
    return path


KERAS_INPUTS = {"ids": RNG.integers(0, ROWS, (7, 4)), "x": RNG.normal(size=(7, 3)).astype(np.float32),
                "words": np.array([[w] for w in "drama noir comedy western drama x noir".split()], object)}


@pytest.mark.parametrize("rows_min", [1_000, 10, 1])
def test_keras(keras_model, rows_min):
    frozen = check(keras_model, "serving_default", KERAS_INPUTS, rows_min=rows_min)
    assert [one.input for one in frozen.cuts] == ([] if rows_min == 1_000 else ["ids_rows"])
    assert set(frozen.inputs) == {"x", "words"} | ({"ids"} if rows_min == 1_000 else set())
    assert [table.shape for table in frozen.kept] == ([(5, 2)] if rows_min == 1 else [])
    (initializer,) = frozen.initializers
    assert initializer.file == "words.txt" and frozen.assets["words.txt"].read_text().startswith("drama")
    assert not frozen.random_ops and not ops(frozen) & {"StatefulPartitionedCall", "ReadVariableOp", "VarHandleOp"}


def test_tf_module_with_several_signatures_and_examples(tmp_path, vocabulary):
    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = tf.Variable(RNG.normal(size=(ROWS, DIM)).astype(np.float32), name="table")
            self.words = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(
                str(vocabulary), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER), 7)
            self.codes = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
                tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64)), 0)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="ids")])
        def by_id(self, ids):
            return {"score": tf.reduce_sum(tf.nn.embedding_lookup(self.table, ids), 1), "ids_again": ids + 1}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
        def by_example(self, examples):
            parsed = tf.io.parse_example(examples, {"word": tf.io.FixedLenFeature([], tf.string, ""),
                                                    "code": tf.io.FixedLenFeature([], tf.string, "")})
            rows = tf.nn.embedding_lookup(self.table, self.words.lookup(parsed["word"]))
            return {"score": tf.reduce_mean(rows, 1), "code": self.codes.lookup(parsed["code"])}

    model = Model()
    tf.saved_model.save(model, tmp_path, {"by_id": model.by_id, "by_example": model.by_example})
    frozen = check(tmp_path, "by_id", {"ids": np.array([4, 4, 49])})
    assert set(frozen.inputs) == {"ids"} and not frozen.initializers
    frozen = check(tmp_path, "by_id", {"ids": np.array([4, 4, 49])}, rows_min=1)
    assert [one.mode for one in frozen.cuts] == ["rows"] and set(frozen.inputs) == {"ids"}, "ids are read, too"

    examples = [tf.train.Example(features=tf.train.Features(feature={
        "word": tf.train.Feature(bytes_list=tf.train.BytesList(value=[word])),
        "code": tf.train.Feature(bytes_list=tf.train.BytesList(value=[code]))})).SerializeToString()
        for word, code in ((b"noir", b"a"), (b"unknown", b"b"), (b"drama", b"c"))]
    frozen = check(tmp_path, "by_example", {"examples": np.array([*examples, b""], object)}, rows_min=1)
    assert {one.file for one in frozen.initializers} == {"words.txt", None}
    assert "computed inside the graph" in frozen.kept[0].reason


def v1_model(path, build):
    """Saves what `build` gives, (inputs, outputs) by name, with the builder of TensorFlow 1."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        inputs, outputs = build()
        session.run(tf.compat.v1.global_variables_initializer())
        signature = tf.compat.v1.saved_model.predict_signature_def(inputs, outputs)
        builder = tf.compat.v1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": signature}, main_op=tf.compat.v1.tables_initializer(),
            assets_collection=tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.ASSET_FILEPATHS))
        builder.save()
    return path


def v1_scorer(resource):
    """x -> dropout(x w) behind a learning phase that is off by default, table looked up by ids."""
    ids = tf.compat.v1.placeholder(tf.int64, [None], "candidate")
    x = tf.compat.v1.placeholder(tf.float32, [None, DIM], "x")
    training = tf.compat.v1.placeholder_with_default(False, [], "learning_phase")
    rate = tf.compat.v1.placeholder_with_default(0.0, [], "rate")
    table = tf.compat.v1.get_variable("table", initializer=RNG.normal(size=(ROWS, DIM)).astype(np.float32),
                                      use_resource=resource)
    weights = tf.compat.v1.get_variable("w", initializer=RNG.normal(size=(DIM, DIM)).astype(np.float32),
                                        use_resource=resource)
    hidden = x @ weights
    hidden = tf.cond(training, lambda: tf.nn.dropout(hidden, rate=0.5), lambda: hidden * 1.0)
    hidden = tf.nn.dropout(hidden, rate=rate)
    rows = tf.nn.embedding_lookup(table, ids)
    return {"ids": ids, "x": x}, {"score": tf.reduce_sum(hidden * rows, 1)}


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("control_flow_v2", [False, True])
@pytest.mark.parametrize("rows_min", [1_000, 1])
def test_v1_builder(tmp_path, resource, control_flow_v2, rows_min):
    toggle = tf.compat.v1.enable_control_flow_v2 if control_flow_v2 else tf.compat.v1.disable_control_flow_v2
    toggle()
    try:
        v1_model(tmp_path / "m", lambda: v1_scorer(resource))
    finally:
        tf.compat.v1.enable_control_flow_v2()
    inputs = {"ids": np.array([3, 0, 49]), "x": RNG.normal(size=(3, DIM)).astype(np.float32)}
    frozen = check(tmp_path / "m", "serving_default", inputs, rows_min=rows_min)
    assert ops(frozen).isdisjoint({"Switch", "Merge", "If", "StatelessIf", "RandomUniform", "PlaceholderWithDefault",
                                   "VariableV2", "VarHandleOp"})
    assert not frozen.random_ops and [one.input for one in frozen.cuts] == (["ids_rows"] if rows_min == 1 else [])


@pytest.mark.parametrize("resource", [False, True])
def test_moving_averages_when_asked(tmp_path, resource):
    """A shadow saved beside its variable takes its place."""
    shadow = np.full((2, 1), 7, np.float32)

    def build():
        x = tf.compat.v1.placeholder(tf.float32, [None, 2], "x")
        w = tf.compat.v1.get_variable("w", initializer=np.ones((2, 1), np.float32), use_resource=resource)
        tf.compat.v1.get_variable("w/ExponentialMovingAverage", initializer=shadow, use_resource=resource)
        return {"x": x}, {"y": x @ w}

    loaded = load_saved_model(v1_model(tmp_path / "m", build))
    x = {"x": np.array([[1, 2]], np.float32)}
    plain, averaged = loaded.freeze(), loaded.freeze(moving_averages=True)
    assert FrozenRun(plain)(x)["y"].tolist() == [[3.0]] and plain.averaged == ()
    assert FrozenRun(averaged)(x)["y"].tolist() == [[21.0]] and averaged.averaged == ("w",)


def test_v1_vocabulary_file(tmp_path, vocabulary):
    def build():
        words = tf.compat.v1.placeholder(tf.string, [None], "words")
        table = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(
            str(vocabulary), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER), -1)
        tf.compat.v1.get_variable("unused", initializer=0.0)
        return {"words": words}, {"number": table.lookup(words)}

    frozen = check(v1_model(tmp_path / "m", build), "serving_default", {"words": np.array(["noir", "?"], object)})
    assert len(frozen.initializers) == 1 and frozen.initializers[0].file == "words.txt"


def test_a_v2_load_that_fails_goes_through_the_v1_loader(tmp_path):
    """Two objects under one name cannot be brought back as Python; a session runs the graph all the same."""
    model = tf.Module()
    model.w = tf.Variable([[2.0]], name="w")
    model.f = tf.function(lambda x: {"y": x @ model.w}, input_signature=[tf.TensorSpec([None, 1], name="x")])
    tf.saved_model.save(model, tmp_path, {"serving_default": model.f})
    from tensorflow.core.protobuf import saved_model_pb2
    file = tmp_path / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for node in saved.meta_graphs[0].object_graph_def.nodes:
        if node.WhichOneof("kind") == "variable":
            node.user_object.identifier, node.user_object.version.producer = "_a_layer_of_code_that_is_gone", 1
    file.write_bytes(saved.SerializeToString())
    (tmp_path / "fingerprint.pb").unlink(missing_ok=True)
    framework = FrameworkModel(tmp_path)
    assert framework.loader == "v1" and framework.v2_failure
    x = {"x": np.array([[1.5]], np.float32)}
    assert framework.call("serving_default", x)["y"].tolist() == [[3.0]]
    assert check(tmp_path, "serving_default", x).inputs["x"].name == "x:0"


@pytest.mark.parametrize("rows_min", [1_000, 1])
def test_variables_in_branches_and_loops(tmp_path, rows_min):
    cell = keras.layers.GRU(4, return_sequences=True)
    ids, flag = keras.Input((6,), dtype="int32", name="ids"), tf.TensorSpec([], tf.bool, name="flag")
    model = keras.Model(ids, keras.layers.Dense(1)(cell(keras.layers.Embedding(ROWS, DIM)(ids))))
    bias = tf.Variable(RNG.normal(size=(20, 1)).astype(np.float32), name="bias")
    holder = tf.Module()
    holder.kept = [bias, *(variable.value for variable in model.variables)]

    @tf.function(input_signature=[tf.TensorSpec([None, 6], tf.int32, name="ids"), flag])
    def serve(ids, flag):
        scores = model(ids)[:, -1]
        return {"y": tf.cond(flag, lambda: scores + tf.gather(bias, ids[:, 0] % 20),
                             lambda: scores * bias[0] + tf.nn.embedding_lookup(bias, ids[:, 1] % 20))}

    tf.saved_model.save(holder, tmp_path, {"serving_default": serve})
    for flag in (True, False):
        inputs = {"ids": RNG.integers(0, ROWS, (5, 6)).astype(np.int32), "flag": np.array(flag)}
        frozen = check(tmp_path, "serving_default", inputs, rows_min=rows_min)
    assert "VarHandleOp" not in ops(frozen)


def test_what_cannot_be_frozen_says_why(tmp_path):
    class Counter(tf.Module):
        def __init__(self):
            super().__init__()
            self.calls = tf.Variable(0.0)
            self.words = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
            self.big = tf.Variable(np.zeros((40, 2), np.float32))

        @tf.function(input_signature=[tf.TensorSpec([], name="x")])
        def count(self, x):
            return {"y": self.calls.assign_add(x)}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
        def look_up(self, word):
            return {"number": self.words.lookup(word)}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="ids")])
        def computed(self, ids):
            return {"y": tf.nn.embedding_lookup(self.big, ids * 2)}

    model = Counter()
    model.words.insert(tf.constant(["a"]), tf.constant([5], tf.int64))
    tf.saved_model.save(model, tmp_path, {"count": model.count, "look_up": model.look_up, "computed": model.computed})
    loaded = load_saved_model(tmp_path)
    with pytest.raises(FreezeError, match="SavedModel: variable .* is used as a handle by .*AssignAddVariableOp"):
        loaded.freeze("count")
    with pytest.raises(FreezeError, match="filled by no initialisation"):
        loaded.freeze("look_up")
    with pytest.raises(FreezeError, match="has 320 bytes.*stays: the ids of lookup .* are computed inside"):
        loaded.freeze("computed", rows_min=10, constant_bytes_max=200)
    assert loaded.freeze("computed", rows_min=10).kept[0].shape == (40, 2)
    served = FrameworkModel(tmp_path)
    assert served.call("look_up", {"word": np.array(["a", "b"], object)})["number"].tolist() == [5, -1]
    assert [served.call("count", {"x": np.float32(2)})["y"] for _ in range(2)] == [2, 4]
