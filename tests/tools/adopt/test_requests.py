"""Recorded requests: every format gives the same inputs, and what is damaged or does not fit is told by its record."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.errors import SignatureError
from tools.adopt import RequestsError
from tools.adopt import prediction_log_pb2 as pb
from tools.adopt.requests import read_requests

from .recorded import WIDTH, example, predict_log, requests, write_records

FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def assert_same(recorded, expected):
    assert len(recorded.requests) == len(expected)
    for request, inputs in zip(recorded.requests, expected, strict=True):
        assert request.rows == len(inputs["item"]) and set(request.inputs) == set(inputs)
        for name, value in inputs.items():
            assert request.inputs[name].dtype == value.dtype
            np.testing.assert_array_equal(request.inputs[name], value)


def table(some):
    return pa.table({"item": [one["item"].tolist() for one in some],
                     "user": pa.array([one["user"].tolist() for one in some],
                                      pa.list_(pa.list_(pa.float32(), WIDTH)))})


def arrow_bytes(rows, stream=False):
    sink = io.BytesIO()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=2)
    return sink.getvalue()


def write_format(path, kind):
    rows = table(requests())
    if kind == "Parquet":
        pq.write_table(rows, path)
    elif kind == "PredictionLog":
        write_records(path, map(predict_log, requests()))
    else:
        path.write_bytes(arrow_bytes(rows, stream=kind == "Arrow stream"))
    return path


@pytest.mark.parametrize("kind", ["PredictionLog", "Arrow file", "Arrow stream", "Parquet"])
def test_the_content_says_which_format(tmp_path, loaded, kind):
    recorded = read_requests(write_format(tmp_path / "requests.bin", kind), loaded)
    assert recorded.format == kind and recorded.signature.name == "serving_default" and not recorded.others
    assert_same(recorded, requests())


def test_the_wire_is_tensorflow_serving_s(tmp_path, loaded):
    """Bytes written by hand from the field numbers of tensorflow.serving.PredictionLog and PredictRequest."""
    def field(number, content):
        size, prefix = len(content), bytearray([number << 3 | 2])
        while True:
            prefix.append(size & 0x7F | (0x80 if size > 0x7F else 0))
            size >>= 7
            if not size:
                return bytes(prefix) + content

    (inputs,) = requests(1)
    entries = b"".join(field(2, field(1, name.encode()) + field(2, tf.make_tensor_proto(value).SerializeToString()))
                       for name, value in inputs.items())
    request = field(1, field(1, b"ranker") + field(3, b"serving_default")) + entries + field(3, b"click")
    log = field(1, b"") + field(6, field(1, request) + field(2, b""))
    assert_same(read_requests(write_records(tmp_path / "w", [log]), loaded), [inputs])


@pytest.mark.parametrize("kind", ["classify_log", "regress_log"])
def test_examples_with_and_without_context(tmp_path, loaded, kind):
    (inputs,) = requests(1, rows=3)
    plain, merged = pb.PredictionLog(), pb.PredictionLog()
    for log in (plain, merged):
        getattr(log, kind).request.model_spec.signature_name = "examples"
    getattr(plain, kind).request.input.example_list.examples.extend(
        example(inputs, row, "user", "item") for row in range(3))
    context = getattr(merged, kind).request.input.example_list_with_context
    context.context = example(inputs, 0, "user")
    context.examples.extend(example(inputs, row, "item") for row in range(3))
    file = write_records(tmp_path / "w", [plain.SerializeToString(), merged.SerializeToString()])
    recorded = read_requests(file, loaded)
    assert recorded.signature.name == "examples" and [r.rows for r in recorded.requests] == [3, 3]
    for request in recorded.requests:
        for row, raw in enumerate(request.inputs["examples"]):
            features = tf.train.Example.FromString(raw).features.feature
            assert features["item"].int64_list.value[0] == inputs["item"][row]
            assert list(features["user"].float_list.value) == inputs["user"][row].tolist()


def test_records_for_other_signatures(tmp_path, loaded):
    file = write_records(tmp_path / "w", [*map(predict_log, requests(2)),
                                          predict_log({"examples": np.array([b""], object)}, "examples")])
    with pytest.raises(RequestsError, match="2 for 'serving_default', 1 for 'examples': choose one with --signature"):
        read_requests(file, loaded)
    recorded = read_requests(file, loaded, "serving_default")
    assert len(recorded.requests) == 2 and recorded.others == {"examples": 1}
    only = write_records(tmp_path / "o", map(predict_log, requests(1)))
    with pytest.raises(RequestsError, match="one request for signature 'examples', came none; it has 1 for 'serving_d"):
        read_requests(only, loaded, "examples")
    with pytest.raises(RequestsError, match="record 0: it is for signature 'other', and the model has examp"):
        read_requests(write_records(tmp_path / "x", [predict_log(requests(1)[0], "other")]), loaded)
    with pytest.raises(SignatureError, match="'other' came, expected one of the model's: examples, serving_default"):
        read_requests(file, loaded, "other")


def other_log(name):
    log = pb.PredictionLog()
    getattr(log, name).SetInParent()
    return log.SerializeToString()


GOOD = requests(1)[0]


@pytest.mark.parametrize("record, words", [
    (b"", "came a message without one"),
    (b"\xff\xff", "2 bytes came that are no PredictionLog"),
    (other_log("session_run_log"), "a session_run_log came; expected predict_log"),
    (other_log("multi_inference_log"), "a multi_inference_log came"),
    (other_log("predict_streamed_log"), "a predict_streamed_log came"),
    (other_log("classify_log"), r"takes item, user: expected one input of strings"),
    (predict_log({"user": GOOD["user"]}), "no value for 'item'"),
    (predict_log({**GOOD, "age": np.zeros(1)}),
     "takes item .int64 .any.., user .float32 .any, 6..; no such input as 'age"),
    (predict_log({**GOOD, "item": GOOD["item"].astype(np.int32)}), "input 'item': int32 came, expected int64"),
    (predict_log({**GOOD, "item": np.array([b"a"] * 20, object)}), "input 'item': string came, expected int64"),
    (predict_log({**GOOD, "user": GOOD["user"][:, :5]}), r"input 'user': shape \[20, 5\] came, expected \[any, 6\]"),
    (predict_log({**GOOD, "item": np.int64(3)}), r"input 'item': shape \[\] came"),
    (predict_log({**GOOD, "item": GOOD["item"][:7]}),
     "input 'item': 7 rows came, and 20 of 'user'; expected as many, or 1"),
    (predict_log({name: value[:0] for name, value in GOOD.items()}), "expected at least one row"),
])
def test_records_that_do_not_fit(tmp_path, loaded, record, words):
    file = write_records(tmp_path / "w", [predict_log(GOOD), record])
    with pytest.raises(RequestsError, match=words) as caught:
        read_requests(file, loaded)
    assert caught.value.record == 1 and f"{file}, record 1: " in str(caught.value)


def test_tensors_that_are_none(tmp_path, loaded):
    log = pb.PredictionLog()
    log.predict_log.request.inputs["user"] = b"\xff"
    with pytest.raises(RequestsError, match="record 0: input 'user': 1 bytes came that are no TensorProto"):
        read_requests(write_records(tmp_path / "w", [log.SerializeToString()]), loaded)
    short = tf.make_tensor_proto(np.zeros((2, 3), np.float32))
    short.tensor_content = short.tensor_content[:5]
    log.predict_log.request.inputs["user"] = short.SerializeToString()
    with pytest.raises(RequestsError, match="record 0: input 'user': "):
        read_requests(write_records(tmp_path / "w", [log.SerializeToString()]), loaded)


@pytest.mark.parametrize("content, words", [
    (b"", "the file is empty"), (b"\x1f\x8b0000", "compressed with gzip"),
    (b"hello", "record 0: it is neither Parquet, Arrow nor a whole TFRecord: 5 bytes came"),
    (b"PAR1 and more", "damaged"), (b"ARROW1 and more", "damaged"), (b"\xff\xff\xff\xff\0\0\0\1", "damaged"),
])
def test_files_that_are_none(tmp_path, loaded, content, words):
    file = tmp_path / "requests"
    file.write_bytes(content)
    with pytest.raises(RequestsError, match=words):
        read_requests(file, loaded)


def test_a_missing_file(tmp_path, loaded):
    for path in (tmp_path / "gone", tmp_path):
        with pytest.raises(RequestsError, match="expected a file of requests, it cannot be read"):
            read_requests(path, loaded)


ITEM = [[1, 2]]
USER = [[[0.0] * WIDTH] * 2]


@pytest.mark.parametrize("columns, words", [
    ({"item": ITEM}, "no value for 'user'"),
    ({"item": ITEM, "user": USER, "more": [1]}, "no such input as 'more'"),
    ({"item": [[1.0, 2.0]], "user": USER}, "input 'item': double came, expected int64"),
    ({"item": [["1", "2"]], "user": USER}, "input 'item': string came, expected int64"),
    ({"item": ITEM, "user": [[1.0]]}, r"input .user.: shape .1, 1. came, expected .any, 6."),
    ({"item": [[ITEM]], "user": USER}, "input 'item': .* 3 lists deep; expected 1"),
    ({"item": ITEM, "user": [[[0.0] * 6, [0.0] * 5]]}, "input 'user': lists of 5 and of 6 values came side by side"),
    ({"item": [None, [1]][:1], "user": USER}, "input 'item': null came"),
    ({"item": [[1, None]], "user": USER}, "input 'item': null came in a list"),
    ({"item": ITEM, "user": [[[0.0] * 6, None]]}, "input 'user': null came in a list"),
    ({"item": pa.array([[2**63]], pa.list_(pa.uint64())), "user": USER}, "a number came that is outside int64"),
])
def test_columns_that_do_not_fit(tmp_path, loaded, columns, words):
    file = tmp_path / "requests.parquet"
    pq.write_table(pa.table(columns), file)
    with pytest.raises(RequestsError, match=words):
        read_requests(file, loaded)


def test_a_list_less_is_one_row(tmp_path, loaded):
    file = tmp_path / "requests.parquet"
    pq.write_table(pa.table({"item": [7], "user": [[0.5] * WIDTH]}), file)
    (request,) = read_requests(file, loaded).requests
    assert request.rows == 1 and request.inputs["item"].tolist() == [7] and request.inputs["user"].shape == (1, WIDTH)
    with pytest.raises(RequestsError, match="expected at least one request for signature 'serving_default', came none"):
        pq.write_table(pa.table({"item": pa.array([], pa.int64()), "user": pa.array([], pa.list_(pa.float32()))}), file)
        read_requests(file, loaded)


@FUZZ
@given(kind=st.sampled_from(["PredictionLog", "Arrow file", "Arrow stream", "Parquet"]), data=st.data())
def test_damaged_files_give_typed_errors_only(tmp_path, loaded, kind, data):
    whole = write_format(tmp_path / "whole", kind).read_bytes()
    if data.draw(st.booleans()):
        damaged = whole[:data.draw(st.integers(0, len(whole) - 1))]
    else:
        damaged = bytearray(whole)
        for at in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=4, unique=True)):
            damaged[at] ^= data.draw(st.integers(1, 255))
    file = tmp_path / "damaged"
    file.write_bytes(bytes(damaged))
    try:
        recorded = read_requests(file, loaded)
    except RequestsError as error:
        assert str(error)
    else:
        # Arrow and Parquet files without checksums may hold other numbers; a TFRecord's checksums tell.
        assert kind != "PredictionLog" or len(recorded.requests) < 5 and len(damaged) < len(whole)


@FUZZ
@given(at=st.integers(0, 10_000), mask=st.integers(1, 255))
def test_damaged_messages_give_typed_errors_only(tmp_path, loaded, at, mask):
    raw = bytearray(predict_log(GOOD))
    raw[at % len(raw)] ^= mask
    try:
        read_requests(write_records(tmp_path / "w", [bytes(raw)]), loaded)
    except RequestsError as error:
        assert str(error)
