"""The same contract in plain Python: slow, obvious, and what the native core is tested against.

Rows are lists of Python and numpy scalars; each transform is applied to each value, in the order of the slot's chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from feature_store.arrow import NUMPY_DTYPES, Cells
from feature_store.cache import as_keys, read_column, read_keys, read_parquet
from feature_store.column import Column
from feature_store.errors import DataError, SchemaError
from feature_store.extractor import Gathered, GatherStats, SideFeatures, SlotValues
from feature_store.plan import SlotSpec, compile_slots
from feature_store.schema import Feature, Schema, Side, wrap_i64
from feature_store.transforms import Bucketize, Clip, Cross, Hash64, Log1p, Pad, Slot, Truncate

_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_QUIET_NAN = np.array(0x7FC00000, np.uint32).view(np.float32)[()]
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_LOG_SERIES = (1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01,
               2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01)


def _rotate(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> (64 - bits)) & _MASK


def _round(lane: int, word: int) -> int:
    return _rotate(lane + word * _P2, 31) * _P1 & _MASK


def xxh64(data: bytes, seed: int = 0) -> int:
    """XXH64 as uint64, after the xxHash specification 0.1.1, sections "XXH64 Algorithm Description" steps 1 to 6."""
    at, size = 0, len(data)
    if size >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        for at in range(0, size - 31, 32):
            words = [int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little") for i in range(4)]
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
        at += 32
        hashed = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            hashed = ((hashed ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        hashed = seed + _P5
    hashed = (hashed + size) & _MASK
    while at + 8 <= size:
        hashed = (_rotate(hashed ^ _round(0, int.from_bytes(data[at : at + 8], "little")), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= size:
        word = int.from_bytes(data[at : at + 4], "little")
        hashed = (_rotate(hashed ^ (word * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        hashed = _rotate(hashed ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    hashed = (hashed ^ hashed >> 33) * _P2 & _MASK
    hashed = (hashed ^ hashed >> 29) * _P3 & _MASK
    return hashed ^ hashed >> 32


def log1p(value: np.float32) -> np.float32:
    """ln(1 + x) by the operations that csrc/kernels.cc describes, so that the bytes are equal, not only close."""
    x = np.float64(value)
    if np.isnan(x) or x < -1.0:
        return _QUIET_NAN
    if x == 0.0 or np.isposinf(x):
        return value
    if x == -1.0:
        return np.float32(-np.inf)
    u = np.float64(1.0) + x
    correction = (x - (u - 1.0)) / u
    mantissa, exponent = np.frexp(u)
    if mantissa.view(np.uint64) & 0xFFFFFFFFFFFFF < 0x6A09E667F3BCD:
        mantissa, exponent = mantissa * 2.0, exponent - 1
    f, k = mantissa - 1.0, np.float64(exponent)
    s = f / (2.0 + f)
    z = s * s
    r = np.float64(_LOG_SERIES[0])
    for coefficient in _LOG_SERIES[1:]:
        r = coefficient + z * r
    half = 0.5 * f * f
    return np.float32(k * _LN2_HIGH - ((half - (s * (half + z * r) + (k * _LN2_LOW + correction))) - f))


class ReferenceCache:
    """FeatureCache in plain Python: a dict from id to a row of cells."""

    def __init__(self, side: Side, rows: dict[int, dict[str, list[Any] | None]]) -> None:
        """For `from_arrow`: rows map a feature's name to its values, or to None when absent."""
        self.side, self.rows = side, rows

    @classmethod
    def from_arrow(cls, schema: Schema, side: Side, table: pa.Table, key: str = "id",
                   request_only: Iterable[str] = ()) -> ReferenceCache:
        """As FeatureCache.from_arrow."""
        keys, optional = read_keys(table, key), set(request_only)
        rows: dict[int, dict[str, list[Any] | None]] = {}
        for row, number in enumerate(keys.tolist()):
            if number in rows:
                raise DataError(f"id {number} stands again in row {row}; ids must be unique")
            rows[number] = {}
        for feature in schema.stored(side):
            cells = read_column(feature, table, keys, feature.name in optional)
            for row, (number, values) in enumerate(zip(keys.tolist(), _rows(feature, cells, len(keys)), strict=True)):
                rows[number][feature.name] = values if cells.present[row] else None
        return cls(side, rows)

    @classmethod
    def from_parquet(cls, schema: Schema, side: Side, path: str | Path, key: str = "id",
                     request_only: Iterable[str] = ()) -> ReferenceCache:
        """As FeatureCache.from_parquet."""
        return cls.from_arrow(schema, side, read_parquet(schema, side, path, key), key, request_only)

    def __len__(self) -> int:
        """How many rows are stored."""
        return len(self.rows)

    def contains(self, keys: Any) -> np.ndarray:
        """bool [n]: which of these ids are stored."""
        return np.array([key in self.rows for key in as_keys(keys).tolist()], np.bool_)


