"""Models and recorded requests for the tests of `adopt`, made here."""

import numpy as np
import tensorflow as tf

from tools.adopt import prediction_log_pb2 as pb

ROWS, DIM, WIDTH = 1500, 4, 6


class Ranker(tf.Module):
    """User features beside items' rows of a table, a layer, two heads: [n] and [n, 2]."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(3)
        self.table = tf.Variable(rng.normal(size=(ROWS, DIM)).astype(np.float32), name="items")
        self.w = tf.Variable(rng.normal(size=(WIDTH + DIM, 8)).astype(np.float32), name="w")
        self.v = tf.Variable(rng.normal(size=(8, 3)).astype(np.float32), name="v")

    @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], tf.float32, "user"),
                                  tf.TensorSpec([None], tf.int64, "item")])
    def score(self, user, item):
        """The signature."""
        hidden = tf.nn.relu(tf.concat([user, tf.nn.embedding_lookup(self.table, item)], 1) @ self.w)
        scores = tf.sigmoid(hidden @ self.v)
        return {"click": scores[:, 0], "pair": scores[:, 1:], "best": tf.argmax(scores, 1)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
    def parse(self, examples):
        """The same over serialised tf.Examples."""
        parsed = tf.io.parse_example(examples, {"user": tf.io.FixedLenFeature([WIDTH], tf.float32),
                                                "item": tf.io.FixedLenFeature([], tf.int64)})
        return {"click": self.score(parsed["user"], parsed["item"])["click"]}


def save_ranker(path):
    """A SavedModel with signatures serving_default and examples."""
    model = Ranker()
    tf.saved_model.save(model, str(path), {"serving_default": model.score, "examples": model.parse})
    return path


def requests(count=5, rows=20, seed=0):
    """Inputs of `count` requests: one user each, `rows` items and more from request to request."""
    rng = np.random.default_rng(seed)
    return [{"user": np.repeat(rng.normal(size=(1, WIDTH)).astype(np.float32), rows + at, axis=0),
             "item": rng.integers(0, ROWS, rows + at)} for at in range(count)]


def predict_log(inputs, signature=""):
    """A PredictionLog's bytes."""
    log = pb.PredictionLog()
    request = log.predict_log.request
    request.model_spec.name, request.model_spec.signature_name = "ranker", signature
    for name, value in inputs.items():
        request.inputs[name] = tf.make_tensor_proto(value).SerializeToString()
    return log.SerializeToString()


def write_records(path, records):
    """A TFRecord."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return path


def example(inputs, row, *names):
    """One row of a request as a serialised tf.Example with the features `names`."""
    features = tf.train.Features()
    if "user" in names:
        features.feature["user"].float_list.value.extend(inputs["user"][row].tolist())
    if "item" in names:
        features.feature["item"].int64_list.value.append(int(inputs["item"][row]))
    return tf.train.Example(features=features).SerializeToString()
