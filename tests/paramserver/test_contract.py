"""What every table promises, reference and native alike. Numbers are small integers that every dtype holds exactly."""

import numpy as np
import pytest
from paramserver import RowStatus
from paramserver.errors import ArrayError, BagError, IdError, OptionError, RowValueError

EXTREMES = np.array([0, 1, -1, 2**63 - 1, -(2**63), 2**62, -(2**62), 2**32, 2**31 - 1], np.int64)


def rows_for(ids, dim):
    """Integers below 256, so that bf16 holds them, in rows that span 51 or nothing, so that int8 does: 5 codes each."""
    columns = np.arange(dim) % 52
    columns[-1] = 51 if dim > 1 else 0
    return ((np.asarray(ids).astype(np.int64)[:, None] % 61) * 3 + columns).astype(np.float32)


def offsets_of(*sizes):
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)


@pytest.mark.parametrize("dim", [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 100, 2047, 2048])
def test_every_dim_gives_back_what_was_put(make, dim):
    table = make(dim)
    rows = rows_for(EXTREMES, dim)
    assert table.upsert(EXTREMES, rows) == len(EXTREMES)
    status = np.full(len(EXTREMES), 9, np.uint8)
    np.testing.assert_array_equal(table.lookup(EXTREMES, status=status), rows)
    assert set(status.tolist()) == {RowStatus.HIT}
    np.testing.assert_array_equal(table.lookup_pooled(EXTREMES, offsets_of(4, 0, 5), "sum"),
                                  [rows[:4].sum(0), np.zeros(dim), rows[4:].sum(0)])


def test_unknown_ids_get_the_default_row(make):
    table = make(3, default_row=[7, -7, 7])
    table.upsert([5], np.ones((1, 3), np.float32))
    status = np.empty(4, np.uint8)
    rows = table.lookup([4, 5, -5, 0], status=status)
    np.testing.assert_array_equal(rows, [[7, -7, 7], [1, 1, 1], [7, -7, 7], [7, -7, 7]])
    assert status.tolist() == [RowStatus.DEFAULT, RowStatus.HIT, RowStatus.DEFAULT, RowStatus.DEFAULT]
    np.testing.assert_array_equal(table.default_row, np.float32([7, -7, 7]))
    np.testing.assert_array_equal(make(3).lookup([1]), np.zeros((1, 3)))


def test_no_id_is_reserved_before_it_is_put(make):
    status = np.empty(len(EXTREMES), np.uint8)
    make(2).lookup(EXTREMES, status=status)
    assert set(status.tolist()) == {RowStatus.DEFAULT}


def test_uint64_and_int64_are_the_same_bits(make):
    table = make(2)
    table.upsert(np.array([2**64 - 1, 2**63, 5], np.uint64), rows_for([1, 2, 3], 2))
    np.testing.assert_array_equal(table.lookup(np.array([-1, -(2**63), 5])), rows_for([1, 2, 3], 2))
    np.testing.assert_array_equal(table.ids(), np.array([-(2**63), -1, 5]))


def test_the_last_of_equal_ids_wins(make):
    table = make(1)
    assert table.upsert([8, 8, 9, 8], np.float32([[1], [2], [3], [4]])) == 2
    assert table.upsert([9, 7], np.float32([[5], [6]])) == 1
    np.testing.assert_array_equal(table.lookup([8, 9, 7]), [[4], [5], [6]])
    assert len(table) == 3


def test_deleted_ids_are_unknown_and_may_come_back(make):
    table = make(1, default_row=[-1])
    table.upsert(EXTREMES, rows_for(EXTREMES, 1))
    assert table.delete(np.concatenate([EXTREMES[:4], EXTREMES[:4], [12345]])) == 4
    assert len(table) == len(EXTREMES) - 4
    np.testing.assert_array_equal(table.lookup(EXTREMES[:4]), np.full((4, 1), -1))
    np.testing.assert_array_equal(table.lookup(EXTREMES[4:]), rows_for(EXTREMES[4:], 1))
    assert table.upsert(EXTREMES[:1], np.float32([[3]])) == 1
    np.testing.assert_array_equal(table.lookup(EXTREMES[:1]), [[3]])


