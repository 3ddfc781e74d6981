"""Stored rows: the plain-Python rounding gives the native bytes, and is as near to the rows as the formats promise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from paramserver import _core, parquet, quantize
from paramserver.arrays import DTYPES
from paramserver.errors import ArrayError, OptionError, RowValueError

from paramserver import Table

from tests.paramserver.kinds import KINDS, table_of

FLOATS = st.one_of(st.floats(-8, 8, width=32), st.floats(allow_nan=False, allow_infinity=False, width=32),
                   st.sampled_from([0.0, -0.0, 1e-45, -1e-45, 2e-38, 65519, 65520, 3.3961775e38]))
ROWS = st.tuples(st.integers(1, 4), st.integers(1, 20)).flatmap(
    lambda shape: st_numpy.arrays(np.float32, shape, elements=FLOATS))


def native(rows, dtype):
    stored = np.full((len(rows), quantize.stored_row_bytes(dtype, rows.shape[1])), 0xAA, np.uint8)
    _core.store_rows(DTYPES.index(dtype), rows, stored)
    return stored


def again(rows, dtype="int8"):
    return quantize.load_rows(quantize.store_rows(rows, dtype), dtype, rows.shape[1])


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=150, deadline=None)
@given(rows=ROWS)
def test_python_and_native_store_the_same_bytes_or_refuse_the_same_row(dtype, rows):
    try:
        stored = quantize.store_rows(rows, dtype)
    except RowValueError as error:
        with pytest.raises(RowValueError) as caught:
            native(rows, dtype)
        assert str(caught.value).split(":")[0] == str(error).split(":")[0]
        return
    np.testing.assert_array_equal(native(rows, dtype), stored)
    loaded = np.empty_like(rows)
    _core.load_rows(DTYPES.index(dtype), stored, loaded)
    np.testing.assert_array_equal(loaded, quantize.load_rows(stored, dtype, rows.shape[1]))
    assert np.isfinite(loaded).all()


@settings(max_examples=300, deadline=None)
@given(rows=ROWS)
def test_int8_keeps_the_smallest_exactly_and_the_rest_within_half_a_step(rows):
    try:
        loaded = again(rows)
    except RowValueError:
        assert (rows.max(1).astype(np.float64) - rows.min(1)).max() > 3.3e38
        return
    low, high = rows.min(1, keepdims=True), rows.max(1, keepdims=True)
    np.testing.assert_array_equal(loaded.min(1, keepdims=True), low)
    span = high.astype(np.float64) - low
    # Each of product and sum rounds once, relative to the largest number it meets.
    largest = np.minimum(np.maximum(np.maximum(np.abs(low), np.abs(high)), span), 3e38)
    rounding = np.spacing(largest.astype(np.float32))
    distance = np.abs(loaded.astype(np.float64) - rows)
    scale = np.maximum(span / 255, 1e-45)
    assert (distance <= scale / 2 * (1 + 1e-6) + 2.0 * rounding).all()
    usual = span[:, 0] > 1e-35
    assert (np.abs(loaded.max(1, keepdims=True).astype(np.float64) - high) <= 2.0 * rounding)[usual].all()


@pytest.mark.parametrize("value", [0.0, 0.1, -3e38, 1e-45, 3.4028235e38])
def test_equal_numbers_come_back_exactly_from_int8(value):
    rows = np.full((2, 7), value, np.float32)
    np.testing.assert_array_equal(again(rows), rows)


def test_int8_rows_lie_as_the_header_draws_them():
    stored = quantize.store_rows(np.float32([[-1, 254, 0, 1.5, 30]]), "int8")
    assert stored.shape == (1, 16) and stored[0, :8].tolist() == [0, 255, 1, 3, 31, 0, 0, 0]
    np.testing.assert_array_equal(stored[0, 8:].view(np.float32), np.float32([1, -1]))


def test_tiny_ranges_use_their_few_codes():
    rows = np.float32([[0, 200, 100], [0, 1, 1]]) * np.float32(1e-45)
    np.testing.assert_array_equal(again(rows), rows)


@pytest.mark.parametrize("rows", [[[-3e38, 3e38]], [[3.4028235e38, -1e32]]])
def test_a_range_beyond_float32_is_refused_by_every_table(rows):
    for kind in KINDS:
        with pytest.raises(RowValueError, match=r"rows\[0\].*elements go from -.*below 3.4e38"):
            table_of(kind, 2, dtype="int8").upsert([1], np.float32(rows))


def test_bf16_refuses_what_rounds_to_infinity():
    assert again(np.float32([[3.3895e38]]), "bf16") == np.float32(3.3895314e38)
    with pytest.raises(RowValueError, match="element 1 is 3.4028"):
        quantize.store_rows(np.float32([[1, 3.4028235e38]]), "bf16")
    with pytest.raises(RowValueError, match="of at most 3.389e38"):
        native(np.float32([[1, 3.4028235e38]]), "bf16")


def test_the_error_is_the_same_in_one_batch_or_many():
    rows = np.random.default_rng(0).normal(size=(1000, 64)).astype(np.float32)
    meter = quantize.ErrorMeter()
    for part in np.array_split(rows, 7):
        meter.add(part)
    whole, distance = quantize.error_of(rows), np.abs(again(rows) - rows.astype(np.float64))
    assert (whole.rows, whole.max_abs) == (meter.error.rows, meter.error.max_abs) == (1000, distance.max())
    np.testing.assert_allclose([whole.mean_abs, meter.error.mean_abs], distance.mean(), rtol=1e-12)
    expected = np.sqrt((distance**2).mean() / (rows.astype(np.float64)**2).mean())
    np.testing.assert_allclose([whole.relative, meter.error.relative], expected, rtol=1e-12)
    assert 0.003 < whole.relative < 0.008
    assert str(whole).startswith("int8: error of 1,000 rows: largest 0.0")


def test_the_error_of_nothing_and_of_no_rows():
    assert quantize.error_of(np.zeros((0, 4), np.float32)) == quantize.QuantizationError("int8", 0, 0, 0, 0)
    assert quantize.error_of(np.zeros((2, 3), np.float32), "bf16").relative == 0
    with pytest.raises(OptionError, match="expected one of f32, f16, bf16, int8"):
        quantize.ErrorMeter("int4")
    for rows in ([1.0], np.zeros(3, np.float32), np.zeros((1, 2))):
        with pytest.raises(ArrayError, match="rows"):
            quantize.error_of(rows)


def test_loading_a_file_as_int8_tells_its_error(tmp_path):
    rows = np.random.default_rng(3).normal(size=(500, 16)).astype(np.float32)
    table = Table("t", 16)
    table.upsert(np.arange(500), rows)
    table.save(tmp_path / "t.parquet")
    meter = quantize.ErrorMeter("int8")
    loaded = parquet.load(Table, tmp_path / "t.parquet", dtype="int8", meter=meter)
    assert meter.error == quantize.error_of(rows)
    assert meter.error.max_abs == np.abs(loaded.lookup(np.arange(500)) - rows.astype(np.float64)).max()
