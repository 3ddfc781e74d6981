"""One feature's values for the rows of a request, as they travel: flat buffers, offsets and a shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from feature_store.arrow import NUMPY_DTYPES, CellProblem, read_cells, to_arrow
from feature_store.errors import FeatureError
from feature_store.offsets import offsets_problem
from feature_store.schema import DTYPE_CODES, Feature

_DTYPE_NAMES = {code: name for name, code in DTYPE_CODES.items()}
_CODES = {np.dtype("f4"): 1, np.dtype("i8"): 2, np.dtype("u8"): 2}
_I32 = np.dtype("<i4")


@dataclass(frozen=True, eq=False)
class Column:
    """A feature's values for `rows` rows. Building one checks nothing: `check_column`, `Extractor.check` do.

    Attributes:
        values: flat [values] of float32 or int64 (uint64 is read as the same bits), or uint8: all strings end to end.
        row_offsets: int32 [rows + 1] into the values; only for multi and sequence features.
        byte_offsets: int32 [values + 1] into the uint8 values; only for bytes features.
        shape: (rows,) for a single feature, (rows, width) for a dense one, () for multi and sequence features.
    """

    values: np.ndarray
    row_offsets: np.ndarray | None = None
    byte_offsets: np.ndarray | None = None
    shape: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows the column says that it has."""
        if self.shape:
            return int(self.shape[0])
        return 0 if self.row_offsets is None else max(len(self.row_offsets) - 1, 0)

    @classmethod
    def of(cls, feature: Feature, data: Any) -> Column:
        """Build a checked column from an Arrow array, a numpy array or (nested) lists, one entry a row.

        Null entries become the feature's default. Numpy numbers must already be float32, or int64 or uint64.
        Raises FeatureError.
        """
        if isinstance(data, np.ndarray) and feature.dtype != "bytes" and not feature.is_ragged and data.dtype != object:
            column = cls(np.ascontiguousarray(data).reshape(-1), shape=data.shape)
            check_column(feature, column, len(data) if data.ndim else 0)
            return column
        try:
            array = data if isinstance(data, (pa.Array, pa.ChunkedArray)) else to_arrow(feature, data)
            cells = read_cells(feature, array)
        except CellProblem as problem:
            where = "" if problem.row is None else f" in row {problem.row}"
            raise FeatureError(feature.name, problem.came + where, problem.expected) from problem
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            came = f"values that do not convert ({error})"
            raise FeatureError(feature.name, came, f"{feature.dtype} values") from error
        offsets = [_narrow(feature, part) for part in (cells.row_offsets, cells.byte_offsets)]
        return cls(cells.values, offsets[0], offsets[1], feature.shape(len(array)))

    @classmethod
    def from_wire(cls, feature: Feature, dtype_code: int, shape: Sequence[int], values: bytes, row_offsets: bytes,
                  byte_offsets: bytes, rows: int) -> Column:
        """Check a column as it came over the wire and view it without a copy.

        Args:
            feature: what the column must match.
            dtype_code: F32 1, I64 2, BYTES 3.
            shape: [rows], [rows, width], or empty for multi and sequence features.
            values: little-endian numbers, or all byte strings end to end.
            row_offsets: int32 [rows + 1]; empty unless the feature is multi or sequence.
            byte_offsets: int32 [values + 1]; empty unless the feature is bytes.
            rows: 1 for a user or context column, the number of candidates for an item column.

        Raises FeatureError naming the feature, what came and what was expected.
        """
        shape = tuple(shape)
        check_wire(feature, dtype_code, shape, values, row_offsets, byte_offsets, rows)
        return cls(np.frombuffer(values, NUMPY_DTYPES[feature.dtype]),
                   np.frombuffer(row_offsets, _I32) if feature.is_ragged else None,
                   np.frombuffer(byte_offsets, _I32) if feature.dtype == "bytes" else None, shape)

    def to_wire(self) -> tuple[int, tuple[int, ...], bytes, bytes, bytes]:
        """(dtype_code, shape, values, row_offsets, byte_offsets), as `from_wire` takes them."""
        code = 3 if self.byte_offsets is not None else _CODES.get(self.values.dtype, 0)
        parts = [b"" if part is None else np.ascontiguousarray(part).tobytes()
                 for part in (self.values, self.row_offsets, self.byte_offsets)]
        return code, self.shape, parts[0], parts[1], parts[2]