class ReferenceExtractor(SideFeatures):
    """Extractor in plain Python, without a capsule."""

    def __init__(self, schema: Schema, slots: Iterable[Slot], side: Side, cache: ReferenceCache | None = None) -> None:
        """As Extractor."""
        slots = tuple(slots)
        super().__init__(compile_slots(schema, slots, side), side)
        if cache is not None and cache.side != side:
            raise SchemaError(f"cache: holds side {cache.side!r}, expected {side!r}")
        self.cache = ReferenceCache(side, {}) if cache is None else cache
        self._slots = [slot for slot in slots if schema.feature(slot.feature).side == side]

    def gather(self, keys: Any, columns: Mapping[str, Column] | None = None) -> Gathered:
        """As Extractor.gather."""
        columns = columns or {}
        numbers = self._checked(keys, columns).tolist()
        cells, present = {}, 0
        for place in self._plan.used:
            feature = self.features[place]
            if feature.name in columns:
                cells[feature.name] = _rows(feature, columns[feature.name], len(numbers))
                present += len(numbers)
                continue
            if feature.kind == "key":
                cells[feature.name] = [[number] for number in numbers]
                present += len(numbers)
                continue
            stored = [self.cache.rows.get(number, {}).get(feature.name) for number in numbers]
            present += sum(cell is not None for cell in stored)
            cells[feature.name] = [list(feature.default_values) if cell is None else cell for cell in stored]
        slots = {slot.name: _lay_out(spec, slot, [self._cell(slot, row, cells) for row in range(len(numbers))])
                 for spec, slot in zip(self.slots, self._slots, strict=True)}
        known = self.cache.contains(np.array(numbers, np.int64))
        return Gathered(slots, known, GatherStats(len(numbers) * len(self._plan.used), present))

    def _cell(self, slot: Slot, row: int, cells: Mapping[str, list[list[Any]]]) -> list[Any]:
        values = cells[slot.feature][row]
        for transform in slot.transforms:
            if isinstance(transform, Cross):
                other = cells[transform.other][row][0]
                other = xxh64(other) if isinstance(other, bytes) else other
                pair = (values[0] & _MASK).to_bytes(8, "little") + (other & _MASK).to_bytes(8, "little")
                values = [wrap_i64(xxh64(pair, transform.seed))]
            else:
                values = _apply(transform, values)
        return values


def _apply(transform: Any, values: list[Any]) -> list[Any]:
    match transform:
        case Log1p():
            return [log1p(np.float32(value)) for value in values]
        case Clip(lo, hi):
            return [np.float32(lo) if value < lo else np.float32(hi) if value > hi else value for value in values]
        case Bucketize(boundaries):
            return [int(np.searchsorted(np.array(boundaries, np.float32), value, "right")) for value in values]
        case Hash64(seed):
            return [wrap_i64(xxh64(value, seed)) for value in values]
        case Truncate(length, keep):
            return values[:length] if keep == "first" else values[-length:]
    return values


def _rows(feature: Feature, data: Cells | Column, rows: int) -> list[list[Any]]:
    """A column's cells as one list of values a row."""
    if data.byte_offsets is None:
        values: Any = data.values.view(NUMPY_DTYPES[feature.dtype])
        values = values.tolist() if feature.dtype == "i64" else list(values)
    else:
        raw, cuts = data.values.tobytes(), data.byte_offsets.tolist()
        values = [raw[begin:end] for begin, end in zip(cuts, cuts[1:], strict=False)]
    if data.row_offsets is None:
        cuts = [row * feature.width for row in range(rows + 1)]
    else:
        cuts = data.row_offsets.tolist()
    return [values[begin:end] for begin, end in zip(cuts, cuts[1:], strict=False)]


def _lay_out(spec: SlotSpec, slot: Slot, cells: list[list[Any]]) -> SlotValues:
    dtype = NUMPY_DTYPES[spec.dtype]
    lengths = np.array([len(cell) for cell in cells], np.int32)
    if spec.layout == "padded":
        pad = slot.transforms[-1].value if slot.transforms and isinstance(slot.transforms[-1], Pad) else 0
        out = np.full((len(cells), spec.width), pad, dtype)
        for row, cell in enumerate(cells):
            out[row, : len(cell)] = cell
        return SlotValues(out, None, lengths)
    flat = np.array([value for cell in cells for value in cell], dtype)
    if spec.layout == "ragged":
        return SlotValues(flat, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    return SlotValues(flat if spec.width == 1 else flat.reshape(-1, spec.width))


__all__ = ["ReferenceCache", "ReferenceExtractor", "log1p", "xxh64"]
