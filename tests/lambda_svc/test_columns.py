"""What plain Python and numpy values become on the wire, and what is refused by name before anything is sent."""

from __future__ import annotations

import numpy as np
import pytest

from lambda_svc.columns import pack, pack_columns, pack_id, pack_ids, pack_inputs
from lambda_svc.proto import ranking_pb2 as pb


def numbers(column: pb.Column) -> list:
    return np.frombuffer(column.values, "<f4" if column.dtype == pb.F32 else "<i8").tolist()


@pytest.mark.parametrize(
    "values, dtype, sent",
    [
        ([1, 2], pb.DTYPE_UNSPECIFIED, [1, 2]),
        ([True, 2], pb.DTYPE_UNSPECIFIED, [1, 2]),
        ([1, 2.5], pb.F32, [1, 2.5]),
        ([np.int32(1), 2], pb.I64, [1, 2]),
        ([np.float64(1), np.float32(2)], pb.F32, [1, 2]),
        (np.array([1, 2]), pb.I64, [1, 2]),
        (np.array([True]), pb.I64, [1]),
        (np.array([2**63], np.uint64), pb.I64, [-(2**63)]),
        ([2**63, -1], pb.I64, [-(2**63), -1]),  # numpy has no common type for these
        (range(2), pb.DTYPE_UNSPECIFIED, [0, 1]),
    ],
)
def test_only_pythons_own_ints_leave_their_type_to_the_server(values, dtype, sent):
    column = pack("x", values)
    assert column.dtype == dtype and numbers(column) == sent and list(column.shape) == [len(sent)]


def test_lists_are_multi_valued_and_arrays_are_dense():
    ragged = pack("x", [[1, 2], []])
    assert np.frombuffer(ragged.row_offsets, "<i4").tolist() == [0, 2, 2] and not ragged.shape
    assert list(pack("x", [np.zeros(3), np.ones(3)]).shape) == [2, 3]
    words = pack("x", [np.array(["ab", "c"])])
    assert list(words.shape) == [1, 2] and words.values == b"abc" and words.dtype == pb.BYTES


@pytest.mark.parametrize(
    "values, error, message",
    [
        (1995.0, TypeError, r"items\['x'\]: got one float; expected one value per candidate \(3\)"),
        ("drama", TypeError, r"items\['x'\]: got one str; expected one value per candidate \(3\)"),
        (None, TypeError, r"items\['x'\]: got None; expected one value per candidate"),
        (np.float32(1), TypeError, r"items\['x'\]: got one float32; expected one value per candidate"),
        (np.array(1.0), TypeError, r"items\['x'\]: got one ndarray; expected one value per candidate"),
        ({1, 2, 3}, TypeError, r"items\['x'\]: got one set; expected one value per candidate"),
        ([1.0, 2.0], ValueError, r"items\['x'\]: got 2 values; expected one value per candidate \(3\)"),
        ([[1], [2]], ValueError, r"items\['x'\]: got 2 values; expected one value per candidate \(3\)"),
        ([1, None, 2], TypeError, r"items\['x'\]: got values of type None and int; expected a number, str"),
        ([1, "a", 2], TypeError, r"items\['x'\]: got values of type int and str; expected a number, str"),
        ([[1], 2, 3], TypeError, r"items\['x'\]: got values of type int and list; expected a number, str"),
        ([np.ones(2), np.ones(3), np.ones(3)], ValueError, r"items\['x'\]: got vectors of shapes \[2\], \[3\]"),
        ([1e300, 0.0, 0.0], ValueError, r"items\['x'\]: got 1e\+300; expected numbers within float32"),
        ([2**64, 0, 0], ValueError, r"items\['x'\]: got 18446744073709551616; expected an int of 64 bits"),
    ],
)
def test_items_that_cannot_be_packed_are_named(values, error, message):
    with pytest.raises(error, match=message):
        pack_columns("items", {"x": values}, rows=3)


