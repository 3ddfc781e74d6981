"""What a measured model's figures amount to: which engine is fastest within its tolerance, and which ones lose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tools.bench.figures import Figure
from tools.engines import Lane, lane_name

from .examine import TOLERANCE_BF16, Adoption
from .measure import PLAIN, Measured, Result

__all__ = ["Choice", "best", "choices", "figures", "outcome", "ratio", "tolerance_of", "within"]

_EVEN = 0.02


@dataclass(frozen=True)
class Choice:
    """The plain graph or the one after all passes, in an engine."""

    graph: str
    lane: Lane
    result: Result

    def __str__(self) -> str:
        return f"{self.lane.kind} {self.lane.precision}, {self.graph}"


def tolerance_of(found: Adoption, lane: Lane) -> float:
    """What scores in a lane's precision may differ by."""
    return found.options.tolerance if lane.precision == "f32" else max(TOLERANCE_BF16, found.options.tolerance)


def within(found: Adoption, choice: Choice) -> bool:
    """Whether scores are as close to the original's as packages allow."""
    return choice.result.deviation.scaled <= tolerance_of(found, choice.lane)


def choices(measured: Measured) -> Iterator[Choice]:
    """Of every lane that runs, the plain graph, then the one after all passes."""
    last = measured.steps[-1]
    for lane in last.lanes:
        for step in (measured.steps[0], last) if len(measured.steps) > 1 else (last,):
            result = step.lanes[lane]
            if isinstance(result, Result):
                yield Choice(PLAIN if step.name == PLAIN else "all passes", lane, result)


def best(found: Adoption, per_core: bool = False) -> Choice | None:
    """The fastest a request (or the cheapest a core) within its tolerance; None when nothing is."""
    kept = [choice for choice in choices(found.measured) if within(found, choice)]
    return min(kept, key=lambda c: c.result.speed.core_ms if per_core else c.result.speed.ms, default=None)


def ratio(before: float, after: float) -> str:
    """How many times as fast: "2.10x", or "0.90x" for what loses."""
    return f"{before / max(after, 1e-9):.2f}x"


def outcome(before: float, after: float) -> str:
    """ "wins", "loses", or "even" where the difference is within what such measurements tell."""
    times = before / max(after, 1e-9)
    return "wins" if times > 1 + _EVEN else "loses" if times < 1 - _EVEN else "even"


def figures(found: Adoption) -> list[Figure]:
    """Figures as benchmarks have them: of stock, and of each pass and engine."""
    made = []
    speeds = {"variant=stock": found.measured.stock if found.measured else found.stock}
    if found.measured is not None:
        speeds |= {"variant=exported": found.measured.whole, "variant=front": found.measured.front}
    if found.deviation is not None:
        made.append(Figure("adopt.score_difference/variant=export", found.deviation.scaled, "1", "lower",
                           target=found.options.tolerance))
    for step in found.measured.steps if found.measured else ():
        if not isinstance(step.cost, str):
            made.append(Figure(f"adopt.flops/after={step.name}", float(step.cost.flops), "FLOP", "lower"))
            made.append(Figure(f"adopt.bytes/after={step.name}", float(step.cost.bytes), "B", "lower"))
        for lane, result in step.lanes.items():
            at = f"after={step.name},{lane_name(lane)}"
            if isinstance(result, Result):
                speeds[at] = result.speed
                made.append(Figure(f"adopt.score_difference/{at}", result.deviation.scaled, "1", "lower",
                                   target=tolerance_of(found, lane)))
            elif result is not None:
                made.append(Figure(f"adopt.ms/{at}", None, "ms", "lower", missing=result))
    for at, speed in speeds.items():
        if speed is not None:
            made.append(Figure(f"adopt.ms/{at}", speed.ms, "ms", "lower"))
            made.append(Figure(f"adopt.requests_s_core/{at}", speed.per_core, "1/s"))
    return made
