"""Packing of plain Python and numpy values into the wire's columns, without knowing the server's schema.

Numpy's types travel as they are. Python's own ints have no width, so they travel as whole numbers of no declared type,
which the server converts to the feature's type where that is exact.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence, Set
from itertools import chain

import numpy as np

from lambda_svc.proto import ranking_pb2 as pb

__all__ = ["pack", "pack_columns", "pack_id", "pack_ids", "pack_inputs"]

NUMBERS = "fiub"  # numpy's kinds of numbers
VALUES = "a number, str or bytes, a list of these (multi-valued) or a numpy vector (dense)"


def pack(name: str, values: Sequence | np.ndarray, field: str = "", rows: int | None = None) -> pb.Column:
    """A column of `len(values)` rows; `field` is what errors call it, `rows` how many candidates there are.

    Takes numpy arrays [rows] or [rows, width] (floats travel as F32, integers as I64) and sequences of numbers, str or
    bytes; a row that is itself a list makes the column multi-valued, a row that is a numpy array makes it a dense
    vector. Raises TypeError for anything else, ValueError for another number of rows or a number that float32 or 64
    bits cannot hold.
    """
    field = field or f"column {name!r}"
    per_row = "one value per row" if rows is None else f"one value per candidate ({rows})"
    if _is_one(values):
        raise TypeError(f"{field}: got {_one(values)}; expected {per_row}")
    table = values if isinstance(values, np.ndarray) and values.dtype.kind in NUMBERS else list(values)
    if rows is not None and len(table) != rows:
        raise ValueError(f"{field}: got {len(table)} values; expected {per_row}")
    if isinstance(table, np.ndarray):
        return _numeric(name, table, field)
    if table and all(isinstance(row, np.ndarray) for row in table):
        return _dense(name, table, field)
    if table and all(isinstance(row, (list, tuple)) for row in table):
        column = _flat(name, list(chain.from_iterable(table)), field)
        column.ClearField("shape")
        column.row_offsets = _offsets([len(row) for row in table])
        return column
    return _flat(name, table, field)


def pack_columns(argument: str, columns: Mapping[str, object] | None, rows: int | None = None) -> list[pb.Column]:
    """Columns of an argument {name: value}: of one row each, or of `rows` rows. Raises as `pack` does."""
    if rows is None:
        return [pack(name, [value], field) for name, value, field in _named(argument, columns)]
    return [pack(name, values, field, rows) for name, values, field in _named(argument, columns)]


def pack_inputs(argument: str, inputs: Mapping[str, object] | None, rows: int) -> list[pb.Column]:
    """F32 columns [rows] from {name: numbers of any type}; one number stands for every row. Raises as `pack` does."""
    columns = []
    for name, values, field in _named(argument, inputs):
        expected = f"one number, or one per candidate ({rows})"
        try:
            array = np.asarray(values)
        except ValueError:  # lists of several lengths
            raise ValueError(f"{field}: got lists within a list; expected {expected}") from None
        if array.dtype.kind not in NUMBERS:
            listed = isinstance(values, (list, tuple, np.ndarray))
            raise TypeError(f"{field}: got {_types(list(values)) if listed and array.ndim else _one(values)}; "
                            f"expected {expected}")
        if array.ndim and array.shape != (rows,):
            got = f"{len(array)} values" if array.ndim == 1 else f"shape {list(array.shape)}"
            raise ValueError(f"{field}: got {got}; expected {expected}")
        columns.append(_floats(name, np.broadcast_to(array, (rows,)), field))
    return columns


def pack_id(value: int, field: str) -> int:
    """The int64 with the same 64 bits as `value`, an int or a numpy integer; raises TypeError, ValueError beyond."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{field}: got {_one(value)}; expected an int of 64 bits") from None
    if not -(2**63) <= number < 2**64:
        got = number if number.bit_length() <= 128 else f"an int of {number.bit_length()} bits"
        raise ValueError(f"{field}: got {got}; expected an int of 64 bits, from -2**63 to 2**64 - 1")
    return number - 2**64 if number >= 2**63 else number


