"""Packing of plain Python and numpy values into the wire's columns, without knowing the server's schema."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from lambda_svc.proto import ranking_pb2 as pb

__all__ = ["pack"]


def pack(name: str, values: Sequence | np.ndarray) -> pb.Column:
    """A column of `len(values)` rows.

    Takes numpy arrays [rows] or [rows, width] (floats travel as F32, integers as I64) and sequences of numbers, str or
    bytes; a row that is itself a list makes the column multi-valued, a row that is a numpy array makes it a dense
    vector. Raises TypeError naming the column for anything else.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return _numeric(name, values, values.shape)
    rows = list(values)
    if rows and all(isinstance(row, np.ndarray) for row in rows):
        stacked = np.stack(rows)
        return _numeric(name, stacked, stacked.shape)
    if rows and all(isinstance(row, (list, tuple)) for row in rows):
        flat = list(chain.from_iterable(rows))
        column = _flat(name, flat)
        column.ClearField("shape")
        column.row_offsets = _offsets([len(row) for row in rows])
        return column
    return _flat(name, rows)


def _flat(name: str, values: list) -> pb.Column:
    if values and all(isinstance(value, (str, bytes)) for value in values):
        encoded = [value.encode() if isinstance(value, str) else value for value in values]
        return pb.Column(
            name=name,
            dtype=pb.BYTES,
            values=b"".join(encoded),
            byte_offsets=_offsets([len(value) for value in encoded]),
            shape=[len(values)],
        )
    if not values:
        return pb.Column(name=name, shape=[0])  # the server knows the type of what is not there
    array = np.asarray(values)
    if array.dtype.kind not in "fiub" or array.ndim != 1:
        raise TypeError(f"column {name!r}: expected numbers, str or bytes, got {array.dtype} {list(array.shape)}")
    return _numeric(name, array, array.shape)


def _numeric(name: str, array: np.ndarray, shape: tuple[int, ...]) -> pb.Column:
    if array.dtype.kind == "f":
        return pb.Column(name=name, dtype=pb.F32, values=array.astype("<f4").tobytes(), shape=shape)
    packed = array.astype("<u8" if array.dtype == np.uint64 else "<i8")
    return pb.Column(name=name, dtype=pb.I64, values=packed.tobytes(), shape=shape)


def _offsets(lengths: list[int]) -> bytes:
    return np.concatenate([[0], np.cumsum(lengths)]).astype("<i4").tobytes()
