"""Hostile graphs are refused, wherever the op hides; nothing but the bytes is looked at."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session

from models.allow_list import ALLOWED, PATH_INPUTS, check_graph
from models.errors import GraphError, OpRefusedError

HOSTILE = """ReadFile WriteFile MatchingFiles PyFunc PyFuncStateless EagerPyFunc TextLineDataset TFRecordDataset
    TensorDataset FixedLengthRecordDataset SaveV2 SaveSlices Save Restore RestoreSlice MergeV2Checkpoints
    ImmutableConst PrintV2 Print RpcCall RpcServer RemoteCall _Send _Recv _HostSend CollectiveReduceV2
    NcclAllReduce GcsConfigureBlockCache WholeFileReaderV2 TextLineReaderV2 ReaderReadV2 QueueEnqueueV2
    DebugIdentity DebugIdentityV2 WriteSummary CreateSummaryFileWriter LoadAndRemapMatrix DatasetFromGraph
    SaveDataset LoadDataset SnapshotDataset Abort DecodeWav DecodeJpeg LookupTableExportV2 BatchFunction XlaLaunch
    TPUExecute AssignVariableOp SleepDataset Stage MapStage GenerateVocabRemapping InitializeTableFromDataset
    ShardedFilename ConsumeMutexLock DeleteSessionTensor MlirPassthroughOp SymbolicGradient""".split()


def registered():
    ops = op_def_pb2.OpList()
    ops.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    return {op.name for op in ops.op}


def graph(op="Identity", inputs=(), node="n"):
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="x", op="Placeholder")
    graph_def.node.add(name=node, op=op, input=inputs)
    return graph_def


def hide(graph_def, op, name="deep", inputs=()):
    """The op inside a function of the library."""
    function = graph_def.library.function.add()
    function.signature.name = name
    function.node_def.add(name="ok", op="Add")
    function.node_def.add(name="inner", op=op, input=inputs)
    return graph_def


def test_every_allowed_op_is_one_of_tensorflow():
    assert ALLOWED - registered() <= {"_MklFusedMatMul", "_MklMatMul", "_MklNativeFusedMatMul"}
    assert set(PATH_INPUTS) <= ALLOWED and ALLOWED.isdisjoint(HOSTILE)


@pytest.mark.parametrize("op", HOSTILE)
def test_hostile_ops_are_named(op):
    with pytest.raises(OpRefusedError, match=f"node 'n' \\({op}\\): not an op") as caught:
        check_graph(graph(op).SerializeToString())
    assert (caught.value.node, caught.value.op, caught.value.function) == ("n", op, "")
    with pytest.raises(OpRefusedError, match=f"node 'inner' of function 'deep' \\({op}\\)"):
        check_graph(hide(graph(), op).SerializeToString())


def test_whatever_reads_files_or_talks_to_others_is_not_allowed():
    words = "File Dataset Reader PyFunc Rpc Save Summary Queue Collective Debug Iterator".split()
    assert {op for op in ALLOWED if any(word in op for word in words)} == {
        "InitializeTableFromTextFile", "InitializeTableFromTextFileV2"}


@pytest.mark.parametrize("op", sorted(PATH_INPUTS))
def test_files_are_read_only_by_fed_paths(op):
    inputs = ["path:0"] if PATH_INPUTS[op] == 0 else ["x", "path"]
    graph_def = graph(op, inputs)
    graph_def.node.add(name="path", op="Identity", input=["asset"])
    graph_def.node.add(name="asset", op="Const")
    check_graph(graph_def.SerializeToString(), paths={"asset"})
    for paths in ((), ("x",), ("n",)):
        with pytest.raises(OpRefusedError, match="may only read a file whose path is fed"):
            check_graph(graph_def.SerializeToString(), paths)
    graph_def.node[2].op = "StringJoin"
    with pytest.raises(OpRefusedError, match="may only read"):
        check_graph(graph_def.SerializeToString(), {"asset"})
    with pytest.raises(OpRefusedError, match="of function 'deep'"):
        check_graph(hide(graph(), op, inputs=["path", "path"]).SerializeToString(), {"asset", "path"})
    del graph_def.node[1].input[:]
    with pytest.raises(OpRefusedError, match="may only read"):
        check_graph(graph_def.SerializeToString(), {"asset"})


def restoring():
    """As TensorFlow 2 restores: a function is called with the path, and hands it to another."""
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="asset", op="Const")
    graph_def.node.add(name="other", op="Const")
    graph_def.node.add(name="call", op="StatefulPartitionedCall", input=["other", "asset"])
    graph_def.node[2].attr["f"].func.name = "outer"
    for name, arguments, node in (("outer", ["a", "path"], ("call", "PartitionedCall", ["path"])),
                                  ("inner", ["prefix"], ("read", "RestoreV2", ["same:output:0", "a", "b"]))):
        function = graph_def.library.function.add()
        function.signature.name = name
        for argument in arguments:
            function.signature.input_arg.add(name=argument)
        function.node_def.add(name=node[0], op=node[1], input=node[2])
    graph_def.library.function[0].node_def[0].attr["f"].func.name = "inner"
    graph_def.library.function[1].node_def.add(name="same", op="Identity", input=["prefix"])
    return graph_def


def test_a_path_reaches_functions_through_their_calls():
    check_graph(restoring().SerializeToString(), {"asset"})
    with pytest.raises(OpRefusedError, match="node 'read' of function 'inner' \\(RestoreV2\\): may only read"):
        check_graph(restoring().SerializeToString(), {"other"})


def another_call(graph_def):
    graph_def.node.add(name="more", op="PartitionedCall", input=["asset", "other"]).attr["f"].func.name = "outer"


def a_branch(graph_def):
    graph_def.node.add(name="if", op="If", input=["asset", "asset"]).attr["then_branch"].func.name = "outer"


def one_of_branches(graph_def):
    graph_def.node.add(name="case", op="Case", input=["asset"]).attr["branches"].list.func.add(name="inner")


def twice_the_same_name(graph_def):
    graph_def.library.function.add().CopyFrom(graph_def.library.function[0])


def twice_the_same_node(graph_def):
    graph_def.library.function[1].node_def.add(name="same", op="Identity", input=["b"])


def no_call(graph_def):
    del graph_def.node[2]


def itself(graph_def):
    graph_def.library.function[1].node_def.add(name="again", op="PartitionedCall",
                                               input=["again:0"]).attr["f"].func.name = "inner"


def swapped_arguments(graph_def):
    graph_def.node[2].input[:] = ["asset", "other"]


@pytest.mark.parametrize("change", [another_call, a_branch, one_of_branches, twice_the_same_name, twice_the_same_node,
                                    no_call, itself, swapped_arguments])
def test_every_call_counts(change):
    graph_def = restoring()
    change(graph_def)
    with pytest.raises(OpRefusedError, match="may only read a file whose path is fed"):
        check_graph(graph_def.SerializeToString(), {"asset"})


def test_a_ring_of_identities_ends():
    graph_def = graph("RestoreV2", ["a"])
    graph_def.node.add(name="a", op="Identity", input=["b"])
    graph_def.node.add(name="b", op="Identity", input=["a"])
    with pytest.raises(OpRefusedError):
        check_graph(graph_def.SerializeToString(), {"asset"})


def test_assignments_only_where_a_model_is_initialised():
    raw = graph("AssignVariableOp").SerializeToString()
    check_graph(raw, assigns=True)
    with pytest.raises(OpRefusedError):
        check_graph(raw)


def test_a_function_is_no_cloak():
    graph_def = hide(graph("ReadFile"), "ReadFile", name="ReadFile")
    with pytest.raises(OpRefusedError, match=r"node 'n' \(ReadFile\)"):
        check_graph(graph_def.SerializeToString())
    with pytest.raises(OpRefusedError, match=r"node 'n' \(mine\)"):
        check_graph(hide(graph("mine"), "Mul", name="mine").SerializeToString())


def test_the_last_of_two_op_fields_counts_as_in_protobuf():
    node = b"\x0a\x01n" + b"\x12\x03Add" + b"\x12\x08ReadFile"
    raw = b"\x0a" + bytes([len(node)]) + node
    assert tf.compat.v1.GraphDef.FromString(raw).node[0].op == "ReadFile"
    with pytest.raises(OpRefusedError, match="ReadFile"):
        check_graph(raw)
    halves = hide(tf.compat.v1.GraphDef(), "Mul").SerializeToString() + hide(
        tf.compat.v1.GraphDef(), "PyFunc", name="second").SerializeToString()
    with pytest.raises(OpRefusedError, match="second"):
        check_graph(halves)


def test_generated_graphs_are_judged_like_their_ops():
    rng, names = random.Random(7), sorted(registered() - set(PATH_INPUTS))
    for _ in range(300):
        graph_def = tf.compat.v1.GraphDef()
        graph_def.versions.producer = rng.randrange(2000)
        picked = [rng.choice(names) if rng.random() < 0.1 else rng.choice(sorted(ALLOWED - set(PATH_INPUTS)))
                  for _ in range(rng.randrange(1, 12))]
        for number, op in enumerate(picked):
            if rng.random() < 0.5:
                node = graph_def.node.add(name=f"n{number}", op=op, device="/CPU:0")
                node.attr["value"].tensor.tensor_content = rng.randbytes(rng.randrange(200))
            else:
                hide(graph_def, op, name=f"f{number}")
        bad = [op for op in picked if op not in ALLOWED]
        if not bad:
            check_graph(graph_def.SerializeToString())
            continue
        with pytest.raises(OpRefusedError) as caught:
            check_graph(graph_def.SerializeToString())
        assert caught.value.op in bad


def test_bytes_that_are_no_graph():
    whole = hide(graph("Mul", ["x", "x"]), "Add").SerializeToString()
    rng = random.Random(9)
    for _ in range(400):
        raw = bytearray(whole[:rng.randrange(len(whole) + 1)])
        for _ in range(rng.randrange(3)):
            if raw:
                raw[rng.randrange(len(raw))] = rng.randrange(256)
        try:
            check_graph(bytes(raw))
        except GraphError:
            pass
    for raw in (b"\x0a\x05abc", b"\x0a", b"\xff" * 12, b"\x0b", b"\x09\x00", b"\x0a\x03\x0a\x01\xff"):
        with pytest.raises(GraphError, match="no whole GraphDef"):
            check_graph(raw)


def test_it_needs_no_tensorflow():
    code = "import sys, models.allow_list; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).resolve().parents[2])