def pack_ids(ids: Sequence[int] | np.ndarray, field: str) -> bytes:
    """Ids [n] as little-endian 64-bit bytes. Raises TypeError, or ValueError for two dimensions or wider ids."""
    if _is_one(ids):
        raise TypeError(f"{field}: got {_one(ids)}; expected a list or a numpy array of ints of 64 bits")
    values = ids if isinstance(ids, np.ndarray) else list(ids)
    try:
        array = np.asarray(values) if len(values) else np.empty(0, np.int64)
    except ValueError:
        raise ValueError(f"{field}: got lists within a list; expected one list of ints of 64 bits") from None
    if array.ndim != 1:
        raise ValueError(f"{field}: got shape {list(array.shape)}; expected one dimension, [candidates]")
    if array.dtype.kind not in "iu" and not isinstance(ids, np.ndarray):  # ints numpy has no common type for
        array = np.array([pack_id(value, f"{field}[{place}]") for place, value in enumerate(values)], np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{field}: got {array.dtype}; expected int64 or uint64")
    return array.astype("<u8" if array.dtype == np.uint64 else "<i8").tobytes()


def _named(argument: str, columns: Mapping[str, object] | None) -> list[tuple[str, object, str]]:
    """(name, value, what errors call it) of every entry."""
    if columns is None:
        return []
    if not isinstance(columns, Mapping):
        raise TypeError(f"{argument}: got {_one(columns)}; expected a dict of names and values")
    for name in columns:
        if not isinstance(name, str):
            raise TypeError(f"{argument}: got a name that is {_one(name)}; expected str")
    return [(name, value, f"{argument}[{name!r}]") for name, value in columns.items()]


def _flat(name: str, values: list, field: str) -> pb.Column:
    if not values:
        return pb.Column(name=name, shape=[0])  # the server knows the type of what is not there
    if all(isinstance(value, (str, bytes)) for value in values):
        encoded = [value.encode() if isinstance(value, str) else value for value in values]
        return pb.Column(
            name=name,
            dtype=pb.BYTES,
            values=b"".join(encoded),
            byte_offsets=_offsets([len(value) for value in encoded]),
            shape=[len(values)],
        )
    if all(isinstance(value, int) for value in values):
        return _whole(name, values, field)
    if not all(isinstance(value, (int, float, np.number, np.bool_)) for value in values):
        raise TypeError(f"{field}: got {_types(values)}; expected {VALUES}")
    return _numeric(name, np.asarray(values), field)


def _whole(name: str, values: list[int], field: str) -> pb.Column:
    """Python's ints: of no declared type, or I64 when only an unsigned id can be meant."""
    try:
        packed, dtype = np.array(values, "<i8"), pb.DTYPE_UNSPECIFIED
    except OverflowError:
        packed, dtype = np.array([pack_id(value, field) for value in values], "<i8"), pb.I64
    return pb.Column(name=name, dtype=dtype, values=packed.tobytes(), shape=packed.shape)


def _dense(name: str, rows: list[np.ndarray], field: str) -> pb.Column:
    if len({row.shape for row in rows}) > 1:
        shapes = sorted({str(list(row.shape)) for row in rows})
        raise ValueError(f"{field}: got vectors of shapes {', '.join(shapes[:5])}; expected one shape (lists may vary)")
    stacked = np.stack(rows)
    if stacked.dtype.kind in NUMBERS:
        return _numeric(name, stacked, field)
    column = _flat(name, stacked.reshape(-1).tolist(), field)
    column.shape[:] = stacked.shape
    return column


def _numeric(name: str, array: np.ndarray, field: str) -> pb.Column:
    if array.dtype.kind == "f":
        return _floats(name, array, field)
    packed = array.astype("<u8" if array.dtype == np.uint64 else "<i8")
    return pb.Column(name=name, dtype=pb.I64, values=packed.tobytes(), shape=array.shape)


def _floats(name: str, array: np.ndarray, field: str) -> pb.Column:
    with np.errstate(over="ignore"):
        packed = array.astype("<f4")
    beyond = np.isinf(packed) & ~np.isinf(array) if np.isinf(packed).any() else None
    if beyond is not None and beyond.any():
        raise ValueError(f"{field}: got {array[beyond][0]}; expected numbers within float32, at most 3.4e38")
    return pb.Column(name=name, dtype=pb.F32, values=packed.tobytes(), shape=array.shape)


def _offsets(lengths: list[int]) -> bytes:
    return np.concatenate([[0], np.cumsum(lengths)]).astype("<i4").tobytes()


def _is_one(value: object) -> bool:
    """Whether `value` is one value, or a collection without an order, rather than values in a row."""
    if isinstance(value, np.ndarray):
        return value.ndim == 0
    return isinstance(value, (str, bytes, bytearray, Mapping, Set)) or not hasattr(value, "__iter__")


def _one(value: object) -> str:
    return "None" if value is None else f"one {type(value).__name__}"


def _types(values: list) -> str:
    names = sorted({"None" if value is None else type(value).__name__ for value in values})
    return f"values of type {' and '.join(names[:5])}"
