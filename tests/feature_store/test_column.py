"""Columns: building, the wire form, and the refusal of everything that does not match its feature."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import feature_store as fs

PRICE = fs.Feature("price", "item", "f32", default=2.0)
COUNT = fs.Feature("count", "item", "i64")
TITLE = fs.Feature("title", "item", "bytes")
VECTOR = fs.Feature("vector", "item", "f32", "dense", 3)
PAIR = fs.Feature("pair", "item", "bytes", "dense", 2, default=(b"d", b""))
TAGS = fs.Feature("tags", "item", "i64", "multi", 4)
WORDS = fs.Feature("words", "item", "bytes", "multi", 3)
SEEN = fs.Feature("seen", "item", "f32", "sequence", 2)
ALL = (PRICE, COUNT, TITLE, VECTOR, PAIR, TAGS, WORDS, SEEN)


def i32(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


def f32(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()


@pytest.mark.parametrize(("feature", "data"), [
    (PRICE, np.array([1, 2], np.float32)), (PRICE, [1.0, None]), (COUNT, np.array([1, 1 << 63], np.uint64)),
    (COUNT, [1, (1 << 64) - 1]), (TITLE, [b"\xff", "text"]), (VECTOR, np.ones((2, 3), np.float32)),
    (VECTOR, [[1, 2, 3], None]), (PAIR, [[b"a", b""], None]), (TAGS, [[1, 2], []]),
    (TAGS, pa.chunked_array([[[1]], [None]], pa.list_(pa.int64()))), (WORDS, [["a", "b"], []]),
    (SEEN, pa.array([[1.0], []], pa.large_list(pa.float32()))), (TITLE, pa.array(["a", "b"]).dictionary_encode()),
], ids=str)
def test_of_gives_a_column_that_survives_the_wire(feature, data):
    column = fs.Column.of(feature, data)
    fs.check_column(feature, column, 2)
    assert column.rows == 2
    again = fs.Column.from_wire(feature, *column.to_wire(), 2)
    assert again.to_wire() == column.to_wire()


def test_of_fills_nulls_with_the_default():
    assert fs.Column.of(PRICE, [None, 1.0]).values.tolist() == [2.0, 1.0]
    assert fs.Column.of(PAIR, [None, ["x", "y"]]).values.tobytes() == b"dxy"
    assert fs.Column.of(TAGS, [None, [3]]).row_offsets.tolist() == [0, 0, 1]


def test_of_reads_a_slice_of_an_arrow_array():
    whole = pa.array([[b"no"], [b"a", b"bc"], [], [b"no"]], pa.list_(pa.binary()))
    column = fs.Column.of(WORDS, whole.slice(1, 2))
    assert column.values.tobytes() == b"abc" and column.byte_offsets.tolist() == [0, 1, 3]
    assert column.row_offsets.tolist() == [0, 2, 2]


@pytest.mark.parametrize(("feature", "data", "message"), [
    (PRICE, np.array([1.0]), "numpy dtype float64, expected dtype f32"),
    (PRICE, np.ones((2, 1), np.float32), r"shape \[2, 1\], expected shape \[2\] for 2 rows"),
    (PRICE, np.array(1.0, np.float32), r"shape \[\]"),
    (PRICE, ["x"], "do not convert"),
    (PRICE, pa.array([1.0]), "type double"),
    (COUNT, np.array([1.0], np.float32), "dtype f32, expected dtype i64"),
    (COUNT, [1 << 64], "do not convert"),
    (VECTOR, np.ones((2, 4), np.float32), r"shape \[2, 4\], expected shape \[2, 3\]"),
    (VECTOR, np.ones(3, np.float32), r"shape \[3\], expected shape \[3, 3\]"),
    (VECTOR, pa.array([[1.0, 2.0]], pa.list_(pa.float32())), "got 2 values in row 0, expected 3"),
    (TAGS, [[1], [1, 2, 3, 4, 5]], "got 5 values in row 1, expected at most 4"),
    (TAGS, pa.array([[1], [2, None]], pa.list_(pa.int64())), "null inside a list in row 1"),
    (TAGS, [1, 2], "do not convert"),
    (TAGS, pa.array([1, 2]), "Arrow type int64"),
])
def test_of_refuses_what_does_not_match(feature, data, message):
    with pytest.raises(fs.FeatureError, match=message) as caught:
        fs.Column.of(feature, data)
    assert caught.value.feature == feature.name


@pytest.mark.parametrize(("feature", "wire", "rows", "message"), [
    (PRICE, (2, [1], bytes(8), b"", b""), 1, r"dtype i64, expected dtype f32 \(numpy float32\)"),
    (PRICE, (9, [1], f32(1), b"", b""), 1, r"dtype unknown \(9\)"),
    (PRICE, (1, [9], f32(*range(9)), b"", b""), 10, r"shape \[9\], expected shape \[10\] for 10 rows"),
    (PRICE, (1, [1, 1], f32(1), b"", b""), 1, r"shape \[1, 1\], expected shape \[1\]"),
    (VECTOR, (1, [2, 4], f32(*range(8)), b"", b""), 2, r"shape \[2, 4\], expected shape \[2, 3\]"),
    (VECTOR, (1, [-1, 3], b"", b"", b""), 2, r"shape \[-1, 3\]"),
    (PRICE, (1, [2], f32(1), b"", b""), 2, r"4 bytes of values, expected 8 \(2 f32 values\)"),
    (PRICE, (1, [1], f32(1), i32(0, 1), b""), 1, "row_offsets of 8 bytes, expected none, as it is single"),
    (PRICE, (1, [1], f32(1), b"", i32(0, 1)), 1, "byte_offsets of 8 bytes, expected none, as its dtype is f32"),
    (TAGS, (2, [2], bytes(8), i32(0, 1, 1), b""), 2, r"shape \[2\], expected an empty shape and row_offsets"),
    (TAGS, (2, [], bytes(8), b"", b""), 1, "row_offsets of 0 bytes, expected 8"),
    (TAGS, (2, [], bytes(8), i32(0, 1)[:7], b""), 1, "row_offsets of 7 bytes"),
    (TAGS, (2, [], bytes(8), i32(1, 1), b""), 1, "row_offsets that start at 1, expected a start at 0"),
    (TAGS, (2, [], bytes(8), i32(-1, 1), b""), 1, "row_offsets that start at -1"),
    (TAGS, (2, [], bytes(16), i32(0, 2, 1), b""), 2, "row_offsets that decrease to 1 at position 2"),
    (TAGS, (2, [], bytes(8), i32(0, -1), b""), 1, "decrease to -1 at position 1"),
    (TAGS, (2, [], bytes(40), i32(0, 0, 5), b""), 2, "5 values in row 1, expected at most 4"),
    (TAGS, (2, [], bytes(16), i32(0, 1), b""), 1, r"16 bytes of values, expected 8 \(1 i64 values\)"),
    (TITLE, (3, [1], b"abc", b"", b""), 1, "byte_offsets of 0 bytes, expected 8"),
    (TITLE, (3, [1], b"abc", b"", i32(0, 2)), 1, "3 bytes of values, expected 2, where byte_offsets end"),
    (TITLE, (3, [2], b"abc", b"", i32(0, 4, 3)), 2, "byte_offsets that decrease to 3 at position 2"),
    (WORDS, (3, [], b"abc", i32(0, 2), i32(0, 3)), 1, "byte_offsets of 8 bytes, expected 12"),
])
def test_from_wire_refuses_what_does_not_match(feature, wire, rows, message):
    with pytest.raises(fs.FeatureError, match=message):
        fs.Column.from_wire(feature, *wire, rows)


def test_from_wire_does_not_copy():
    data = f32(1, 2)
    column = fs.Column.from_wire(PRICE, 1, [2], data, b"", b"", 2)
    assert column.values.ctypes.data == np.frombuffer(data, np.uint8).ctypes.data


@pytest.mark.parametrize(("column", "message"), [
    (fs.Column(np.ones(2, np.float32), np.array([0, 2], np.int64)), "row_offsets int64"),
    (fs.Column(np.ones((1, 2), np.float32), shape=(1, 2)), "expected shape|flat"),
    (fs.Column(np.ones(4, np.float32)[::2], shape=(2,)), "flat, contiguous"),
    (fs.Column(np.ones(2, np.int32), shape=(2,)), "numpy dtype int32"),
    (fs.Column(np.ones(2, np.uint8), shape=(2,)), "dtype bytes"),
])
def test_check_column_refuses_arrays_of_other_kinds(column, message):
    with pytest.raises(fs.FeatureError, match=message):
        fs.check_column(PRICE, column, 2)


def is_legal(feature: fs.Feature, code: int, shape: list[int], values: bytes, rows_at: bytes, bytes_at: bytes,
             rows: int) -> bool:
    """The rules of the wire in plain Python, for the fuzz to compare with."""
    def cuts(data: bytes, count: int, most: int | None) -> list[int] | None:
        if len(data) != 4 * (count + 1):
            return None
        offsets = np.frombuffer(data, "<i4").tolist()
        lengths = [b - a for a, b in zip(offsets, offsets[1:], strict=False)]
        return offsets if offsets[0] == 0 and all(0 <= n <= (most or n) for n in lengths) else None

    if code != feature.dtype_code or tuple(shape) != feature.shape(rows):
        return False
    count = rows * feature.width
    if feature.is_ragged:
        offsets = cuts(rows_at, rows, feature.width)
        if offsets is None:
            return False
        count = offsets[-1]
    elif rows_at:
        return False
    if code == 3:
        offsets = cuts(bytes_at, count, None)
        return offsets is not None and offsets[-1] == len(values)
    return not bytes_at and len(values) == count * (4 if code == 1 else 8)


small_offsets = st.lists(st.integers(-1, 5), max_size=5).map(lambda v: i32(*v))
ascending = st.lists(st.integers(0, 3), max_size=5).map(lambda v: i32(*np.cumsum([0, *v]).tolist()))
blobs = st.binary(max_size=24) | ascending | small_offsets | st.integers(0, 6).map(lambda n: bytes(8 * n))


@settings(deadline=None, max_examples=1000)
@given(feature=st.sampled_from(ALL), code=st.integers(0, 4), shape=st.lists(st.integers(-1, 4), max_size=3),
       values=blobs, rows_at=blobs, bytes_at=blobs, rows=st.integers(0, 3), repair=st.integers(0, 7))
def test_from_wire_accepts_exactly_what_is_legal(feature, code, shape, values, rows_at, bytes_at, rows, repair):
    """Any bytes give a column that gathers, or a FeatureError: never a crash. Repairs lead deeper than chance does."""
    code = feature.dtype_code if repair & 1 else code
    shape = list(feature.shape(rows)) if repair & 2 else shape
    if repair & 4:
        rows_at = rows_at if feature.is_ragged else b""
        bytes_at = bytes_at if feature.dtype == "bytes" else b""
    legal = is_legal(feature, code, shape, values, rows_at, bytes_at, rows)
    try:
        column = fs.Column.from_wire(feature, code, shape, values, rows_at, bytes_at, rows)
    except fs.FeatureError as error:
        assert not legal and error.feature == feature.name
        return
    assert legal
    chain = (fs.Hash64(),) if feature.dtype == "bytes" else ()
    extractor = fs.Extractor(fs.Schema(ALL), [fs.Slot("s", feature.name, chain)], "item")
    assert extractor.gather(np.zeros(rows, np.int64), {feature.name: column}).stats.cells_present == rows