def test_it_grows_and_shrinks_without_losing_a_row(make):
    table = make(2)
    everything = np.arange(-3000, 3000) * 7_919_003_211
    for part in np.array_split(everything, 13):
        table.upsert(part, rows_for(part, 2))
    np.testing.assert_array_equal(table.lookup(everything), rows_for(everything, 2))
    assert table.delete(everything[::2]) == 3000
    np.testing.assert_array_equal(table.lookup(everything[1::2]), rows_for(everything[1::2], 2))
    np.testing.assert_array_equal(table.lookup(everything[::2]), np.zeros((3000, 2)))
    np.testing.assert_array_equal(table.ids(), everything[1::2])


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 64, 65, 95, 4095, 4096, 4097, 8200])
def test_batches_of_any_length(make, n):
    table = make(3)
    ids = np.arange(n) - n // 2
    table.upsert(ids, rows_for(ids, 3))
    np.testing.assert_array_equal(table.lookup(ids), rows_for(ids, 3))
    bags = table.lookup_pooled(ids, offsets_of(n), "mean")
    expected = rows_for(ids, 3).astype(np.float64).mean(0) if n else np.zeros(3)
    np.testing.assert_allclose(bags[0], expected, rtol=1e-5)


def test_empty_batches(make):
    table = make(4)
    assert table.upsert(np.empty(0, np.int64), np.empty((0, 4), np.float32)) == 0
    assert table.delete([]) == 0
    assert table.lookup([]).shape == (0, 4)
    assert table.lookup_pooled([], offsets_of()).shape == (0, 4)
    np.testing.assert_array_equal(table.lookup_pooled([], offsets_of(0, 0)), np.zeros((2, 4)))


POOLED = {"sum": [5, 11], "mean": [2.5, 5.5], "sqrtn": [3.535534, 7.7781744]}


@pytest.mark.parametrize(("mode", "expected"), POOLED.items())
def test_pooling_modes(make, mode, expected):
    table = make(2)
    table.upsert([1, 2], np.float32([[2, 5], [3, 6]]))
    np.testing.assert_allclose(table.lookup_pooled([1, 2], offsets_of(2), mode), [expected], rtol=1e-6)


def test_weights_multiply_rows_and_make_the_divisor(make):
    table = make(1, default_row=[10])
    table.upsert([1, 2], np.float32([[2], [3]]))
    weights = np.float32([2, 1, 0.5, 0, 0])
    ids, offsets = [1, 2, 99, 1, 2], offsets_of(3, 2)
    status = np.empty(5, np.uint8)
    np.testing.assert_allclose(table.lookup_pooled(ids, offsets, "sum", weights, status=status), [[12], [0]], rtol=1e-6)
    assert status.tolist() == [0, 0, RowStatus.DEFAULT, 0, 0]
    np.testing.assert_allclose(table.lookup_pooled(ids, offsets, "mean", weights), [[12 / 3.5], [0]], rtol=1e-6)
    np.testing.assert_allclose(table.lookup_pooled(ids, offsets, "sqrtn", weights), [[12 / 5.25**0.5], [0]], rtol=1e-6)


def test_empty_bags_are_exactly_zero_even_with_a_default_row(make):
    table = make(3, default_row=[5, 5, 5])
    pooled = table.lookup_pooled([1], offsets_of(0, 1, 0), "mean", out=np.full((3, 3), np.nan, np.float32))
    np.testing.assert_array_equal(pooled, [[0] * 3, [5] * 3, [0] * 3])


def test_out_and_status_are_written_in_place_in_any_float(make):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 arrays need ml_dtypes")
    table = make(5)
    table.upsert([1, 2], np.float32([[1.5, 2, -3, 0.25, 1000]] * 2))
    row = table.lookup([1])[0]
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        out = np.zeros((3, 5), dtype)
        assert table.lookup([1, 9, 2], out=out) is out
        np.testing.assert_array_equal(out[0], row.astype(dtype))
        assert table.lookup_pooled([1, 2], offsets_of(2, 0, 0), "mean", out=out) is out
        np.testing.assert_array_equal(out, np.stack([row, np.zeros(5), np.zeros(5)]).astype(dtype))


@pytest.mark.parametrize("ids", [np.array([1.0]), [1.5], [2**63, -1], np.array([1], np.int32), np.array([1], ">i8"),
                                 ["a"], [True], [None], [2**64], [[1], [2, 3]]])
