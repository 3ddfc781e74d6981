"""Each pass: the same scores, and the structure that it promises."""

import numpy as np
import pytest
import tensorflow as tf

from models.errors import ConfigError, GraphError
from models.passes.chain import PASSES, apply
from models.passes.cost import cost
from models.passes.dense import DenseGraph
from models.zoo import NAMES, get

from .dense_runs import assert_same, feeds_of, graph_of, ops_of, scores_of

RNG = np.random.default_rng(7)


def weights(*shape):
    """Random constants."""
    return RNG.normal(0, 0.3, shape).astype(np.float32)


def run(dense, *names):
    """The graph after some passes."""
    for name in names:
        dense = PASSES[name](dense)
    return dense


def products(dense):
    """How many matrix products there are."""
    return sum(op in ("MatMul", "BatchMatMulV2") for op in ops_of(dense))


def tiled(x, like):
    """x repeated to the rows of `like`."""
    return tf.tile(x, [tf.shape(like)[0]] + [1] * (x.shape.rank - 1))


@pytest.mark.parametrize("model", NAMES)
def test_every_pass_on_every_zoo_model(model):
    """One pass after the other leaves the scores as they are, and in the end fewer FLOPs."""
    dense, feeds = get(model, "small").dense()
    fed = feeds(9, np.random.default_rng(1))
    want, first = scores_of(dense, fed), cost(dense, 100)
    for name, one in PASSES.items():
        dense = one(dense)
        for head, value in scores_of(dense, fed).items():
            np.testing.assert_allclose(value, want[head], atol=1e-6, rtol=0, err_msg=f"after {name}")
    last = cost(dense, 100)
    for node in (node for graph in dense.graphs().values() for node in graph.node):
        known = {attr.name for attr in tf.Graph().op_def_for_type(node.op).attr}
        assert set(node.attr) <= known, f"{node.name} has attributes that {node.op} does not know"
    assert last.flops < first.flops and last.bytes < 1.05 * first.bytes and dense.user is not None


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 1e-45, -0.0, 1e-12])
def test_folding_changes_no_value(special):
    """What is folded is bit for bit what the op gives."""
    def build(x):
        c = tf.constant(np.float32(special))
        return [tf.reshape(x["a"], [-1]) * 0 + tf.stack([c + 0.0, c * 1.0, tf.sqrt(tf.abs(c)), c - c, 1.0 / c])[i]
                for i in range(5)]

    dense = graph_of({"a": (None, 1)}, build)
    folded = run(dense, "fold_constants")
    feeds = feeds_of(dense, 3)
    for head, value in scores_of(dense, feeds).items():
        assert scores_of(folded, feeds)[head].tobytes() == value.tobytes()
    assert "Sqrt" not in ops_of(folded) and "Mul" in ops_of(folded), "x * 0 is not 0 for every x"


def test_folding_keeps_random_ops():
    """An op that gives another value each time is no constant."""
    dense = graph_of({"a": (None, 1)}, lambda x: [tf.reshape(x["a"], [-1]) + tf.random.uniform([])])
    assert "RandomUniform" in ops_of(run(dense, "fold_constants"))


def test_dense_layers_over_three_dimensions_become_one_product():
    """What Keras writes with a dozen shape ops."""
    w = weights(6, 4)

    def build(x):
        shape = tf.shape(x["a"])
        flat = tf.matmul(tf.reshape(x["a"], [-1, 6]), w)
        back = tf.reshape(flat, tf.concat([shape[:-1], [4]], 0))
        return [tf.reduce_sum(tf.squeeze(tf.expand_dims(back, 1), 1), axis=[1, 2])]

    dense = graph_of({"a": (None, 5, 6)}, build)
    plain = run(dense, "fold_constants", "simplify_shapes")
    assert_same(dense, plain)
    assert sorted(set(ops_of(plain)) - {"Const", "Placeholder"}) == ["BatchMatMulV2", "Sum"]
    flat = run(plain, "flatten_products")
    assert_same(dense, flat)
    assert "BatchMatMulV2" not in ops_of(flat)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_stacking_becomes_concatenation(axis):
    """Along any axis, the last included."""
    def build(x):
        stacked = tf.stack([x["a"], 2 * x["a"], x["b"]], axis=axis)
        return [tf.reduce_sum(stacked * tf.reshape(tf.range(3.0), [3 if a == axis else 1 for a in range(3)]),
                              axis=[a for a in range(3) if a != (1 if axis == 0 else 0)])]

    dense = graph_of({"a": (None, 4), "b": (None, 4)}, build)
    plain = run(dense, "fold_constants", "simplify_shapes")
    assert_same(dense, plain)
    assert "Pack" not in ops_of(plain) or axis == 0


