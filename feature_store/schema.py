"""What features exist: names, sides, types, shapes and defaults.

A schema is data: it travels inside a model package as JSON and is compiled, with slots, into an extractor.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np

from feature_store.errors import SchemaError

Side = Literal["user", "item", "context"]
Kind = Literal["single", "dense", "multi", "sequence", "key"]
DType = Literal["f32", "i64", "bytes"]

SIDES: tuple[Side, ...] = ("user", "item", "context")
KINDS: tuple[Kind, ...] = ("single", "dense", "multi", "sequence", "key")
DTYPE_CODES: dict[DType, int] = {"f32": 1, "i64": 2, "bytes": 3}
WIDTH_MAX = 1 << 20
"""The most values that one cell may hold."""

_ZERO: dict[str, Any] = {"f32": 0.0, "i64": 0, "bytes": b""}
_FIELDS = ("name", "side", "dtype", "kind", "width", "default")


def encode_number(value: float | int) -> float | int | str:
    """Write a number as JSON can carry it: NaN and infinities become the words "nan", "inf" and "-inf"."""
    return str(float(value)) if isinstance(value, float) and not math.isfinite(value) else value


def decode_number(value: Any) -> Any:
    """Undo `encode_number`; anything else comes back as it is."""
    return float(value) if isinstance(value, str) and value in ("nan", "inf", "-inf") else value


def is_number(value: Any) -> bool:
    """Whether a value is a number that fits float64; truth values are not."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return abs(int(value)) < 1 << 1023
    return isinstance(value, (float, np.floating))