def test_ids_that_are_not_64_bit_integers_are_refused(make, ids):
    with pytest.raises(IdError, match="ids .*expected int64 or uint64"):
        make(1).lookup(ids)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"out": np.zeros((2, 3), np.float64)}, "out has dtype float64, expected float32, float16 or bfloat16"),
        ({"out": np.zeros((2, 3), ">f4")}, "out has dtype >f4, expected float32, float16 or bfloat16"),
        ({"out": np.zeros((2, 4), np.float32)}, r"out has shape \(2, 4\), expected \(2, 3\)"),
        ({"out": np.zeros((1, 3), np.float32)}, r"out has shape \(1, 3\), expected \(2, 3\)"),
        ({"out": np.zeros((2, 6), np.float32)[:, ::2]}, "out has strides"),
        ({"out": np.broadcast_to(np.float32(0), (2, 3))}, "out has strides"),
        ({"out": [[0] * 3] * 2}, r"out has dtype \(list\)"),
        ({"status": np.zeros(2, np.int64)}, "status has dtype int64, expected uint8"),
        ({"status": np.zeros(3, np.uint8)}, r"status has shape \(3,\), expected \(2,\)"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(make, arguments, message):
    with pytest.raises(ArrayError, match=message):
        make(3).lookup([1, 2], **arguments)


def test_read_only_outputs_are_refused(make):
    out = np.zeros((1, 3), np.float32)
    out.flags.writeable = False
    with pytest.raises(ArrayError, match="out is read-only"):
        make(3).lookup([1], out=out)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((2, 3)), "rows has dtype float64, expected a numpy array of float32"),
        (np.zeros((2, 2), np.float32), r"rows has shape \(2, 2\), expected \(2, 3\)"),
        (np.zeros(6, np.float32), r"rows has shape \(6,\)"),
    ],
)
def test_rows_that_do_not_fit_are_refused(make, rows, message):
    with pytest.raises(ArrayError, match=message):
        make(3).upsert([1, 2], rows)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_no_numbers_are_refused_and_nothing_is_written(make, bad):
    table = make(3)
    rows = np.ones((3, 3), np.float32)
    rows[1, 2] = bad
    with pytest.raises(RowValueError, match=r"rows\[1\].*element 2 is -?(nan|inf)"):
        table.upsert([1, 2, 3], rows)
    assert len(table) == 0
    with pytest.raises(RowValueError, match="default_row"):
        make(1, default_row=[bad])


def test_strided_and_transposed_inputs_are_read_right(make):
    table = make(2)
    ids = np.arange(10)[::-2]
    rows = np.asfortranarray(rows_for(ids, 2))
    table.upsert(ids, rows)
    np.testing.assert_array_equal(table.lookup(ids), rows)


@pytest.mark.parametrize("offsets", [[1, 3], [0, 2], [0, 4], [0, 2, 1, 3], [0, -1, 3]])
def test_offsets_that_do_not_cut_the_ids_are_refused(make, offsets):
    with pytest.raises(BagError, match="offsets"):
        make(1).lookup_pooled([1, 2, 3], np.array(offsets, np.int32))


def test_other_pooled_arguments_are_checked(make):
    table, offsets = make(1), offsets_of(2)
    with pytest.raises(ArrayError, match="offsets has dtype int64, expected a numpy array of int32"):
        table.lookup_pooled([1, 2], offsets.astype(np.int64))
    with pytest.raises(ArrayError, match=r"offsets has shape \(0,\)"):
        table.lookup_pooled([], np.empty(0, np.int32))
    with pytest.raises(OptionError, match="mode is 'max', expected one of sum, mean, sqrtn"):
        table.lookup_pooled([1, 2], offsets, "max")
    with pytest.raises(ArrayError, match=r"weights has shape \(1,\), expected \(2,\)"):
        table.lookup_pooled([1, 2], offsets, weights=np.ones(1, np.float32))


@pytest.mark.parametrize("dim", [0, -1, 4097, 1.5, True, "8"])
def test_dims_out_of_range_are_refused(make, dim):
    with pytest.raises(OptionError, match="dim is"):
        make(dim)


def test_options_out_of_range_are_refused(make):
    with pytest.raises(OptionError, match="dtype is 'f64', expected one of f32, f16, bf16, int8"):
        make(1, dtype="f64")
    with pytest.raises(OptionError, match="rows_hint is -1"):
        make(1, rows_hint=-1)
    with pytest.raises(ArrayError, match=r"default_row has shape \(2,\), expected \(3,\)"):
        make(3, default_row=[1, 2])
