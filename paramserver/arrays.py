"""Checks of every array that comes in from a caller: the native core trusts what has passed here."""

import time
from typing import Any

import numpy as np

from paramserver.errors import ArrayError, IdError, OptionError

__all__ = ["DIM_MAX", "DTYPES", "POOLINGS", "ROWS_MAX", "as_deadline_ns", "as_default_row", "as_ids", "as_offsets",
           "as_rows", "as_stored", "as_time_s", "as_times", "as_weights", "check_dtype", "check_epoch",
           "check_lifetime", "check_options", "out_kind", "out_rows", "out_status", "pooling"]

#: How rows may be stored, in the order of Stored in csrc/row_format.h.
DTYPES = ("f32", "f16", "bf16", "int8")

POOLINGS = ("sum", "mean", "sqrtn")
#: Numbers in a row.
DIM_MAX = 4096
#: What rows_hint may ask for.
ROWS_MAX = 2**40
_OUT_KINDS = {"float32": 0, "float16": 1, "bfloat16": 2}


def check_options(dim: int, dtype: str, rows_hint: int) -> None:
    """Raise OptionError unless dim is 1 to 4096, dtype one of DTYPES and rows_hint 0 to 2**40."""
    for name, value, low, high in (("dim", dim, 1, DIM_MAX), ("rows_hint", rows_hint, 0, ROWS_MAX)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
            raise OptionError(f"{name} is {value!r}, expected an integer from {low} to {high}")
    check_dtype(dtype)


def check_dtype(dtype: str) -> None:
    """Raise OptionError unless dtype is one of DTYPES."""
    if dtype not in DTYPES:
        raise OptionError(f"dtype is {dtype!r}, expected one of {', '.join(DTYPES)}")


def check_lifetime(base_sequence: int, ttl_s: float, admit_after: int, apply_rows_per_s: float = 0.0) -> None:
    """Raise OptionError unless base_sequence is an int64 of at least 0, ttl_s 0 (none) to 1e9 seconds, admit_after 1 to
    1,000,000 deltas, and apply_rows_per_s 0 (no limit) to 1e12."""
    for name, value, low, high in (("base_sequence", base_sequence, 0, 2**62), ("admit_after", admit_after, 1, 10**6)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
            raise OptionError(f"{name} is {value!r}, expected an integer from {low} to {high}")
    for name, value, high in (("ttl_s", ttl_s, 1e9), ("apply_rows_per_s", apply_rows_per_s, 1e12)):
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 <= value <= high:
            raise OptionError(f"{name} is {value!r}, expected a number from 0 (none) to {high:g}")


def check_epoch(name: str, value: int) -> int:
    """`value` as an int; OptionError unless it is an integer from 0 to 2**63 - 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= value < 2**63:
        raise OptionError(f"{name} is {value!r}, expected an integer from 0 to 2**63 - 1")
    return int(value)


def as_deadline_ns(deadline_s: float | None) -> int:
    """The time of CLOCK_MONOTONIC in ns that is deadline_s seconds from now; the largest int64 for None. OptionError
    for anything that is no number of seconds."""
    if deadline_s is None:
        return 2**63 - 1
    if isinstance(deadline_s, bool) or not isinstance(deadline_s, (int, float, np.number)) or not deadline_s >= 0:
        raise OptionError(f"deadline_s is {deadline_s!r}, expected seconds from now, 0 or more, or None")
    return min(2**63 - 1, time.monotonic_ns() + int(min(deadline_s, 1e9) * 1e9))


def as_time_s(time_s: float | None) -> int:
    """Whole seconds since 1970, now for None; OptionError unless it fits into 32 bits."""
    if time_s is None:
        return int(time.time())
    if isinstance(time_s, bool) or not isinstance(time_s, (int, float, np.number)) or not 0 <= time_s < 2**32:
        raise OptionError(f"time_s is {time_s!r}, expected seconds since 1970")
    return int(time_s)


def pooling(mode: str) -> int:
    """The number of a pooling mode; OptionError unless it is "sum", "mean" or "sqrtn"."""
    if mode not in POOLINGS:
        raise OptionError(f"mode is {mode!r}, expected one of {', '.join(POOLINGS)}")
    return POOLINGS.index(mode)


def as_ids(ids: Any) -> np.ndarray:
    """Ids as contiguous int64[n], uint64 by their bits. Takes int64 and uint64 arrays and sequences of Python ints;
    IdError for anything else, float above all; ArrayError unless one-dimensional."""
    array = ids if isinstance(ids, np.ndarray) else _ids_of_sequence(ids)
    if array.dtype not in (np.int64, np.uint64):
        raise IdError(
            f"ids has dtype {array.dtype}, expected int64 or uint64: convert integers with .astype(np.int64); "
            "ids that went through float have lost bits and must be read again"
        )
    if array.ndim != 1:
        raise ArrayError(f"ids has shape {array.shape}, expected [n]")
    return np.ascontiguousarray(array).view(np.int64)


def _ids_of_sequence(ids: Any) -> np.ndarray:
    try:
        array = np.asarray(ids)
    except ValueError as error:
        raise IdError(f"ids is no flat sequence of integers ({error}), expected int64 or uint64 [n]") from error
    return array.astype(np.int64) if array.size == 0 and isinstance(ids, (list, tuple)) else array


def as_rows(rows: Any, n: int, dim: int) -> np.ndarray:
    """Rows as contiguous float32[n, dim]; ArrayError otherwise."""
    array = _expect("rows", rows, np.float32)
    if array.shape != (n, dim):
        raise ArrayError(f"rows has shape {array.shape}, expected ({n}, {dim}): one row of dim {dim} for each id")
    return np.ascontiguousarray(array)


def as_stored(stored: Any, n: int, row_bytes: int) -> np.ndarray:
    """Stored rows as contiguous uint8[n, row_bytes]; ArrayError otherwise."""
    array = _expect("stored", stored, np.uint8)
    if array.shape != (n, row_bytes):
        raise ArrayError(f"stored has shape {array.shape}, expected ({n}, {row_bytes}): one stored row for each id")
    return np.ascontiguousarray(array)


def as_times(times_s: Any, n: int) -> np.ndarray | None:
    """Times as contiguous uint32[n], None staying None; ArrayError otherwise."""
    if times_s is None:
        return None
    array = _expect("times_s", times_s, np.uint32)
    if array.shape != (n,):
        raise ArrayError(f"times_s has shape {array.shape}, expected ({n},): one time for each id")
    return np.ascontiguousarray(array)


def as_default_row(row: Any, dim: int) -> np.ndarray | None:
    """A default row as contiguous float32[dim], None staying None; any sequence of dim numbers will do."""
    if row is None:
        return None
    try:
        array = np.ascontiguousarray(row, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ArrayError(f"default_row is not a sequence of numbers ({error}), expected float32 [{dim}]") from error
    if array.shape != (dim,):
        raise ArrayError(f"default_row has shape {array.shape}, expected ({dim},)")
    return array


def as_offsets(offsets: Any) -> np.ndarray:
    """Offsets as contiguous int32[bags + 1]; ArrayError otherwise. Whether they fit the ids is checked later."""
    array = _expect("offsets", offsets, np.int32)
    if array.ndim != 1 or array.size == 0:
        raise ArrayError(f"offsets has shape {array.shape}, expected [bags + 1]")
    return np.ascontiguousarray(array)


def as_weights(weights: Any, n: int) -> np.ndarray | None:
    """Weights as contiguous float32[n], None staying None; ArrayError otherwise."""
    if weights is None:
        return None
    array = _expect("weights", weights, np.float32)
    if array.shape != (n,):
        raise ArrayError(f"weights has shape {array.shape}, expected ({n},): one weight for each id")
    return np.ascontiguousarray(array)


def out_rows(out: Any, n: int, dim: int) -> np.ndarray:
    """The array that rows go into: a new float32[n, dim], or `out` when it is float32, float16 or bfloat16 (ml_dtypes)
    of that shape, contiguous and writable; ArrayError otherwise, because a converted copy would be lost."""
    if out is None:
        return np.empty((n, dim), np.float32)
    # A big-endian dtype has the same name.
    if not isinstance(out, np.ndarray) or out.dtype.name not in _OUT_KINDS or not out.dtype.isnative:
        raise ArrayError(f"out has dtype {_dtype_of(out)}, expected float32, float16 or bfloat16")
    _expect_in_place("out", out, (n, dim))
    return out


def out_kind(out: np.ndarray) -> int:
    """The number of out's element type in csrc/row_source.h."""
    return _OUT_KINDS[out.dtype.name]


def out_status(status: Any, n: int) -> np.ndarray | None:
    """The array that statuses go into, uint8[n], contiguous and writable, None staying None; ArrayError otherwise."""
    if status is None:
        return None
    if not isinstance(status, np.ndarray) or status.dtype != np.uint8:
        raise ArrayError(f"status has dtype {_dtype_of(status)}, expected uint8")
    _expect_in_place("status", status, (n,))
    return status


def _expect(name: str, array: Any, dtype: type) -> np.ndarray:
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        raise ArrayError(f"{name} has dtype {_dtype_of(array)}, expected a numpy array of {np.dtype(dtype).name}")
    return array


def _expect_in_place(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ArrayError(f"{name} has shape {array.shape}, expected {shape}")
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise ArrayError(f"{name} has strides {array.strides}, expected a contiguous and aligned array")
    if not array.flags.writeable:
        raise ArrayError(f"{name} is read-only, expected a writable array")


def _dtype_of(array: Any) -> str:
    return str(array.dtype) if isinstance(array, np.ndarray) else f"({type(array).__name__})"
