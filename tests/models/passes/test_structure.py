"""Passes recognise structure, not names: on generated graphs of random names, widths, tilings and orders, FLOPs fall
to what each graph needs at least, and the scores stay the same."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import tensorflow as tf

from models.passes.chain import apply
from models.passes.cost import cost

from .dense_runs import feeds_of, graph_of, scores_of

GRAPHS, CANDIDATES, ROWS = 200, 200, 6


@dataclass
class Counted:
    """FLOPs that the graph needs at least: of what depends on the user alone, and for each candidate."""

    once: int = 0
    each: int = 0
    inputs: dict = field(default_factory=dict)

    def total(self, n: int) -> int:
        return self.once + n * self.each


class Writer:
    """Writes one random graph as a framework would, and counts."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.count = Counted()
        self.n = None

    def pick(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def weights(self, *shape):
        return (self.rng.normal(0, 1, shape) * np.sqrt(1.0 / shape[0])).astype(np.float32)

    def name(self, _):
        return "".join(self.rng.choice(list("abcdefghijklmnopqrstuvwxyz_0123456789"), 12)).join(["x", ""])

    def repeated(self, x):
        """x for every candidate, in one of the ways in which that is written."""
        shape = x.shape.as_list()
        way = self.pick("tile", "broadcast", "ones", "repeat")
        if way == "tile":
            return tf.tile(x, tf.stack([self.n] + [1] * (len(shape) - 1)))
        if way == "broadcast":
            return tf.broadcast_to(x, tf.concat([[self.n], shape[1:]], 0))
        if way == "ones":
            return tf.multiply(x, tf.ones(tf.concat([[self.n], [1] * (len(shape) - 1)], 0)))
        return tf.tile(x, tf.concat([[self.n], tf.ones([len(shape) - 1], tf.int32)], 0))

    def dense(self, x, units, act=tf.nn.relu):
        w, b = self.weights(x.shape[-1], units), self.weights(units)
        y = tf.matmul(x, w, name=self.name(0)) if self.pick(0, 1) else tf.matmul(x, w.T.copy(), transpose_b=True)
        y = tf.nn.bias_add(y, b) if self.pick(0, 1) else y + b
        if self.pick(0, 0, 1):
            y = y * (1 + 0.1 * self.weights(units)) + self.weights(units)
        return act(y) if act else y

    def mlp(self, x, layers, once=0, each=0, units=None):
        """Layers over a concatenation of `once` user columns and `each` item columns."""
        for i in range(layers):
            units = int(self.rng.integers(8, 64))
            if i == 0:
                self.count.once += 2 * units * once
                self.count.each += 2 * units * each
            elif each:
                self.count.each += 2 * units * x.shape[-1]
            else:
                self.count.once += 2 * units * x.shape[-1]
            x = self.dense(x, units)
        return x

    def shuffled(self, parts):
        return [parts[i] for i in self.rng.permutation(len(parts))]

    def attention(self, query, keys, length, dim):
        hidden = int(self.rng.integers(8, 48))
        keys_n = self.repeated(keys)
        query_n = tf.tile(query[:, None, :], [1, length, 1]) if self.pick(0, 1) else tf.broadcast_to(
            tf.expand_dims(query, 1), tf.shape(keys_n))
        parts = self.shuffled([query_n, keys_n, query_n - keys_n, query_n * keys_n])
        x = tf.concat(parts, -1)
        w, b, v = self.weights(4 * dim, hidden), self.weights(hidden), self.weights(hidden, 1)
        if self.pick(0, 1):
            x = tf.tensordot(x, w, [[2], [0]])
            logits = tf.squeeze(tf.tensordot(tf.nn.relu(x + b), v, [[2], [0]]), 2)
        else:
            x = tf.matmul(tf.reshape(x, [-1, 4 * dim]), w)
            logits = tf.reshape(tf.matmul(tf.nn.relu(tf.nn.bias_add(x, b)), v), [-1, length])
        weights = tf.nn.softmax(logits)
        self.count.each += 2 * length * dim * hidden + 2 * length * hidden + 2 * length * dim + 2 * dim * hidden
        self.count.once += 2 * length * dim * hidden
        return tf.squeeze(tf.matmul(tf.expand_dims(weights, 1), keys_n), 1)

    def build(self, fed):
        rng, count = self.rng, self.count
        items = [x for n, x in fed.items() if n.startswith("item")]
        users = [x for n, x in fed.items() if n.startswith("user")]
        self.n = tf.shape(items[0])[0]
        d_user, d_item = sum(x.shape[1] for x in users), sum(x.shape[1] for x in items)
        if self.pick(0, 1):  # a tower of the user's own, over tiled inputs
            tower = self.mlp(tf.concat([self.repeated(x) for x in users], 1), 2, once=d_user)
            parts, d_user = [tower], tower.shape[1]
        else:
            parts = [self.repeated(x) for x in users] if self.pick(0, 1) else [self.repeated(tf.concat(users, 1))]
        parts += items
        if "keys" in fed:
            seen = self.attention(fed["query"], fed["keys"], fed["keys"].shape[1], fed["keys"].shape[2])
            parts.append(seen)
            d_item += seen.shape[1]
        x = tf.concat(self.shuffled(parts), 1)
        if self.pick(0, 1):  # experts and a gate for each head
            experts = int(rng.integers(2, 5))
            units = int(rng.integers(8, 64))
            outs = [self.dense(x, units) for _ in range(experts)]
            gates = [tf.nn.softmax(self.dense(x, experts, None)) for _ in range(2)]
            columns = experts * units + 2 * experts
            count.once += 2 * d_user * columns
            count.each += 2 * d_item * columns
            stacked = tf.stack(outs, 1)
            mixed = [tf.squeeze(tf.matmul(g[:, None, :], stacked), 1) for g in gates]
            count.each += 2 * 2 * experts * units
            heads = [self.dense(m, 1, None) for m in mixed]
            count.each += 2 * 2 * units
        else:
            x = self.mlp(x, int(rng.integers(1, 4)), d_user, d_item)
            heads = [self.dense(x, 1, None) for _ in range(int(rng.integers(1, 4)))]
            count.each += 2 * len(heads) * x.shape[-1]
        return [tf.sigmoid(tf.reshape(h, [-1]) if self.pick(0, 1) else h[:, 0]) for h in heads]

    def inputs(self):
        rng = self.rng
        fed = {f"user{i}": (1, int(rng.integers(4, 48))) for i in range(rng.integers(1, 4))}
        fed |= {f"item{i}": (None, int(rng.integers(4, 48))) for i in range(rng.integers(1, 4))}
        if self.pick(0, 1):
            dim = int(rng.integers(40, 64))
            fed |= {"query": (None, dim), "keys": (1, int(rng.integers(5, 30)), dim)}
        names = list(fed)
        return {names[i]: fed[names[i]] for i in rng.permutation(len(names))}


@pytest.mark.parametrize("first", range(0, GRAPHS, 20))
def test_generated_graphs(first):
    """FLOPs of at most 1.05 times the least that was counted while writing; scores equal."""
    for seed in range(first, first + 20):
        writer = Writer(seed)
        dense = graph_of(writer.inputs(), writer.build, writer.name)
        after = apply(dense)
        least, now = writer.count.total(CANDIDATES), cost(after, CANDIDATES).flops
        assert now <= 1.05 * least, f"graph {seed}: {now} FLOPs, {least} would do"
        feeds = feeds_of(dense, ROWS, seed)
        want, got = scores_of(dense, feeds), scores_of(after, feeds)
        for head, value in want.items():
            np.testing.assert_allclose(got[head], value, atol=1e-6, rtol=0, err_msg=f"graph {seed}")
