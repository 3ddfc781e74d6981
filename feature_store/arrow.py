"""From Arrow arrays to the flat buffers that columns and caches are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feature_store.schema import Feature

_SCALARS: dict[str, pa.DataType] = {"f32": pa.float32(), "i64": pa.int64(), "bytes": pa.binary()}
NUMPY_DTYPES: dict[str, np.dtype] = {"f32": np.dtype("<f4"), "i64": np.dtype("<i8"), "bytes": np.dtype("u1")}


class CellProblem(ValueError):
    """An array does not match its feature: what came, what was expected, and the row when one is to blame."""

    def __init__(self, came: str, expected: str, row: int | None = None) -> None:
        super().__init__(f"got {came}, expected {expected}")
        self.came, self.expected, self.row = came, expected, row


@dataclass(frozen=True, eq=False)
class Cells:
    """All cells of one feature, end to end.

    Attributes:
        values: f32, i64, or uint8 (all byte strings end to end), flat.
        row_offsets: int64 [rows + 1] into the values; None unless the feature is ragged.
        byte_offsets: int64 [values + 1] into the bytes; None unless the feature is bytes.
        present: bool [rows], False where the cell was null and the default was filled in.
    """

    values: np.ndarray
    row_offsets: np.ndarray | None
    byte_offsets: np.ndarray | None
    present: np.ndarray


def arrow_type(feature: Feature) -> pa.DataType:
    """The Arrow type of a feature's column: a scalar, a list (multi, sequence) or a fixed-size list (dense)."""
    scalar = _SCALARS[feature.dtype]
    if feature.is_ragged:
        return pa.list_(scalar)
    return scalar if feature.is_single else pa.list_(scalar, feature.width)


def read_cells(feature: Feature, array: pa.Array | pa.ChunkedArray) -> Cells:
    """Flatten an Arrow array; null cells become the feature's default. Raises CellProblem, and ArrowInvalid for an
    array whose offsets contradict its buffers, as one out of a damaged file may: Arrow would abort the process."""
    array.validate(full=True)
    array = _one_chunk(array)
    present = np.asarray(array.is_valid())
    if feature.is_single:
        row_offsets, flat = None, _scalars(feature, array)
        if not present.all():
            flat = flat.fill_null(pa.scalar(feature.default_values[0], flat.type))
    else:
        row_offsets, flat = _lists(feature, array, present)
    values, byte_offsets = _buffers(feature, flat)
    return Cells(values, row_offsets, byte_offsets, present)


def _one_chunk(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    wide = _wide_offsets(array.type)
    array = array if wide == array.type else array.cast(wide)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _wide_offsets(kind: pa.DataType) -> pa.DataType:
    """The same type with 64-bit offsets, so that joining chunks never overflows 2 GiB."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        return pa.large_binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(_wide_offsets(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_wide_offsets(kind.value_type), kind.list_size)
    return kind


def _scalars(feature: Feature, array: pa.Array) -> pa.Array:
    """Check the type of single values, and read uint64 ids as the same 64 bits."""
    kind = array.type
    if feature.dtype == "i64" and pa.types.is_uint64(kind):
        return array.view(pa.int64())
    good = {"f32": pa.types.is_float32, "i64": pa.types.is_int64, "bytes": pa.types.is_large_binary}
    if not good[feature.dtype](kind):
        if pa.types.is_null(kind):
            return pa.nulls(len(array), pa.large_binary() if feature.dtype == "bytes" else _SCALARS[feature.dtype])
        words = {"f32": "float", "i64": "int64 or uint64", "bytes": "binary or string"}
        raise CellProblem(f"Arrow values of type {kind}", f"{words[feature.dtype]} (cast it if that is meant)")
    return array


def _lists(feature: Feature, array: pa.Array, present: np.ndarray) -> tuple[np.ndarray | None, pa.Array]:
    kind = array.type
    if pa.types.is_null(kind):
        array = pa.nulls(len(array), pa.large_list(_wide_offsets(_SCALARS[feature.dtype])))
    elif not (pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise CellProblem(f"Arrow type {kind}", str(arrow_type(feature)))
    flat = _scalars(feature, array.flatten())
    lengths = np.asarray(pc.list_value_length(array).fill_null(0)).astype(np.int64)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if flat.null_count:
        row = int(np.searchsorted(offsets, int(np.argmax(np.asarray(flat.is_null()))), side="right")) - 1
        raise CellProblem("a null inside a list", "values (only whole cells may be null)", row)
    if feature.is_ragged:
        if len(lengths) and int(lengths.max()) > feature.width:
            row = int(np.argmax(lengths > feature.width))
            raise CellProblem(f"{lengths[row]} values", f"at most {feature.width}", row)
        return offsets, flat
    wrong = present & (lengths != feature.width)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise CellProblem(f"{lengths[row]} values", f"{feature.width}", row)
    return None, flat if present.all() else _fill_vectors(feature, flat, present)


def _fill_vectors(feature: Feature, flat: pa.Array, present: np.ndarray) -> pa.Array:
    """Put the default vector where a whole vector is null: take from the values followed by the default."""
    both = pa.concat_arrays([flat, pa.array(feature.default_values, type=flat.type)])
    places = np.arange(feature.width)
    index = np.where(present[:, None], (np.cumsum(present) - 1)[:, None] * feature.width + places, len(flat) + places)
    return both.take(pa.array(index.ravel()))


def _buffers(feature: Feature, flat: pa.Array) -> tuple[np.ndarray, np.ndarray | None]:
    if feature.dtype != "bytes":
        return flat.to_numpy(zero_copy_only=True) if len(flat) else np.empty(0, NUMPY_DTYPES[feature.dtype]), None
    if not len(flat):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, offset_buffer, data = flat.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[flat.offset : flat.offset + len(flat) + 1]
    values = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return values[offsets[0] : offsets[-1]], offsets - offsets[0]


def to_arrow(feature: Feature, values: Any) -> pa.Array:
    """Python lists or a numpy array as an Arrow array of the feature's type; ids above 2**63 - 1 wrap."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if feature.dtype == "i64":
        values = [_wrap(value) for value in values]
    return pa.array(values, type=arrow_type(feature))


def _wrap(value: Any) -> Any:
    if isinstance(value, int):
        return value - (1 << 64) if 1 << 63 <= value < 1 << 64 else value
    return [_wrap(entry) for entry in value] if isinstance(value, (list, tuple)) else value