def check_column(feature: Feature, column: Column, rows: int) -> None:
    """Raise FeatureError unless the column matches its feature and has `rows` rows."""
    for what, part in (("row_offsets", column.row_offsets), ("byte_offsets", column.byte_offsets)):
        if part is not None and (part.dtype != _I32 or part.ndim != 1 or not part.flags.c_contiguous):
            raise FeatureError(feature.name, f"{what} {part.dtype}{list(part.shape)}", "contiguous int32 [n]")
    values = column.values
    is_bytes = column.byte_offsets is not None or values.dtype == np.uint8
    code = 3 if is_bytes and values.dtype == np.uint8 else _CODES.get(values.dtype)
    if code is None:
        raise FeatureError(feature.name, f"values of numpy dtype {values.dtype}", _words(feature))
    if values.ndim != 1 or not values.flags.c_contiguous:
        raise FeatureError(feature.name, f"values of shape {list(values.shape)}", "flat, contiguous values")
    empty = np.empty(0, _I32)
    check_wire(feature, code, column.shape, values, empty if column.row_offsets is None else column.row_offsets,
               empty if column.byte_offsets is None else column.byte_offsets, rows)


def check_wire(feature: Feature, dtype_code: int, shape: tuple[int, ...], values: Any, row_offsets: Any,
               byte_offsets: Any, rows: int) -> None:
    """Raise FeatureError unless these buffers are `rows` rows of the feature; the loops over offsets are native.

    Arguments as for `Column.from_wire`; buffers may be anything with the buffer protocol, of little-endian numbers.
    """
    if dtype_code != feature.dtype_code:
        came = _DTYPE_NAMES.get(dtype_code, f"unknown ({dtype_code})")
        raise FeatureError(feature.name, f"dtype {came}", _words(feature))
    if shape != feature.shape(rows):
        expected = f"shape {list(feature.shape(rows))}" if not feature.is_ragged else "an empty shape and row_offsets"
        raise FeatureError(feature.name, f"shape {list(shape)}", f"{expected} for {rows} rows")
    value_bytes = memoryview(values).nbytes
    count = rows * feature.width
    if feature.is_ragged:
        count = _check_offsets(feature, "row_offsets", row_offsets, rows, "rows", feature.width)
    elif memoryview(row_offsets).nbytes:
        raise FeatureError(feature.name, f"row_offsets of {memoryview(row_offsets).nbytes} bytes",
                           f"none, as it is {feature.kind}")
    if feature.dtype == "bytes":
        last = _check_offsets(feature, "byte_offsets", byte_offsets, count, "values", None)
        if last != value_bytes:
            raise FeatureError(feature.name, f"{value_bytes} bytes of values", f"{last}, where byte_offsets end")
        return
    if memoryview(byte_offsets).nbytes:
        raise FeatureError(feature.name, f"byte_offsets of {memoryview(byte_offsets).nbytes} bytes",
                           f"none, as its dtype is {feature.dtype}")
    size = NUMPY_DTYPES[feature.dtype].itemsize
    if value_bytes != count * size:
        expected = f"{count * size} ({count} {feature.dtype} values)"
        raise FeatureError(feature.name, f"{value_bytes} bytes of values", expected)


def _check_offsets(feature: Feature, what: str, buffer: Any, count: int, of: str, most: int | None) -> int:
    """Check that offsets start at 0, never decrease and cut cells of at most `most`; give back the last one."""
    came = memoryview(buffer).nbytes
    if came != 4 * (count + 1):
        expected = f"{4 * (count + 1)} (int32 for {count} {of} and one more)"
        raise FeatureError(feature.name, f"{what} of {came} bytes", expected)
    problem, place, value = offsets_problem(buffer, -1 if most is None else most)
    if problem == "start":
        raise FeatureError(feature.name, f"{what} that start at {value}", "a start at 0")
    if problem == "decrease":
        came_words = f"{what} that decrease to {value} at position {place}"
        raise FeatureError(feature.name, came_words, "offsets that never decrease")
    if problem == "long":
        raise FeatureError(feature.name, f"{value} values in row {place}", f"at most {most}")
    return value


def _narrow(feature: Feature, offsets: np.ndarray | None) -> np.ndarray | None:
    if offsets is None:
        return None
    if int(offsets[-1]) > np.iinfo(np.int32).max:
        raise FeatureError(feature.name, f"{int(offsets[-1])} values or bytes in one column", "fewer than 2**31")
    return offsets.astype(_I32)


def _words(feature: Feature) -> str:
    numpy_word = {"f32": "numpy float32", "i64": "numpy int64 or uint64", "bytes": "numpy uint8 with byte_offsets"}
    return f"dtype {feature.dtype} ({numpy_word[feature.dtype]})"


__all__ = ["Column", "check_column", "check_wire"]