def wrap_i64(value: int) -> int:
    """Read 64 bits as int64: ids may be written as int64 or uint64, the same bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _is_value(dtype: str, value: Any) -> bool:
    if dtype == "bytes":
        return isinstance(value, bytes)
    if dtype == "i64":
        return is_number(value) and isinstance(value, (int, np.integer)) and -(1 << 63) <= int(value) < 1 << 64
    return is_number(value)


def _normal(dtype: str, value: Any) -> Any:
    if dtype == "i64":
        return wrap_i64(int(value))
    if dtype == "f32":
        with np.errstate(over="ignore"):
            return float(np.float32(value))
    return value


def _encode(dtype: str, value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode("ascii")} if dtype == "bytes" else encode_number(value)


def _decode(value: Any) -> Any:
    if isinstance(value, Mapping) and set(value) == {"base64"}:
        return base64.b64decode(value["base64"], validate=True)
    return decode_number(value)


@dataclass(frozen=True)
class Feature:
    """One raw feature of one side.

    Attributes:
        name: unique in its schema.
        side: "user", "item" or "context".
        dtype: "f32", "i64" (the same 64 bits as a uint64 id) or "bytes" (any bytes, UTF-8 or not).
        kind: "single" (one value, travels as [rows]), "dense" (a vector, [rows, width]), "multi" (a bag of at most
            `width` values, travels with row offsets), "sequence" (as multi, but ordered: its slot is padded), "key"
            (the row's own id: never stored, present for unknown keys too; travels as a single).
        width: dense: values a row; multi: the most values a row; sequence: its length; single and key: 1.
        default: what a missing cell holds. single: one value; dense: one value for all places or `width` values;
            None means 0, 0.0 or b"". The default of multi and sequence is always the empty bag.

    Nothing is raised here: `Schema` reports the problems of all its features at once.
    """

    name: str
    side: Side
    dtype: DType
    kind: Kind = "single"
    width: int = 1
    default: Any = None

    def __post_init__(self) -> None:
        """Bring the default to its normal form: f32 rounded, ids as int64, vectors as tuples."""
        if self.default is None or self.dtype not in tuple(DTYPE_CODES):
            return
        values = self.default
        if isinstance(values, np.ndarray):
            values = values.tolist()
        if isinstance(values, (list, tuple)):
            if all(_is_value(self.dtype, value) for value in values):
                values = tuple(_normal(self.dtype, value) for value in values)
        elif _is_value(self.dtype, values):
            values = _normal(self.dtype, values)
        object.__setattr__(self, "default", values)

    @property
    def dtype_code(self) -> int:
        """The number of the dtype on the wire: F32 1, I64 2, BYTES 3."""
        return DTYPE_CODES[self.dtype]

    @property
    def is_ragged(self) -> bool:
        """Whether rows hold a varying number of values, so that the column travels with row offsets."""
        return self.kind in ("multi", "sequence")

    @property
    def is_single(self) -> bool:
        """Whether rows hold exactly one value, so that the column travels as [rows]."""
        return self.kind in ("single", "key")

    @property
    def default_values(self) -> tuple[Any, ...]:
        """The default as `width` values (single: 1; multi and sequence: none)."""
        if self.is_ragged:
            return ()
        if isinstance(self.default, tuple):
            return self.default
        return (_ZERO[self.dtype] if self.default is None else self.default,) * self.width

    def shape(self, rows: int) -> tuple[int, ...]:
        """The shape of a column of `rows` rows: [rows], [rows, width], or empty for a ragged feature."""
        if self.is_single:
            return (rows,)
        return () if self.is_ragged else (rows, self.width)

    def problems(self) -> list[str]:
        """Everything wrong with this feature, each naming it."""
        label = f"feature {self.name!r}"
        found = []
        if not isinstance(self.name, str) or not self.name:
            found.append(f"{label}: name must be a string that is not empty")
        for field, allowed in (("side", SIDES), ("dtype", tuple(DTYPE_CODES)), ("kind", KINDS)):
            if getattr(self, field) not in allowed:
                found.append(f"{label}: {field} is {getattr(self, field)!r}, must be one of {', '.join(allowed)}")
        if isinstance(self.width, bool) or not isinstance(self.width, int) or not 1 <= self.width <= WIDTH_MAX:
            found.append(f"{label}: width is {self.width!r}, must be a whole number from 1 to {WIDTH_MAX}")
        elif self.is_single and self.width != 1:
            found.append(f"{label}: width is {self.width}, a {self.kind} feature has width 1 (a vector is 'dense')")
        if self.kind == "key" and (self.dtype != "i64" or self.default is not None):
            found.append(f"{label}: a key is an id: dtype must be i64, and no default as it is never missing")
        return found or self._default_problems(label)

    def _default_problems(self, label: str) -> list[str]:
        if self.default is None:
            return []
        if self.is_ragged:
            return [f"{label}: default must be None, a {self.kind} feature defaults to the empty bag"]
        values = self.default if isinstance(self.default, tuple) else (self.default,)
        if isinstance(self.default, tuple) and (self.is_single or len(values) != self.width):
            wanted = "one value" if self.is_single else f"one value or {self.width}"
            return [f"{label}: default has {len(values)} values, must be {wanted}"]
        wrong = [value for value in values if not _is_value(self.dtype, value)]
        return [f"{label}: default {wrong[0]!r} is not of dtype {self.dtype}"] if wrong else []

    def to_json(self) -> dict[str, Any]:
        """The feature as JSON values; bytes defaults are base64."""
        default = self.default
        if default is not None:
            many = isinstance(default, tuple)
            default = [_encode(self.dtype, v) for v in default] if many else _encode(self.dtype, default)
        return {"name": self.name, "side": self.side, "dtype": self.dtype, "kind": self.kind, "width": self.width,
                "default": default}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Feature:
        """Undo `to_json`. Raises SchemaError for fields that are missing, unknown or not decodable."""
        if not isinstance(data, Mapping):
            raise SchemaError(f"feature: got {type(data).__name__}, expected an object")
        label = f"feature {data.get('name')!r}"
        found = [f"{label}: field {field!r} is missing" for field in _FIELDS[:3] if field not in data]
        found += [f"{label}: unknown field {field!r}" for field in data if field not in _FIELDS]
        default = data.get("default")
        try:
            default = tuple(map(_decode, default)) if isinstance(default, (list, tuple)) else _decode(default)
        except (ValueError, TypeError) as error:
            found.append(f"{label}: default is not valid base64: {error}")
        if found:
            raise SchemaError(found)
        return cls(data["name"], data["side"], data["dtype"], data.get("kind", "single"), data.get("width", 1), default)


@dataclass(frozen=True)
class Schema:
    """The features of one model. Raises SchemaError listing every problem."""

    features: tuple[Feature, ...]

    def __post_init__(self) -> None:
        """Check every feature and that names are unique."""
        object.__setattr__(self, "features", tuple(self.features))
        found: list[str] = []
        seen: set[str] = set()
        for feature in self.features:
            found += feature.problems()
            if str(feature.name) in seen:
                found.append(f"feature {feature.name!r}: the name is declared more than once")
            seen.add(str(feature.name))
        if found:
            raise SchemaError(found)

    def feature(self, name: str) -> Feature:
        """The feature of that name. Raises SchemaError, naming the nearest declared one."""
        for feature in self.features:
            if feature.name == name:
                return feature
        raise SchemaError(f"feature {name!r} is not declared{nearest(name, [f.name for f in self.features])}")

    def side(self, side: Side) -> tuple[Feature, ...]:
        """The features of one side, in the order they were declared."""
        if side not in SIDES:
            raise SchemaError(f"side is {side!r}, must be one of {', '.join(SIDES)}")
        return tuple(feature for feature in self.features if feature.side == side)

    def stored(self, side: Side) -> tuple[Feature, ...]:
        """The features of one side that a cache holds: all but keys."""
        return tuple(feature for feature in self.side(side) if feature.kind != "key")

    def to_json(self) -> dict[str, Any]:
        """The schema as JSON values."""
        return {"features": [feature.to_json() for feature in self.features]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Schema:
        """Undo `to_json`. Raises SchemaError listing every problem of every feature."""
        if not isinstance(data, Mapping) or not isinstance(data.get("features"), Sequence) or set(data) != {"features"}:
            raise SchemaError("schema: expected an object with exactly the field 'features', a list")
        features, found = [], []
        for entry in data["features"]:
            try:
                features.append(Feature.from_json(entry))
            except SchemaError as error:
                found += error.problems
        found += [problem for feature in features for problem in feature.problems()] if found else []
        if found:
            raise SchemaError(found)
        return cls(tuple(features))


def nearest(name: str, declared: Sequence[str]) -> str:
    """A hint to end a message with: the declared name most like `name`, or all of them when few, or nothing."""
    close = get_close_matches(name, declared, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    if not declared:
        return "; none is declared"
    return f"; declared: {', '.join(declared)}" if len(declared) <= 12 else ""


__all__ = ["DTYPE_CODES", "KINDS", "SIDES", "WIDTH_MAX", "DType", "Feature", "Kind", "Schema", "Side", "decode_number",
           "encode_number", "is_number", "nearest", "wrap_i64"]