def test_batch_norm_goes_into_the_layer_before():
    """Scale and offset disappear, the product stays one; a product that others read stays as it is."""
    w, b, scale, offset = weights(6, 4), weights(4), weights(4), weights(4)

    def build(x, shared=False):
        y = tf.nn.bias_add(tf.matmul(x["a"], w), b)
        z = tf.nn.relu(y * scale - offset)
        return [tf.reduce_sum(z + y if shared else z, axis=1)]

    dense = graph_of({"a": (None, 6)}, build)
    folded = run(dense, "fold_batch_norm")
    assert_same(dense, folded)
    assert ops_of(folded).count("Mul") == 0 and ops_of(folded).count("AddV2") == 1
    both = graph_of({"a": (None, 6)}, lambda x: build(x, shared=True))
    assert_same(both, run(both, "fold_batch_norm"))
    assert products(run(both, "fold_batch_norm")) == 1 and "Mul" in ops_of(run(both, "fold_batch_norm"))


def test_a_vector_of_candidates_has_no_columns_to_scale():
    """What SavedModels of inputs [n] do with them: the candidates are no columns of a layer."""
    dense = graph_of({"a": (None,), "b": (None, 3)},
                     lambda x: [tf.reduce_sum(tf.matmul(x["b"], weights(3, 2)), 1) * 2.0 + x["a"] * 0.5 - 1.0])
    assert_same(dense, run(dense, "fold_batch_norm"))
    transposed = graph_of({"b": (None, 3)}, lambda x: [
        tf.transpose(tf.matmul(weights(2, 3), x["b"], transpose_b=True) * 3.0)[:, 0]])
    assert_same(transposed, run(transposed, "fold_batch_norm"))


def test_keras_batch_norm_with_a_small_epsilon():
    """Moments so small that epsilon is all there is."""
    variance, gamma = np.full(4, 1e-14, np.float32), np.full(4, 1e-3, np.float32)
    w = weights(6, 4)

    def build(x):
        factor = tf.math.rsqrt(tf.constant(variance) + 1e-6) * gamma
        y = tf.matmul(x["a"], w)
        return [tf.reduce_sum(y * factor + (0.5 - 0.25 * factor), axis=1)]

    dense = graph_of({"a": (None, 6)}, build)
    folded = run(dense, "fold_constants", "fold_batch_norm")
    assert_same(dense, folded)
    assert "Rsqrt" not in ops_of(folded) and "Mul" not in ops_of(folded)


def test_tiles_sink_until_nothing_is_repeated():
    """Through elementwise ops, softmax, reductions and products; broadcasting ops need no tile at all."""
    w = weights(6, 6)

    def build(x):
        u = tiled(x["u"], x["a"])
        u = tf.nn.softmax(tf.nn.relu(tf.matmul(u, w)) * 2.0)
        u = u - tf.reduce_mean(u, axis=1, keepdims=True)
        return [tf.reduce_sum(tf.maximum(u, x["a"]) + tf.broadcast_to(x["u"], tf.shape(x["a"])), axis=1)]

    dense = graph_of({"u": (1, 6), "a": (None, 6)}, build)
    sunk = run(dense, "fold_constants", "simplify_shapes", "sink_tiles")
    assert_same(dense, sunk)
    assert not {"Tile", "BroadcastTo"} & set(ops_of(sunk))
    assert cost(sunk, 1000).flops == cost(sunk, 1).flops, "the user's product still follows the candidates"


