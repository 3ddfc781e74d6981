"""What happens to a raw feature on its way into a model input, as data.

A `Slot` names a feature and a chain of transforms. The same native code runs the chain in training and in serving, so
that both see the same bytes. The chain is type-checked when an extractor is compiled (see plan.py).

| transform | values in      | values out | what it does                                                          |
|-----------|----------------|------------|-----------------------------------------------------------------------|
| Log1p     | f32            | f32        | ln(1 + x)                                                             |
| Clip      | f32            | f32        | into [lo, hi]                                                         |
| Bucketize | f32            | i64        | how many boundaries are <= x                                          |
| Hash64    | bytes          | i64        | XXH64                                                                 |
| Cross     | i64, single    | i64        | XXH64 of two ids                                                      |
| Truncate  | any, multi     | the same   | keeps the first or last values of each row                            |
| Pad       | f32, i64 multi | the same   | fills each row up to a length; last in the chain                      |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np

from feature_store.errors import SlotError
from feature_store.schema import WIDTH_MAX, decode_number, encode_number, is_number


def _require(ok: bool, transform: Any, what: str) -> None:
    if not ok:
        raise SlotError(f"{type(transform).__name__}: {what}")


def _is_count(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _f32(value: Any) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


@dataclass(frozen=True)
class Log1p:
    """f32 -> f32: ln(1 + x), computed in float64 and rounded once, by the same operations on every CPU.

    NaN and x < -1 give the quiet NaN 0x7fc00000, -1 gives -inf, +inf gives +inf, and -0.0 stays -0.0.
    """

    op: ClassVar[str] = "log1p"


@dataclass(frozen=True)
class Clip:
    """f32 -> f32: x < lo gives lo, x > hi gives hi. NaN stays the NaN it was; infinities are clipped.

    Bounds are rounded to f32; they may be infinite. Raises SlotError when lo > hi or one is NaN.
    """

    lo: float
    hi: float
    op: ClassVar[str] = "clip"

    def __post_init__(self) -> None:
        """Check the bounds and round them."""
        for bound in (self.lo, self.hi):
            _require(is_number(bound), self, f"bounds must be numbers, got {bound!r}")
        object.__setattr__(self, "lo", _f32(self.lo))
        object.__setattr__(self, "hi", _f32(self.hi))
        _require(self.lo <= self.hi, self, f"lo must be <= hi, got lo={self.lo!r}, hi={self.hi!r}")


@dataclass(frozen=True)
class Bucketize:
    """f32 -> i64: the number of boundaries <= x, so buckets are [b[i-1], b[i]), numbered from 0 to len(boundaries).

    The same as `numpy.searchsorted(boundaries, x, side="right")`, NaN included: it falls in the last bucket.
    Boundaries are rounded to f32 and must be finite, ascending and distinct after that; 1 to 65,536 of them.
    """

    boundaries: tuple[float, ...]
    op: ClassVar[str] = "bucketize"

    def __post_init__(self) -> None:
        """Check the boundaries and round them."""
        given = self.boundaries.tolist() if isinstance(self.boundaries, np.ndarray) else self.boundaries
        _require(isinstance(given, (list, tuple)) and all(map(is_number, given)), self, "boundaries must be numbers")
        rounded = tuple(map(_f32, given))
        object.__setattr__(self, "boundaries", rounded)
        _require(1 <= len(rounded) <= 65536, self, f"needs 1 to 65536 boundaries, got {len(rounded)}")
        _require(all(map(math.isfinite, rounded)), self, "boundaries must be finite as f32")
        for low, high in zip(rounded, rounded[1:], strict=False):
            _require(low < high, self, f"boundaries must ascend as f32, got {low!r} before {high!r}")


@dataclass(frozen=True)
class Hash64:
    """bytes -> i64: XXH64 (xxHash specification 0.1.1, github.com/Cyan4973/xxHash) of each value, as int64 bits.

    `seed` is 0 to 2**64 - 1.
    """

    seed: int = 0
    op: ClassVar[str] = "hash64"

    def __post_init__(self) -> None:
        """Check the seed."""
        _require(_is_count(self.seed, (1 << 64) - 1), self, f"seed must be 0 to 2**64-1, got {self.seed!r}")


@dataclass(frozen=True)
class Cross:
    """i64 single -> i64: XXH64 with `seed` of the 16 bytes (this id, the other id), both little-endian; order matters.

    `other` is a single feature of the same side; i64, or bytes, which are first hashed as by Hash64(seed=0).
    """

    other: str
    seed: int = 0
    op: ClassVar[str] = "cross"

    def __post_init__(self) -> None:
        """Check the seed and the name."""
        _require(isinstance(self.other, str), self, f"other must be a feature's name, got {self.other!r}")
        _require(_is_count(self.seed, (1 << 64) - 1), self, f"seed must be 0 to 2**64-1, got {self.seed!r}")


@dataclass(frozen=True)
class Truncate:
    """multi or sequence -> the same, at most `length` values a row: the first ones or the last ones, in order."""

    length: int
    keep: Literal["first", "last"] = "first"
    op: ClassVar[str] = "truncate"

    def __post_init__(self) -> None:
        """Check the length and the end to keep."""
        _require(_is_count(self.length, WIDTH_MAX) and self.length >= 1, self,
                 f"length must be 1 to {WIDTH_MAX}, got {self.length!r}")
        _require(self.keep in ("first", "last"), self, f"keep must be 'first' or 'last', got {self.keep!r}")


@dataclass(frozen=True)
class Pad:
    """multi -> padded [n, length] and lengths [n]; cells past a row's length hold `value`, which is never transformed.

    Must be the last of its chain. Rows that may be longer than `length` are refused at compile: Truncate them first.
    On a sequence (padded by itself with 0) it sets another pad value or a greater length.
    """

    length: int
    value: float | int = 0
    op: ClassVar[str] = "pad"

    def __post_init__(self) -> None:
        """Check the length and the value, and take a numpy number as Python's, which JSON can carry."""
        _require(_is_count(self.length, WIDTH_MAX) and self.length >= 1, self,
                 f"length must be 1 to {WIDTH_MAX}, got {self.length!r}")
        _require(is_number(self.value), self, f"value must be a number, got {self.value!r}")
        if isinstance(self.value, np.generic):
            object.__setattr__(self, "value", self.value.item())


