"""Slots compiled for one side: from ids, stored features and a request's own columns to model inputs, natively."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from feature_store import _core
from feature_store.arrow import NUMPY_DTYPES
from feature_store.cache import FeatureCache, as_keys
from feature_store.column import Column, check_column
from feature_store.errors import CallerError, FeatureError, SchemaError
from feature_store.plan import LAYOUT_CODES, SidePlan, SlotPlan, SlotSpec, compile_slots
from feature_store.schema import DTYPE_CODES, Feature, Schema, Side, nearest
from feature_store.transforms import Clip, Slot

ISA_VARIABLE = "FEATURE_STORE_ISA"


@dataclass(frozen=True, eq=False)
class SlotValues:
    """One slot's output for n keys.

    Attributes:
        values: float32 or int64; dense [n] or [n, width], ragged [offsets[n]], padded [n, width].
        offsets: int32 [n + 1], ragged slots only.
        lengths: int32 [n], padded slots only.
    """

    values: np.ndarray
    offsets: np.ndarray | None = None
    lengths: np.ndarray | None = None


@dataclass(frozen=True)
class GatherStats:
    """What coverage is computed from: a cell is one feature, read by some slot, of one key."""

    cells: int
    cells_present: int


class Gathered(dict[str, SlotValues]):
    """Slot name to SlotValues, with `known` (bool [n]: is the key in the cache) and `stats` (GatherStats)."""

    known: np.ndarray
    stats: GatherStats

    def __init__(self, slots: Mapping[str, SlotValues], known: np.ndarray, stats: GatherStats) -> None:
        """Collect what a gather gave."""
        super().__init__(slots)
        self.known, self.stats = known, stats


class SideFeatures:
    """The features of one side by name, and the checks of a request's columns against them.

    Attributes:
        side: "user", "item" or "context".
        features: every feature of the side, in the schema's order: the order of the native `columns` array.
        slots: what each slot of the side gives, in the order given: the order of the native `outs` array.
    """

    def __init__(self, plan: SidePlan, side: Side) -> None:
        """Index a compiled side."""
        self.side = side
        self.features = plan.features
        self.slots: tuple[SlotSpec, ...] = tuple(slot.spec for slot in plan.slots)
        self._plan = plan
        self._places = {feature.name: place for place, feature in enumerate(plan.features)}

    def feature_index(self, name: str) -> int:
        """The place of a feature in `features`. Raises FeatureError, naming the nearest declared one."""
        place = self._places.get(name)
        if place is None:
            hint = nearest(name, list(self._places))
            raise FeatureError(name, "an unknown name", f"a feature of side {self.side!r}{hint}")
        return place

    def feature(self, name: str) -> Feature:
        """The feature of that name. Raises FeatureError, naming the nearest declared one."""
        return self.features[self.feature_index(name)]

    def check(self, name: str, column: Column, rows: int) -> None:
        """Raise FeatureError unless `column` is `rows` rows of the feature of that name."""
        check_column(self.feature(name), column, rows)

    def _checked(self, keys: Any, columns: Mapping[str, Column]) -> np.ndarray:
        if keys is None:
            keys = np.zeros(next(iter(columns.values())).rows if columns else 0, np.int64)
        keys = as_keys(keys)
        for name, column in columns.items():
            self.check(name, column, len(keys))
        self._refuse_too_many(len(keys))
        return keys

    def _refuse_too_many(self, rows: int) -> None:
        """Offsets are int32, so that no slot may have 2**31 values."""
        for spec in self.slots:
            if rows * spec.width >= 1 << 31:
                raise CallerError(f"keys: got {rows}, expected fewer than 2**31 / {spec.width} for slot "
                                  f"{spec.name!r}; gather them in parts")


class Extractor(SideFeatures):
    """All slots of one side, compiled once. Thread-safe; gathers without the GIL.

    The same native code serves requests (through `capsule`) and prepares training data (through `gather`), so both see
    the same bytes.
    """

    def __init__(self, schema: Schema, slots: Iterable[Slot], side: Side, cache: FeatureCache | None = None) -> None:
        """Compile.

        Args:
            schema: the model's schema.
            slots: slots of any side; all are checked, those of `side` are compiled.
            side: "user", "item" or "context".
            cache: stored features; without one, every key is unknown.

        The environment variable FEATURE_STORE_ISA (scalar, avx2, avx512) overrides the choice of instruction set.
        Raises SlotError listing every problem, SchemaError when the cache does not fit, IsaError.
        """
        super().__init__(compile_slots(schema, slots, side), side)
        self.cache = FeatureCache.empty(schema, side) if cache is None else cache
        self.isa: str = _core.choose_isa(os.environ.get(ISA_VARIABLE, ""))
        specs = [(f.name, f.dtype_code, LAYOUT_CODES["ragged" if f.is_ragged else "dense"], f.width)
                 for f in self.features]
        self._native = _core.Extractor(specs, [_program(plan) for plan in self._plan.slots], self.cache._native,
                                       _cache_columns(self._plan, side, self.cache), self.isa)

    @property
    def capsule(self) -> Any:
        """A new PyCapsule "feature_store.FeatureSource.1" (see csrc/feature_source.h); it may outlive this object."""
        return self._native.capsule()

    def gather(self, keys: Any, columns: Mapping[str, Column] | None = None) -> Gathered:
        """Compute every slot for n keys.

        Args:
            keys: int64 or uint64 [n]; may repeat; may be unknown. None takes the number of rows of `columns`.
            columns: feature name to a column of n rows that overrides what is stored.

        Raises FeatureError, CallerError.
        """
        columns = columns or {}
        keys = self._checked(keys, columns)
        given: list[Any] = [None] * len(self.features)
        for name, column in columns.items():
            given[self._places[name]] = (column.values, column.row_offsets, column.byte_offsets)
        outs = [_allocate(spec, len(keys)) for spec in self.slots]
        known = np.empty(len(keys), np.uint8)
        stats = self._native.gather(keys, given, outs, known)
        slots = {spec.name: _result(spec, *out) for spec, out in zip(self.slots, outs, strict=True)}
        return Gathered(slots, known.view(np.bool_), GatherStats(*stats))


def _allocate(spec: SlotSpec, rows: int) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    values = np.empty(rows * spec.width, NUMPY_DTYPES[spec.dtype])
    offsets = np.zeros(rows + 1, np.int32) if spec.layout == "ragged" else None
    lengths = np.empty(rows, np.int32) if spec.layout == "padded" else None
    return values, offsets, lengths


def _result(spec: SlotSpec, values: np.ndarray, offsets: np.ndarray | None, lengths: np.ndarray | None) -> SlotValues:
    if offsets is not None:
        return SlotValues(values[: int(offsets[-1])], offsets)
    if lengths is not None or spec.width != 1:
        values = values.reshape(-1, spec.width)
    return SlotValues(values, None, lengths)


def _program(plan: SlotPlan) -> _core.SlotProgram:
    spec = plan.spec
    pad_f32, pad_i64 = (plan.pad_value, 0) if spec.dtype == "f32" else (0.0, plan.pad_value)
    return _core.SlotProgram(
        (spec.name, DTYPE_CODES[spec.dtype], LAYOUT_CODES[spec.layout], spec.width), plan.feature,
        [(cut.length, cut.keep == "last") for cut in plan.cuts], plan.hash_seed,
        [(1, op.lo, op.hi) if isinstance(op, Clip) else (0, 0.0, 0.0) for op in plan.float_ops],
        list(plan.boundaries), list(plan.crosses), float(pad_f32), int(pad_i64))


def _cache_columns(plan: SidePlan, side: Side, cache: FeatureCache) -> list[int]:
    """The cache's column for each feature that slots read, KEY_COLUMN for keys, -1 otherwise. Raises SchemaError."""
    problems = [] if cache.side == side else [f"cache: holds side {cache.side!r}, expected {side!r}"]
    stored = {feature.name: (place, feature) for place, feature in enumerate(cache.features)}
    columns = [-1] * len(plan.features)
    for place in plan.used:
        feature = plan.features[place]
        if feature.kind == "key":
            columns[place] = _core.KEY_COLUMN
            continue
        column, other = stored.get(feature.name, (-1, None))
        if other is None:
            problems.append(f"cache: feature {feature.name!r} is not stored{nearest(feature.name, list(stored))}")
        elif other.to_json() != feature.to_json():
            problems.append(f"cache: feature {feature.name!r} was stored as {other}, expected {feature}")
        columns[place] = column
    if problems:
        raise SchemaError([f"{problem}; build the cache with the model's schema" for problem in problems])
    return columns


__all__ = ["Extractor", "GatherStats", "Gathered", "ISA_VARIABLE", "SideFeatures", "SlotValues"]