def test_a_head_of_the_user_alone_still_has_a_score_for_each_candidate():
    """The last repetition stays."""
    dense = graph_of({"u": (1, 6), "a": (None, 2)},
                     lambda x: [tf.reduce_sum(tiled(x["u"], x["a"]), axis=1), tf.reduce_sum(x["a"], axis=1)])
    assert_same(dense, apply(dense))


@pytest.mark.parametrize("axis", [0, -2])
def test_tiles_do_not_sink_past_what_mixes_candidates(axis):
    """A sum or a softmax over the candidates, a concatenation of candidates."""
    def build(x):
        u = tiled(x["u"], x["a"])
        mixed = tf.reduce_sum(u + x["a"], axis=axis) + tf.reduce_sum(u, axis=axis)
        both = tf.concat([u, x["a"]], axis=axis)[: tf.shape(x["a"])[0]]
        return [tf.reduce_sum(x["a"] * mixed + both, axis=1)]

    dense = graph_of({"u": (1, 3), "a": (None, 3)}, build)
    assert_same(dense, apply(dense))


def test_parallel_layers_become_one_product():
    """Experts with ReLU, gates with softmax, and heads of width 1 with sigmoid."""
    first = [weights(6, 5) for _ in range(3)] + [weights(6, 3)]
    biases, last = [weights(5) for _ in range(3)] + [weights(3)], [weights(5, 1) for _ in range(3)]

    def build(x):
        *experts, gate = [tf.nn.bias_add(tf.matmul(x["a"], w), b) for w, b in zip(first, biases)]
        gate = tf.nn.softmax(gate)
        mixed = sum(gate[:, i:i + 1] * tf.nn.relu(e) for i, e in enumerate(experts))
        return [tf.sigmoid(tf.matmul(mixed, w)[:, 0]) for w in last]

    dense = graph_of({"a": (None, 6)}, build)
    merged = run(dense, "fold_constants", "simplify_shapes", "merge_parallel")
    assert_same(dense, merged)
    assert products(dense) == 7 and products(merged) == 2
    assert ops_of(merged).count("Relu") == 1 and ops_of(merged).count("Sigmoid") == 1
    packed = run(merged, "pack_outputs")
    assert_same(dense, packed)
    assert [h.row for h in packed.heads] == [0, 1, 2] and len(packed.outputs) == 1 and "Transpose" in ops_of(packed)


def test_layers_with_other_tails_are_cut_where_they_part():
    """One product; each goes its own way after it."""
    w = [weights(6, 4) for _ in range(3)]

    def build(x):
        a, b, c = (tf.matmul(x["a"], one) for one in w)
        return [tf.reduce_sum(tf.nn.relu(a) * tf.tanh(b) + tf.nn.relu(c) * a, axis=1)]

    dense = graph_of({"a": (None, 6)}, build)
    merged = run(dense, "merge_parallel")
    assert_same(dense, merged)
    assert products(merged) == 1


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_products_over_concatenation_fall_apart(order):
    """The user's part is multiplied once, whatever the order."""
    w, b = weights(6 + 5 + 3, 4), weights(4)

    def build(x):
        parts = [tiled(x["u"], x["a"]), x["a"], tiled(x["v"], x["a"])]
        y = tf.matmul(tf.concat([parts[i] for i in order], axis=1), w)
        return [tf.reduce_sum(tf.nn.relu(tf.nn.bias_add(y, b)), axis=1)]

    dense = graph_of({"u": (1, 6), "a": (None, 5), "v": (1, 3)}, build)
    apart = run(dense, "fold_constants", "simplify_shapes", "sink_tiles", "distribute_products")
    assert_same(dense, apart)
    assert cost(apart, 100).flops == 2 * 4 * (100 * 5 + 9)
    split = PASSES["split_user"](apart)
    assert_same(dense, split)
    assert split.shared[0].shape == (1, 4) and cost(split, 100).flops_item == 2 * 4 * 100 * 5


