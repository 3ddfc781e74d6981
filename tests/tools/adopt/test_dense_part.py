"""The dense part of generated models: whatever stays in front, scores are the original's, and passes keep them."""

import numpy as np
import pytest
import tensorflow as tf

from models.loaders import load_saved_model
from models.passes import apply
from models.rewritten import run as framework_scores
from tools.adopt import NoDensePart
from tools.adopt.dense_part import dense_part
from tools.adopt.exported import CutRows, ExportedGraph, Original
from tools.adopt.requests import Request

WIDTH = 4


def random_model(rng):
    """A function of user and item features [n, WIDTH] and words [n]: dense layers, and operations that engines lack,
    drawn at random."""
    weights = iter(rng.normal(size=(40, WIDTH, WIDTH)).astype(np.float32))

    def through_text(x):
        return tf.strings.to_number(tf.strings.as_string(tf.round(x * 4))) / 4

    def through_where(x):
        places = tf.where(x[:, 0] > 0)[:, 0]
        return tf.scatter_nd(places[:, None], tf.gather(x, places), tf.shape(x, out_type=tf.int64))

    def looked_up(x):
        return tf.gather(next(weights), tf.cast(tf.abs(x[:, 0]) * 10, tf.int64) % WIDTH)

    def branch(x):
        return tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: x - 1)

    def reshaped(x):
        return tf.reshape(tf.reshape(x, [-1, 2, WIDTH // 2]), tf.shape(x))

    steps = [lambda x: tf.nn.relu(x @ next(weights)), through_text, through_where, looked_up, reshaped,
             lambda x: tf.clip_by_value(x, -1.0, 1.0), branch]

    def score(user, item, words):
        tensors = [user, item, tf.strings.to_number(words)[:, None] * tf.ones([1, WIDTH])]
        for _ in range(rng.integers(2, 8)):
            at = rng.integers(0, len(tensors))
            tensors.append(steps[rng.integers(0, len(steps))](tensors[at]))
        hidden = tf.concat(tensors, 1)
        out = hidden @ tf.constant(rng.normal(size=(hidden.shape[1], 2)).astype(np.float32))
        return {"y": tf.sigmoid(out[:, 0]), "both": tf.tanh(out)}

    return score


def drawn(rng, rows):
    return {"user": np.repeat(rng.normal(size=(1, WIDTH)).astype(np.float32), rows, 0),
            "item": rng.normal(size=(rows, WIDTH)).astype(np.float32),
            "words": np.array([str(n).encode() for n in rng.integers(-3, 4, rows)], object)}


@pytest.mark.parametrize("seed", range(12))
def test_scores_are_the_original_s(tmp_path, seed):
    rng = np.random.default_rng(seed)
    model = tf.Module()
    model.f = tf.function(random_model(rng), autograph=False, input_signature=[
        tf.TensorSpec([None, WIDTH], name="user"), tf.TensorSpec([None, WIDTH], name="item"),
        tf.TensorSpec([None], tf.string, name="words")])
    tf.saved_model.save(model, str(tmp_path), {"serving_default": model.f})
    loaded = load_saved_model(tmp_path)
    frozen, original = loaded.freeze(), Original(loaded, loaded.signature("serving_default"))
    exported = ExportedGraph(frozen)
    requests = [Request(at, drawn(rng, rows), rows) for at, rows in enumerate((1, 2, 9, 30))]
    for user in ((), ("user",)):
        part = dense_part(frozen, exported, requests, user)
        assert set(part.heads) == {"y", "both[0]", "both[1]"} and part.front
        assert ("user" in {entry.side for entry in part.plain.inputs}) <= bool(user)
        for request in requests:
            fed = exported.feeds(request.inputs)
            values = fed | dict(zip(part.front, exported.fetcher(part.front)(fed), strict=True))
            want = part.scores(original.call(request.inputs))
            for dense in (part.plain, apply(part.plain)):
                got = framework_scores(dense, part.feeds(values))
                for head, scores in want.items():
                    np.testing.assert_allclose(got[head], scores, atol=2e-6, rtol=2e-6, err_msg=head)


def test_reasons(tmp_path):
    def part(function, *specs, **inputs):
        model = tf.Module()
        model.f = tf.function(function, input_signature=specs)
        tf.saved_model.save(model, str(tmp_path), {"serving_default": model.f})
        frozen = load_saved_model(tmp_path).freeze()
        rows = len(next(iter(inputs.values())))
        return dense_part(frozen, ExportedGraph(frozen), [Request(0, inputs, rows)], tuple(inputs))

    x, numbers = tf.TensorSpec([None, 3], name="x"), np.ones((5, 3), np.float32)
    for function, words in (
        (lambda x: {"y": tf.reduce_sum(x)}, "no output is a score a candidate: y: not one row a candidate"),
        (lambda x: {"y": tf.cast(x, tf.int32)}, "y: int32, not float32"),
        (lambda x: {"y": tf.tile(x, [1, 9])}, r"y: \[27\] values a candidate"),
        (lambda x: {"y": x * 2}, "every input of the dense part has the same value in all rows"),
        (lambda x: {"y": tf.identity(x)}, "its outputs are its inputs"),
        (lambda x: {"y": tf.strings.to_number(tf.strings.as_string(x))}, r"\(StringToNumber\) has string"),
    ):
        with pytest.raises(NoDensePart, match=words):
            part(function, x, x=numbers)


def test_rows_of_a_table_that_does_not_fit_are_read_one_by_one(monkeypatch):
    class Table:
        shape, dtype = (7, 2), np.dtype(np.float32)
        values = np.arange(14, dtype=np.float32).reshape(7, 2)

        def read(self, start, stop):
            return self.values[start:stop]

    whole = CutRows(Table())
    monkeypatch.setattr("tools.adopt.exported._TABLE_BYTES_MAX", 0)
    parts = CutRows(Table())
    for ids in (np.array([[3, 3], [0, -1]]), np.zeros(0, np.int64), np.arange(7)):
        out = np.empty((*ids.shape, 2), np.float32)
        for rows in (whole, parts):
            np.testing.assert_array_equal(rows(ids), Table.values[ids])
            np.testing.assert_array_equal(rows(ids, out=out), Table.values[ids])
    for rows in (whole, parts):
        for bad in (7, -8):
            with pytest.raises(IndexError):
                rows(np.array([0, bad]))
