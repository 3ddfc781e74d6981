"""The parts of the loaders: inlining keeps values and order, dead branches go, checkpoints are read by parts."""

import numpy as np
import pytest
import tensorflow as tf

from models.errors import GraphError, OpRefusedError, SavedModelError
from models.loaders import admit, load_saved_model
from models.loaders.checkpoint import Checkpoint
from models.loaders.inference import for_inference
from models.loaders.inline import inline_functions

from ..graph_session import run_graph


def random_function(rng, depth):
    """A function of (x, y) with calls of functions inside, some of several results, some called twice."""
    inner = [random_function(rng, depth - 1) for _ in range(rng.integers(1, 3))] if depth else []
    steps = [(rng.integers(0, 4), rng.normal()) for _ in range(rng.integers(1, 4))]

    @tf.function(autograph=False)
    def call(x, y):
        for kind, number in steps:
            x, y = [(x * number, y), (x + y, x), (tf.nn.relu(y), x - number), tf.split(tf.stack([x, y]), 2)][kind]
            x, y = tf.reshape(x, [-1]), tf.reshape(y, [-1])
        for function in inner:
            x, y = function(y, x)
        if inner:
            x, _ = inner[0](x, x)
        return x, y

    return call


@pytest.mark.parametrize("seed", range(12))
def test_inlining_keeps_values(seed):
    rng = np.random.default_rng(seed)
    function = random_function(rng, depth=3)
    spec = tf.TensorSpec([4], tf.float32)
    outer = tf.function(lambda x, y: [tf.identity(v, f"out{i}") for i, v in enumerate(function(x, y))])
    concrete = outer.get_concrete_function(spec, spec)
    inlined = inline_functions(concrete.graph.as_graph_def())
    assert not [node for node in inlined.node if "PartitionedCall" in node.op] and not inlined.library.function
    x, y = rng.normal(size=(2, 4)).astype(np.float32)
    feeds = {f"{tensor.name}": value for tensor, value in zip(concrete.inputs, (x, y), strict=True)}
    for got, expected in zip(run_graph(inlined, ["out0:0", "out1:0"], feeds), concrete(x, y), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_inlining_keeps_the_order_of_effects():
    """A read that waits for a function's assignment still does, and the other way round."""
    with tf.Graph().as_default() as graph:
        variable = tf.compat.v1.get_variable("v", initializer=1.0, use_resource=True)

        @tf.function(autograph=False)
        def double():
            variable.assign(variable * 2)
            return tf.constant(0.0)

        before = variable.read_value()
        with tf.control_dependencies([before]):
            called = double()
        with tf.control_dependencies([called]):
            after = tf.identity(variable.read_value(), name="after")
        graph_def, initial = graph.as_graph_def(), variable.initializer.name
    inlined = inline_functions(graph_def)
    for one in (graph_def, inlined):
        with tf.Graph().as_default():
            tf.graph_util.import_graph_def(one, name="")
            with tf.compat.v1.Session() as session:
                session.run(initial)
                assert [session.run([before.name, after.name]) for _ in range(3)] == [[1, 2], [2, 4], [4, 8]]


def test_calls_that_cannot_be_inlined():
    graph_def = tf.compat.v1.GraphDef()
    call = graph_def.node.add(name="c", op="PartitionedCall")
    call.attr["f"].func.name = "f"
    with pytest.raises(GraphError, match="'c' calls function 'f', which is not in the graph's library"):
        inline_functions(graph_def)
    function = graph_def.library.function.add()
    function.signature.name = "f"
    function.node_def.add().CopyFrom(call)
    with pytest.raises(GraphError, match="'c/c' calls function 'f', which calls itself"):
        inline_functions(graph_def)
    function.signature.input_arg.add(name="x")
    with pytest.raises(GraphError, match="gives 0 inputs, function 'f' takes 1"):
        inline_functions(graph_def)


@pytest.mark.parametrize("seed", range(8))
def test_known_branches_are_taken(seed):
    """Nested conds of TensorFlow 1 on constants and on fed predicates: the dead ones go, the values stay."""
    rng = np.random.default_rng(seed)

    def build(x, fed, depth):
        if not depth:
            return x * np.float32(rng.normal())
        known = rng.integers(0, 3)
        predicate = [fed, tf.constant(True), tf.compat.v1.placeholder_with_default(False, [])][known]
        other = tf.logical_not(predicate) if rng.integers(0, 2) else predicate
        return tf.cond(other, lambda: build(x + 1.0, fed, depth - 1), lambda: build(tf.nn.relu(x), fed, depth - 1))

    for toggle in (tf.compat.v1.disable_control_flow_v2, tf.compat.v1.enable_control_flow_v2):
        toggle()
        try:
            with tf.Graph().as_default() as graph:
                x = tf.compat.v1.placeholder(tf.float32, [3], "x")
                fed = tf.compat.v1.placeholder(tf.bool, [], "fed")
                tf.identity(build(x, fed, 3), name="out")
                graph_def = graph.as_graph_def()
        finally:
            tf.compat.v1.enable_control_flow_v2()
        simpler = for_inference(graph_def, ["out"])
        needed = {node.name for node in simpler.node}
        for flag in (True, False):
            feeds = {"x:0": np.array([-1, 0.5, 2], np.float32), "fed:0": flag}
            used = {name: value for name, value in feeds.items() if name[:-2] in needed}
            np.testing.assert_array_equal(run_graph(simpler, ["out:0"], used)[0],
                                          run_graph(graph_def, ["out:0"], feeds)[0])
        assert "PlaceholderWithDefault" not in {node.op for node in simpler.node}
        branches = sum(node.op in ("Merge", "If", "StatelessIf") for node in simpler.node)
        assert ("fed" in needed) == bool(branches), "only what is fed decides anything any more"


def test_checkpoints_by_parts(tmp_path):
    rng = np.random.default_rng(2)
    values = {f"many/variables/{n:04d}": rng.normal(size=(n % 7 + 1, 3)).astype(np.float32) for n in range(900)}
    values |= {"scalar": np.int64(7), "big": rng.normal(size=(70_000, 64)).astype(np.float32),
               "words": np.array([b"a", b"longer"], object), "half": np.ones((2, 2), np.float16)}
    tf.raw_ops.SaveV2(prefix=str(tmp_path / "c"), tensor_names=list(values), shape_and_slices=[""] * len(values),
                      tensors=[tf.constant(value) for value in values.values()])
    checkpoint = Checkpoint(tmp_path / "c")
    assert checkpoint.keys() == set(values)
    for key, value in values.items():
        variable = checkpoint.variable(key)
        assert variable.shape == value.shape and variable.dtype == value.dtype
        read = variable.read(0, 1 if not value.shape else len(value))
        np.testing.assert_array_equal(read, value if value.shape else [value])
    np.testing.assert_array_equal(checkpoint.variable("big").read(69_990, 69_995), values["big"][69_990:69_995])
    part = checkpoint.variable("big", "70000 64 5,10:-")
    assert part.shape == (10, 64)
    np.testing.assert_array_equal(part.read(2, 4), values["big"][7:9])
    with pytest.raises(SavedModelError, match=r"c\.index: no variable 'gone'"):
        checkpoint.variable("gone")


def test_admission_follows_what_runs(tmp_path):
    def read_file(x):
        return {"text": tf.io.read_file(x)}

    model = tf.Module()
    model.f = tf.function(read_file, input_signature=[tf.TensorSpec([], tf.string, name="x")])
    model.w = tf.Variable(1.0)
    model.g = tf.function(lambda x: {"y": x * model.w}, input_signature=[tf.TensorSpec([], name="x")])
    tf.saved_model.save(model, tmp_path / "good", {"g": model.g})
    admit(load_saved_model(tmp_path / "good"))
    tf.saved_model.save(model, tmp_path / "bad", {"f": model.f, "g": model.g})
    with pytest.raises(OpRefusedError, match=r"ReadFile.*not an op"):
        admit(load_saved_model(tmp_path / "bad"))