@pytest.mark.parametrize(
    "columns, message",
    [
        ([1], r"user: got one list; expected a dict"),
        ({3: 1}, r"user: got a name that is one int; expected str"),
        ({"age": None}, r"user\['age'\]: got values of type None; expected a number"),
        ({"age": {"a": 1}}, r"user\['age'\]: got values of type dict; expected a number"),
    ],
)
def test_user_features_that_cannot_be_packed_are_named(columns, message):
    with pytest.raises(TypeError, match=message):
        pack_columns("user", columns)


@pytest.mark.parametrize("infinite", [float("inf"), float("-inf")])
def test_infinities_are_numbers(infinite):
    assert numbers(pack("x", [infinite, 1.0])) == [infinite, 1.0]


@pytest.mark.parametrize(
    "values, sent",
    [
        ([1, 2, 3], [1, 2, 3]),
        (np.array([1, 2, 3]), [1, 2, 3]),
        ([1, 2.5, np.int8(3)], [1, 2.5, 3]),
        (2, [2, 2, 2]),
        (np.float64(2.5), [2.5, 2.5, 2.5]),
        (np.array(2), [2, 2, 2]),
    ],
)
def test_formula_inputs_are_float32_whatever_numbers_come(values, sent):
    [column] = pack_inputs("formula_inputs", {"bid": values}, 3)
    assert column.dtype == pb.F32 and list(column.shape) == [3] and numbers(column) == sent


def test_formula_inputs_of_no_candidates_are_float32_too():
    for values in ([], 1.0):
        [column] = pack_inputs("formula_inputs", {"bid": values}, 0)
        assert column.dtype == pb.F32 and list(column.shape) == [0]


@pytest.mark.parametrize(
    "values, error, got",
    [
        ([1, 2], ValueError, "2 values"),
        ([[1, 2, 3]], ValueError, r"shape \[1, 3\]"),
        ([[1], [2, 3]], ValueError, "lists within a list"),
        ("1.5", TypeError, "one str"),
        (["1.5"] * 3, TypeError, "values of type str"),
        (None, TypeError, "None"),
        ([None] * 3, TypeError, "values of type None"),
    ],
)
def test_formula_inputs_that_cannot_be_packed_are_named(values, error, got):
    expected = rf"formula_inputs\['bid'\]: got {got}; expected one number, or one per candidate \(3\)"
    with pytest.raises(error, match=expected):
        pack_inputs("formula_inputs", {"bid": values}, 3)


@pytest.mark.parametrize(
    "ids",
    [[1, 2**64 - 1], [1, -1], np.array([1, -1]), np.array([1, 2**64 - 1], np.uint64), (np.int64(1), np.int64(-1))],
)
def test_ids_are_the_same_64_bits_signed_or_not(ids):
    assert np.frombuffer(pack_ids(ids, "ids"), "<i8").tolist() == [1, -1]
    assert pack_id(2**64 - 1, "id") == pack_id(np.int8(-1), "id") == -1


@pytest.mark.parametrize(
    "ids, error, message",
    [
        (5, TypeError, "ids: got one int; expected a list"),
        (None, TypeError, "ids: got None; expected a list"),
        ("123", TypeError, "ids: got one str; expected a list"),
        ({1, 2}, TypeError, "ids: got one set; expected a list"),
        (np.array([1.0]), TypeError, "ids: got float64; expected int64 or uint64"),
        ([1, 2.0], TypeError, r"ids\[1\]: got one float; expected an int of 64 bits"),
        ([1, None], TypeError, r"ids\[1\]: got None; expected an int of 64 bits"),
        ([1, 2**64], ValueError, r"ids\[1\]: got 18446744073709551616; expected an int of 64 bits"),
        ([-(2**63) - 1], ValueError, r"ids\[0\]: got -9223372036854775809; expected an int of 64 bits"),
        ([1 << 50_000], ValueError, r"ids\[0\]: got an int of 50001 bits; expected an int of 64 bits"),
        (np.zeros((2, 2), np.int64), ValueError, r"ids: got shape \[2, 2\]; expected one dimension"),
        ([[1, 2], [3]], ValueError, "ids: got lists within a list"),
    ],
)
def test_ids_that_are_none_are_named(ids, error, message):
    with pytest.raises(error, match=message):
        pack_ids(ids, "ids")
