"""Type-checks the chains of transforms of a schema's slots and brings them into the form that is executed.

Every chain that type-checks has the same shape, since each transform fixes what may follow it:

    load (cuts, hash) -> Log1p and Clip -> Bucketize -> Crosses -> pad
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from feature_store.errors import SlotError
from feature_store.schema import Feature, Schema, Side, nearest
from feature_store.transforms import Bucketize, Clip, Cross, Hash64, Log1p, Pad, Slot, Transform, Truncate

Layout = Literal["dense", "ragged", "padded"]
LAYOUT_CODES: dict[Layout, int] = {"dense": 0, "ragged": 1, "padded": 2}


@dataclass(frozen=True)
class SlotSpec:
    """What one slot's output looks like.

    Attributes:
        name: the slot's name.
        dtype: "f32" or "i64".
        layout: "dense" (values [n], or [n, width] for width > 1), "ragged" (values and int32 offsets [n + 1]; at most
            `width` values a row) or "padded" (values [n, width] and int32 lengths [n]).
        width: see layout.
    """

    name: str
    dtype: Literal["f32", "i64"]
    layout: Layout
    width: int


@dataclass(frozen=True)
class SlotPlan:
    """One slot, compiled. Features are named by their place among the features of the side."""

    spec: SlotSpec
    feature: int
    cuts: tuple[Truncate, ...] = ()
    hash_seed: int = 0
    float_ops: tuple[Log1p | Clip, ...] = ()
    boundaries: tuple[float, ...] = ()
    crosses: tuple[tuple[int, int], ...] = ()
    pad_value: float | int = 0


@dataclass(frozen=True)
class SidePlan:
    """All slots of one side, compiled.

    Attributes:
        features: every feature of the side, in the schema's order.
        slots: the compiled slots of the side, in the order given.
        used: the places in `features` of those that a slot reads.
    """

    features: tuple[Feature, ...]
    slots: tuple[SlotPlan, ...]
    used: tuple[int, ...]


def compile_slots(schema: Schema, slots: Iterable[Slot], side: Side) -> SidePlan:
    """Check the slots of all sides and compile those of `side`. Raises SlotError listing every problem."""
    features = schema.side(side)
    problems: list[str] = []
    plans: list[SlotPlan] = []
    seen: set[str] = set()
    names = [feature.name for feature in schema.features]
    for slot in slots:
        if slot.name in seen:
            problems.append(f"slot {slot.name!r}: the name is used more than once")
        seen.add(slot.name)
        if slot.feature not in names:
            hint = nearest(slot.feature, names)
            problems.append(f"slot {slot.name!r}: feature {slot.feature!r} is not declared{hint}")
            continue
        feature = schema.feature(slot.feature)
        chain = _Chain(schema, slot, feature)
        plan = chain.compile()
        problems += chain.problems
        if feature.side == side:
            plans.append(plan)
    if problems:
        raise SlotError(problems)
    used = {plan.feature for plan in plans} | {other for plan in plans for other, _ in plan.crosses}
    return SidePlan(features, tuple(plans), tuple(sorted(used)))


class _Chain:
    """The state of one slot while its transforms are checked one after the other."""

    def __init__(self, schema: Schema, slot: Slot, feature: Feature) -> None:
        self.schema, self.slot, self.feature = schema, slot, feature
        self.dtype, self.width, self.ragged = feature.dtype, feature.width, feature.is_ragged
        self.siblings = [sibling.name for sibling in schema.side(feature.side)]
        self.problems: list[str] = []
        self.plan = SlotPlan(SlotSpec(slot.name, "i64", "dense", 1), self.siblings.index(feature.name))
        self.pad: Pad | None = None

    def compile(self) -> SlotPlan:
        for place, transform in enumerate(self.slot.transforms, 1):
            self.where = f"slot {self.slot.name!r}, transform {place} ({type(transform).__name__})"
            if self.pad is not None:
                self._problem("stands after Pad, which must be the last")
                continue
            self._step(transform)
        self.where = f"slot {self.slot.name!r}"
        if self.dtype == "bytes":
            self._problem("ends in bytes, which no model input takes: add Hash64")
        layout, width = self._layout()
        dtype = "f32" if self.dtype == "f32" else "i64"
        return replace(self.plan, spec=SlotSpec(self.slot.name, dtype, layout, width))

    def _problem(self, what: str) -> None:
        self.problems.append(f"{self.where}: {what}")

    def _needs(self, dtype: str) -> bool:
        if self.dtype != dtype:
            self._problem(f"needs {dtype} values, gets {self.dtype}")
        return self.dtype == dtype

    def _step(self, transform: Transform) -> None:
        match transform:
            case Log1p() | Clip():
                if self._needs("f32"):
                    self.plan = replace(self.plan, float_ops=(*self.plan.float_ops, transform))
            case Bucketize():
                if self._needs("f32"):
                    self.plan = replace(self.plan, boundaries=transform.boundaries)
                self.dtype = "i64"
            case Hash64():
                if self._needs("bytes"):
                    self.plan = replace(self.plan, hash_seed=transform.seed)
                self.dtype = "i64"
            case Cross():
                self._cross(transform)
                self.dtype = "i64"
            case Truncate():
                if self._needs_many():
                    self.plan = replace(self.plan, cuts=(*self.plan.cuts, transform))
                    self.width = min(self.width, transform.length)
            case Pad():
                if self._needs_many():
                    self.pad = transform

    def _needs_many(self) -> bool:
        if not self.ragged:
            self._problem(f"needs a multi or sequence feature, {self.feature.name!r} is {self.feature.kind}")
        return self.ragged

    def _cross(self, transform: Cross) -> None:
        fine = self._needs("i64")
        if self.ragged or self.width != 1:
            self._problem(f"needs a single feature, {self.feature.name!r} is {self.feature.kind}")
            fine = False
        if transform.other not in self.siblings:
            self._problem(f"feature {transform.other!r} is not declared for side {self.feature.side!r}"
                          f"{nearest(transform.other, self.siblings)}")
            return
        other = self.schema.feature(transform.other)
        if not other.is_single or other.dtype == "f32":
            self._problem(f"feature {other.name!r} is {other.kind} {other.dtype}, must be single i64 or bytes")
        elif fine:
            crossed = (self.siblings.index(other.name), transform.seed)
            self.plan = replace(self.plan, crosses=(*self.plan.crosses, crossed))

    def _layout(self) -> tuple[Layout, int]:
        if not self.ragged:
            return "dense", self.width
        if self.pad is None:
            return ("padded" if self.feature.kind == "sequence" else "ragged"), self.width
        self.where += ", transform Pad"
        if self.pad.length < self.width:
            self._problem(f"length {self.pad.length} is less than the {self.width} values that a row may have: "
                          f"add Truncate({self.pad.length}) before it")
        whole = isinstance(self.pad.value, int) and -(1 << 63) <= self.pad.value < 1 << 63
        if self.dtype == "i64" and not whole:
            self._problem(f"value {self.pad.value!r} must be an int64, as the values are i64")
        else:
            self.plan = replace(self.plan, pad_value=self.pad.value)
        return "padded", self.pad.length


__all__ = ["LAYOUT_CODES", "Layout", "SidePlan", "SlotPlan", "SlotSpec", "compile_slots"]