def attention(order=(0, 1, 2, 3), dim=8):
    """Target attention as models write it, the parts in some order."""
    w, b, v = weights(4 * dim, 6), weights(6), weights(6, 1)

    def build(x):
        keys = tiled(x["k"], x["q"])
        query = tf.broadcast_to(x["q"][:, None, :], tf.shape(keys))
        parts = [query, keys, query - keys, query * keys]
        hidden = tf.nn.relu(tf.nn.bias_add(tf.matmul(tf.concat([parts[i] for i in order], axis=-1), w), b))
        weight = tf.nn.softmax(tf.matmul(hidden, v)[:, :, 0])
        return [tf.reduce_sum(tf.matmul(weight[:, None, :], keys)[:, 0, :], axis=1)]

    return graph_of({"q": (None, dim), "k": (1, 10, dim)}, build)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_attention_falls_apart(order):
    """Of four parts one is as large as before; then it, too, is never written down."""
    dense = attention(order)
    chain = ("fold_constants", "simplify_shapes", "sink_tiles", "distribute_products")
    apart = run(dense, *chain)
    assert_same(dense, apart)
    n, length, dim, hidden = 100, 10, 8, 6
    left = 2 * n * length * (hidden + dim)  # scores, and the weighted sum
    assert cost(apart, n).flops == left + 2 * hidden * dim * (n * length + n + length)
    joined = run(apart, "candidate_weights")
    assert_same(dense, joined)
    assert cost(joined, n).flops == left + 2 * n * length * hidden * (dim + 2) + 2 * hidden * n * dim
    assert cost(joined, n).bytes < cost(apart, n).bytes
    assert_same(dense, apply(dense))


def test_what_the_user_shares_is_never_an_input_renamed():
    """Only computed float32 tensors go from graph to graph."""
    dense = apply(attention())
    assert all(entry.dtype == "f32" and entry.shape[0] == 1 for entry in dense.shared)
    placeholders = {n.name for n in dense.user.node if n.op == "Placeholder"}
    assert not placeholders & {entry.name.split(":")[0] for entry in dense.shared}


def test_nothing_to_split():
    """Without a user, one graph; twice split is split once."""
    dense = graph_of({"a": (None, 3)}, lambda x: [tf.reduce_sum(x["a"], axis=1)])
    assert PASSES["split_user"](dense).user is None
    once = apply(attention())
    assert PASSES["split_user"](once) is once


@pytest.mark.parametrize("model", NAMES)
def test_a_score_does_not_depend_on_its_neighbours(model):
    """One row alone and inside 2, 3, 32 and 512 rows, first and last."""
    dense, feeds = get(model, "small").dense()
    dense, fed = apply(dense), feeds(512, np.random.default_rng(3))
    items = {entry.name for entry in dense.inputs if entry.side == "item"}

    def rows(begin, end):
        return scores_of(dense, {k: v[begin:end] if k in items else v for k, v in fed.items()})

    alone = {place: rows(place, place + 1) for place in (100, 511)}
    for count in (2, 3, 32, 512):
        first, last = rows(100, 100 + count) if count < 400 else rows(0, 512), rows(512 - count, 512)
        for head in alone[100]:
            at = 0 if count < 400 else 100
            assert abs(first[head][at] - alone[100][head][0]) <= 1e-6
            assert abs(last[head][-1] - alone[511][head][0]) <= 1e-6


def test_unknown_pass():
    """The error names it, and those there are."""
    with pytest.raises(ConfigError, match=r"no pass is called 'sink'; there are fold_constants"):
        apply(attention(), ["sink"])


def test_loops_are_refused():
    """A graph with control flow is refused as such."""
    graph = tf.Graph()
    with graph.as_default():
        tf.compat.v1.disable_control_flow_v2()
        a = tf.compat.v1.placeholder(tf.float32, [None, 2], name="a")
        end = tf.compat.v1.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), [0, a])[1]
        out = tf.reduce_sum(end, axis=1, name="out")
    tf.compat.v1.enable_control_flow_v2()
    base = attention()
    dense = DenseGraph(graph.as_graph_def(), (base.inputs[0].__class__("a:0", "f32", (-1, 2), "item"),),
                       (base.heads[0].__class__("h", out.name),))
    with pytest.raises(GraphError, match="control flow is not rewritten"):
        apply(dense)
