"""Cutting by structure: every lookup form gives the same numbers once its rows are fed, and what cannot be cut says
why."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from models.errors import GraphError
from models.passes import captured_variables, cut, freeze

from ..graph_session import run_graph

ROWS, DIM = 50, 3


def concrete(function, *specs):
    """The concrete function whose result is the graph node `out`."""
    return tf.function(
        lambda *a: tf.identity(function(*a), name="out"), input_signature=specs, autograph=False
    ).get_concrete_function()


def ids(name="ids", shape=(None,), dtype=tf.int64):
    return tf.TensorSpec(shape, dtype, name=name)


SEGMENTS = tf.TensorSpec([None], tf.int32, name="segments")


@pytest.fixture(scope="module")
def table():
    return tf.Variable(np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32), name="table")


@pytest.fixture(scope="module")
def embedding():
    layer = keras.layers.Embedding(ROWS, DIM)
    layer(tf.constant([0]))
    return layer


def cut_and_freeze(function, rows_min=10, **options):
    variables = captured_variables(function)
    result = cut(function.graph.as_graph_def(), variables, ["out:0"], rows_min, **options)
    return result, freeze(result.graph_def, result.variables, ["out:0"])


def names(graph_def):
    return {node.name for node in graph_def.node}


def test_keras_embedding(embedding):
    function = concrete(lambda x: embedding(x) * 2.0, ids(shape=(1, 4)))
    result, frozen = cut_and_freeze(function)
    (found,) = result.cuts
    assert (found.ids, found.mode, found.input, found.shape) == ("ids", "rows", "ids_rows", (1, 4, DIM))
    assert "ids" not in names(frozen) and not [n for n in frozen.node if n.op == "Const" and "embed" in n.name]
    x = np.array([[0, 7, 49, 7]])
    rows = embedding.embeddings.numpy()[x]
    np.testing.assert_array_equal(run_graph(frozen, ["out:0"], {"ids_rows:0": rows})[0],
                                  function(tf.constant(x)).numpy())


def test_embedding_lookup(table):
    function = concrete(lambda x: tf.nn.embedding_lookup(table, x) + 1.0, ids(dtype=tf.int32))
    result, frozen = cut_and_freeze(function)
    assert result.cuts[0].mode == "rows" and names(frozen).isdisjoint({"ids"})
    x = np.array([3, 3, 0], np.int32)
    np.testing.assert_array_equal(run_graph(frozen, ["out:0"], {"ids_rows:0": table.numpy()[x]})[0],
                                  function(tf.constant(x)).numpy())


@pytest.mark.parametrize("mode", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("counted", [True, False])
def test_pooled(table, mode, counted):
    pool = {"sum": tf.sparse.segment_sum, "mean": tf.sparse.segment_mean, "sqrtn": tf.sparse.segment_sqrt_n}[mode]
    options = {"num_segments": 4} if counted else {}
    function = concrete(lambda x, s: pool(tf.convert_to_tensor(table), x, s, **options) - 1.0, ids(), SEGMENTS)
    result, frozen = cut_and_freeze(function)
    assert (result.cuts[0].mode, result.cuts[0].shape) == (mode, (None, DIM))
    assert names(frozen).isdisjoint({"ids", "segments"})
    x, segments = np.array([1, 2, 2, 9]), np.array([0, 0, 0, 2], np.int32)
    pooled = pool(table, x, segments, **options).numpy()
    np.testing.assert_array_equal(run_graph(frozen, ["out:0"], {f"ids_{mode}:0": pooled})[0],
                                  function(tf.constant(x), tf.constant(segments)).numpy())


def test_embedding_lookup_sparse(table):
    def bags(x, s):
        sparse = tf.SparseTensor(tf.stack([tf.cast(s, tf.int64), tf.range(tf.size(s, tf.int64))], 1), x, [3, 9])
        return tf.nn.embedding_lookup_sparse(table, sparse, None, combiner="mean") * 3.0

    function = concrete(bags, ids(), SEGMENTS)
    result, frozen = cut_and_freeze(function)
    assert [(c.ids, c.mode) for c in result.cuts] == [("ids", "mean")]
    x, segments = np.array([1, 2, 2, 9]), np.array([0, 0, 1, 2], np.int32)
    pooled = tf.sparse.segment_mean(table, x, segments).numpy()
    np.testing.assert_allclose(run_graph(frozen, ["out:0"], {"ids_mean:0": pooled})[0],
                               function(tf.constant(x), tf.constant(segments)).numpy(), rtol=1e-6)


def test_one_table_for_two_inputs_and_one_input_read_twice(embedding):
    function = concrete(lambda x, y: embedding(x) + embedding(x) - embedding(y), ids("x"), ids("y"))
    result, frozen = cut_and_freeze(function)
    assert sorted(c.input for c in result.cuts) == ["x_rows", "y_rows"] and len({c.variable for c in result.cuts}) == 1
    rows = embedding.embeddings.numpy()
    got = run_graph(frozen, ["out:0"], {"x_rows:0": rows[[4]], "y_rows:0": rows[[5]]})[0]
    np.testing.assert_array_equal(got, rows[[4]] + rows[[4]] - rows[[5]])


def test_ids_that_are_read_beside_their_rows_stay(embedding):
    function = concrete(lambda x: embedding(x) * tf.cast(x != 0, tf.float32)[:, None], ids())
    result, frozen = cut_and_freeze(function)
    assert {"ids", "ids_rows"} <= names(frozen)


def test_small_tables_and_dense_kernels_stay(embedding):
    dense = keras.layers.Dense(5)
    dense(tf.zeros([1, 64]))
    function = concrete(lambda x, v: dense(v) + tf.reduce_sum(embedding(x)), ids(), tf.TensorSpec([1, 64], name="v"))
    result, frozen = cut_and_freeze(function, rows_min=ROWS + 1)
    assert result.cuts == () and "ids" in names(frozen)
    x, v = np.array([2, -1]), np.ones((1, 64), np.float32)
    np.testing.assert_allclose(run_graph(frozen, ["out:0"], {"ids:0": x, "v:0": v})[0],
                               function(tf.constant(x), tf.constant(v)).numpy(), rtol=1e-6)
    always, _ = cut_and_freeze(function, rows_min=ROWS + 1, always=["ids"])
    assert [c.ids for c in always.cuts] == ["ids"]


def test_tied_weights_are_refused(embedding):
    function = concrete(lambda x: tf.matmul(embedding(x), embedding.embeddings, transpose_b=True), ids())
    with pytest.raises(GraphError, match="also read by.*MatMul"):
        cut_and_freeze(function)


def test_ids_computed_in_the_graph_are_refused(embedding):
    function = concrete(lambda x: embedding(x * 7 % ROWS), ids())
    with pytest.raises(GraphError, match="computed inside the graph"):
        cut_and_freeze(function)


def mean_of(table, x, segments):
    return tf.sparse.segment_mean(tf.convert_to_tensor(table), x, segments)


MORE_SEGMENTS = tf.TensorSpec([None], tf.int32, name="more_segments")
LOST = {
    "two ways into bags": (lambda t, x, s, m: mean_of(t, x, s) - mean_of(t, x, m), "pooled by.*and by"),
    "bags computed": (lambda t, x, s, m: mean_of(t, x, s // 2), "bags of lookup.*computed inside the graph"),
    "bags cut": (lambda t, x, s, m: mean_of(t, x, s[1:]), "bags of lookup.*computed inside the graph"),
    "ids through bool": (lambda t, x, s, m: tf.gather(t, tf.cast(tf.cast(x, tf.bool), tf.int64)), "ids of lookup"),
    "ids through float": (lambda t, x, s, m: tf.gather(t, tf.cast(tf.cast(x, tf.float32), tf.int64)), "ids of lookup"),
    "negative ids moved": (lambda t, x, s, m: tf.gather(t, tf.where(x < 0, x + 7, x)), "ids of lookup"),
    "negative ids doubled": (lambda t, x, s, m: tf.gather(t, tf.where(x < 0, x + x, x)), "ids of lookup"),
    "the table's own shape": (lambda t, x, s, m: tf.gather(t, x) * tf.cast(tf.raw_ops.VariableShape(input=t.handle)[0],
                                                                          tf.float32), "also read by.*VariableShape"),
}


@pytest.mark.parametrize("what", LOST)
def test_what_would_be_lost_with_the_lookup_is_refused(table, what):
    function, message = LOST[what]
    function = concrete(lambda x, s, m: function_of(function, table, x, s, m), ids(), SEGMENTS, MORE_SEGMENTS)
    with pytest.raises(GraphError, match=message):
        cut_and_freeze(function)


def function_of(function, table, x, segments, more):
    """All inputs are read, so that none is pruned."""
    return function(table, x, segments, more) + 0.0 * tf.cast(tf.size(segments) + tf.size(more), tf.float32)


def test_a_lookup_that_is_itself_an_output_is_refused(table):
    function = tf.function(lambda x: tf.gather(tf.convert_to_tensor(table), x, name="looked"), input_signature=[ids()])
    function = function.get_concrete_function()
    with pytest.raises(GraphError, match="still read although its lookups were cut"):
        cut(function.graph.as_graph_def(), captured_variables(function), ["looked:0"], 10)


def test_a_table_of_halves_is_refused():
    halves = tf.Variable(np.ones((ROWS, DIM), np.float16))
    with pytest.raises(GraphError, match="float16; only float32"):
        cut_and_freeze(concrete(lambda x: tf.nn.embedding_lookup(halves, x), ids()))


def test_a_batched_gather_is_no_lookup(table):
    def row_wise(x):
        table.read_value()
        return tf.raw_ops.ResourceGather(resource=table.handle, indices=x, dtype=tf.float32, batch_dims=1)

    result, frozen = cut_and_freeze(concrete(row_wise, ids(shape=(ROWS, 1))))
    assert result.cuts == ()
    places = np.arange(ROWS)[:, None] % DIM
    np.testing.assert_array_equal(run_graph(frozen, ["out:0"], {"ids:0": places})[0],
                                  np.take_along_axis(table.numpy(), places, 1))


def test_variables_inside_functions_are_refused(table):
    inner = tf.function(lambda x: tf.nn.embedding_lookup(table, x), autograph=False)
    with pytest.raises(GraphError, match="used as a handle by.*PartitionedCall"):
        cut_and_freeze(concrete(lambda x: inner(x), ids()))


def test_control_edges_do_not_hold_the_table(table):
    function = tf.function(lambda x: tf.nn.embedding_lookup(table, x), input_signature=[ids()]).get_concrete_function()
    output = function.outputs[0].name
    graph_def = function.graph.as_graph_def()
    assert any(i.startswith("^") for node in graph_def.node for i in node.input), "the case that this test is about"
    result = cut(graph_def, captured_variables(function), [output], 10)
    assert result.variables == {} and not any(n.op in ("NoOp", "ReadVariableOp") for n in result.graph_def.node)


def test_assertions_survive_as_control_edges(embedding):
    def checked(x, v):
        with tf.control_dependencies([tf.debugging.assert_positive(v)]):
            return embedding(x) + tf.identity(v)

    function = concrete(checked, ids(), tf.TensorSpec([], name="v"))
    _, frozen = cut_and_freeze(function)
    rows = np.zeros((1, DIM), np.float32)
    assert run_graph(frozen, ["out:0"], {"ids_rows:0": rows, "v:0": 2.0})[0].tolist() == [[2.0] * DIM]
    with pytest.raises(tf.errors.InvalidArgumentError):
        run_graph(frozen, ["out:0"], {"ids_rows:0": rows, "v:0": -2.0})


def test_missing_output_and_dangling_edge(table):
    function = concrete(lambda x: tf.nn.embedding_lookup(table, x), ids())
    graph_def = function.graph.as_graph_def()
    with pytest.raises(GraphError, match="nope"):
        cut(graph_def, {}, ["nope:0"], 10)
    del graph_def.node[0]
    with pytest.raises(GraphError, match="not in the graph"):
        cut(graph_def, {}, ["out:0"], 10)


def test_freeze_refuses_what_it_cannot_hold(table):
    function = concrete(lambda x: tf.nn.embedding_lookup(table, x), ids())
    variables, graph_def = captured_variables(function), function.graph.as_graph_def()
    with pytest.raises(GraphError, match="cut it out"):
        freeze(graph_def, variables, ["out:0"], constant_bytes_max=ROWS * DIM * 4 - 1)
    with pytest.raises(GraphError, match="not known"):
        freeze(graph_def, {}, ["out:0"])
    frozen = freeze(graph_def, variables, ["out:0"])
    np.testing.assert_array_equal(run_graph(frozen, ["out:0"], {"ids:0": [3]})[0], table.numpy()[[3]])
    assert [n.name for n in frozen.node] == sorted(n.name for n in frozen.node)