Transform = Log1p | Clip | Bucketize | Hash64 | Cross | Truncate | Pad
_BY_OP: dict[str, Any] = {t.op: t for t in (Log1p, Clip, Bucketize, Hash64, Cross, Truncate, Pad)}


def transform_to_json(transform: Transform) -> dict[str, Any]:
    """A transform as JSON values: {"op": name, parameter: value, ...}."""
    data: dict[str, Any] = {"op": transform.op}
    for field in fields(transform):
        value = getattr(transform, field.name)
        data[field.name] = list(map(encode_number, value)) if isinstance(value, tuple) else encode_number(value)
    return data


def transform_from_json(data: Mapping[str, Any]) -> Transform:
    """Undo `transform_to_json`. Raises SlotError for an unknown op or wrong parameters."""
    if not isinstance(data, Mapping) or data.get("op") not in tuple(_BY_OP):
        came = data.get("op") if isinstance(data, Mapping) else type(data).__name__
        raise SlotError(f"transform {came!r} is unknown, must be one of {', '.join(_BY_OP)}")
    kind = _BY_OP[data["op"]]
    given = {key: value for key, value in data.items() if key != "op"}
    given = {key: tuple(map(decode_number, value)) if isinstance(value, list) else
             (value if key in ("keep", "other") else decode_number(value)) for key, value in given.items()}
    try:
        return kind(**given)
    except TypeError as error:
        names = ", ".join(field.name for field in fields(kind)) or "none"
        raise SlotError(f"{kind.__name__}: got parameters {sorted(given)}, expected {names}") from error


@dataclass(frozen=True)
class Slot:
    """A feature's place in a model input, after its transforms. The side is its feature's."""

    name: str
    feature: str
    transforms: tuple[Transform, ...] = ()

    def __post_init__(self) -> None:
        """Make the chain a tuple and check that it holds transforms."""
        object.__setattr__(self, "transforms", tuple(self.transforms))
        if not isinstance(self.name, str) or not self.name:
            raise SlotError(f"slot {self.name!r}: name must be a string that is not empty")
        if not isinstance(self.feature, str):
            raise SlotError(f"slot {self.name!r}: feature must be a feature's name, got {self.feature!r}")
        for transform in self.transforms:
            if type(transform) not in _BY_OP.values():
                raise SlotError(f"slot {self.name!r}: {transform!r} is not a transform")

    def to_json(self) -> dict[str, Any]:
        """The slot as JSON values."""
        return {"name": self.name, "feature": self.feature,
                "transforms": [transform_to_json(transform) for transform in self.transforms]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Slot:
        """Undo `to_json`. Raises SlotError listing every problem."""
        if not isinstance(data, Mapping) or not {"name", "feature"} <= set(data) <= {"name", "feature", "transforms"}:
            raise SlotError("slot: expected an object with the fields 'name', 'feature' and 'transforms'")
        transforms, found = [], []
        chain = data.get("transforms", ())
        if not isinstance(chain, (list, tuple)):
            raise SlotError(f"slot {data['name']!r}: transforms must be a list, got {type(chain).__name__}")
        for entry in chain:
            try:
                transforms.append(transform_from_json(entry))
            except SlotError as error:
                found += [f"slot {data['name']!r}: {problem}" for problem in error.problems]
        if found:
            raise SlotError(found)
        return cls(data["name"], data["feature"], tuple(transforms))


def slots_from_json(data: Iterable[Mapping[str, Any]]) -> tuple[Slot, ...]:
    """Read a list of slots. Raises SlotError listing every problem of every slot."""
    slots, found = [], []
    for entry in data:
        try:
            slots.append(Slot.from_json(entry))
        except SlotError as error:
            found += error.problems
    if found:
        raise SlotError(found)
    return tuple(slots)


__all__ = ["Bucketize", "Clip", "Cross", "Hash64", "Log1p", "Pad", "Slot", "Transform", "Truncate", "slots_from_json",
           "transform_from_json", "transform_to_json"]
