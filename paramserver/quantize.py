"""How rows are rounded to a stored type, in plain Python: the bytes of csrc/row_format.h, bit for bit, and the error
that rounding makes."""

from dataclasses import dataclass

import numpy as np

from paramserver import _core, arrays
from paramserver.errors import ArrayError, RowValueError

__all__ = ["ErrorMeter", "QuantizationError", "error_of", "load_rows", "store_rows", "stored_row_bytes"]

_TINY = np.float32(np.finfo(np.float32).tiny)


def stored_row_bytes(dtype: str, dim: int) -> int:
    """Bytes of one stored row. dtype: "f32", "f16", "bf16" or "int8"."""
    return {"f32": 4 * dim, "f16": 2 * dim, "bf16": 2 * dim, "int8": _scale_at(dim) + 8}[dtype]


def store_rows(rows: np.ndarray, dtype: str, what: str = "rows") -> np.ndarray:
    """Rows float32[n, dim] as they are stored: uint8[n, stored_row_bytes]. Raises RowValueError (naming `what`) for an
    element that is NaN, infinity or too large for dtype, and for an int8 row that spans more than float32."""
    arrays.check_dtype(dtype)
    if dtype == "int8":
        return _quantized(rows, what)
    if dtype == "bf16":
        stored = _bf16_of(rows)
        unfit = stored & 0x7F80 == 0x7F80
    else:
        with np.errstate(over="ignore"):
            stored = rows.astype(np.float16 if dtype == "f16" else np.float32)
        unfit = ~np.isfinite(stored)
    _refuse(rows, unfit, dtype, what)
    return np.ascontiguousarray(stored).view(np.uint8).reshape(len(rows), stored_row_bytes(dtype, rows.shape[1]))


def load_rows(stored: np.ndarray, dtype: str, dim: int) -> np.ndarray:
    """Stored rows uint8[n, stored_row_bytes] as numbers again: float32[n, dim]."""
    if dtype == "f32":
        return stored.view(np.float32).copy()
    if dtype == "f16":
        return stored.view(np.float16).astype(np.float32)
    if dtype == "bf16":
        return (stored.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    scale, bias = np.split(np.ascontiguousarray(stored[:, _scale_at(dim):]).view(np.float32), 2, axis=1)
    return stored[:, :dim].astype(np.float32) * scale + bias


@dataclass(frozen=True)
class QuantizationError:
    """How far stored rows are from the rows that were given, over all elements seen."""

    dtype: str  #: the stored type
    rows: int  #: rows seen
    max_abs: float  #: the largest distance of an element
    mean_abs: float  #: the mean distance
    relative: float  #: root of the mean square distance, divided by the root of the mean square element; 0 for no rows

    def __str__(self) -> str:
        return (f"{self.dtype}: error of {self.rows:,} rows: largest {self.max_abs:.3g}, mean {self.mean_abs:.3g}, "
                f"{self.relative:.3%} of the rows' root mean square")


class ErrorMeter:
    """Adds up the error of rows that come batch by batch, at memory of one batch."""

    def __init__(self, dtype: str = "int8") -> None:
        arrays.check_dtype(dtype)
        self._dtype = dtype
        self._rows = self._elements = 0
        self._max = self._sum = self._squares = self._signal = 0.0

    def add(self, rows: np.ndarray) -> None:
        """Count rows float32[n, dim]. Raises ArrayError, and RowValueError for rows that dtype cannot hold."""
        if not isinstance(rows, np.ndarray) or rows.ndim != 2:
            raise ArrayError(f"rows is {getattr(rows, 'shape', type(rows).__name__)}, expected float32 [n, dim]")
        rows = arrays.as_rows(rows, *rows.shape)
        stored = np.empty((len(rows), stored_row_bytes(self._dtype, rows.shape[1])), np.uint8)
        number = arrays.DTYPES.index(self._dtype)
        _core.store_rows(number, rows, stored)
        largest, total, squares, signal = _core.row_error(number, rows, stored)
        self._rows += len(rows)
        self._elements += rows.size
        self._max = max(self._max, largest)
        self._sum += total
        self._squares += squares
        self._signal += signal

    @property
    def error(self) -> QuantizationError:
        """The error of all rows so far."""
        relative = (self._squares / self._signal) ** 0.5 if self._signal else 0.0
        return QuantizationError(self._dtype, self._rows, self._max, self._sum / max(1, self._elements), relative)


def error_of(rows: np.ndarray, dtype: str = "int8") -> QuantizationError:
    """The error of storing rows float32[n, dim] as dtype. Raises as ErrorMeter.add, which takes many batches."""
    meter = ErrorMeter(dtype)
    meter.add(rows)
    return meter.error


def _scale_at(dim: int) -> int:
    return (dim + 3) // 4 * 4


def _bf16_of(rows: np.ndarray) -> np.ndarray:
    """The nearest bfloat16, ties to even, as uint16; NaN and infinity keep an exponent of ones."""
    bits = np.ascontiguousarray(rows).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isfinite(rows), rounded, bits >> 16).astype(np.uint16)


def _quantized(rows: np.ndarray, what: str) -> np.ndarray:
    n, dim = rows.shape
    _refuse(rows, ~np.isfinite(rows), "int8", what)
    low, high = (ends(axis=1, keepdims=True) + np.float32(0) for ends in (rows.min, rows.max))
    wanted = (high.astype(np.float64) - low) / 255
    scale = wanted.astype(np.float32)
    short = (scale < _TINY) & (scale < wanted)
    scale = np.where(short, np.nextafter(scale, np.float32(np.inf)), scale)
    with np.errstate(over="ignore"):
        too_wide = ~np.isfinite(np.float32(255) * scale + low)
    if too_wide.any():
        i = int(np.argmax(too_wide))
        raise RowValueError(f"{what}[{i}]: elements go from {low[i, 0]} to {high[i, 0]}, expected a range that float32 "
                            "holds, below 3.4e38 (dtype int8)")
    per_scale = np.divide(1.0, scale, out=np.zeros((n, 1)), where=scale > 0, dtype=np.float64)
    steps = (rows.astype(np.float64) - low) * per_scale
    stored = np.zeros((n, stored_row_bytes("int8", dim)), np.uint8)
    stored[:, :dim] = np.minimum(steps, 255) + 0.5
    stored[:, _scale_at(dim):] = np.concatenate([scale, low], axis=1).view(np.uint8)
    return stored


def _refuse(rows: np.ndarray, unfit: np.ndarray, dtype: str, what: str) -> None:
    if unfit.any():
        i, j = np.argwhere(unfit)[0]
        raise RowValueError(f"{what}[{i}]: element {j} is {rows[i, j]}, expected finite numbers of {dtype}")
