"""Figures: what a benchmark returns, how it is drawn on a terminal and written as JSON.

A benchmark measures its variants in turn (`interleave`), so that a host which slows down half-way slows all of them
down, and reports ratios per round. Below its target a figure is marked, never hidden, and nothing fails.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.console import Group, RenderableType
from rich.text import Text

from tools.host import cpu_model, cpus_allowed, memory_bytes

__all__ = ["Better", "Figure", "Interleaved", "Report", "figure", "host_line", "interleave", "missing", "render",
           "write_json"]

Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Figure:
    """One number of a benchmark, with the spread of the samples it stands for.

    `name` is a path such as `rank.overhead_ms/n=1682`; `unit` such as `ms`, `ids/s`, `x`. `of` names the figure or
    variant that a ratio was divided by, measured in the same run. `target` is in `unit`, and `better` says on which
    side of it to be. A peer that is not installed has `value` None and the reason in `missing`.
    """

    name: str
    value: float | None
    unit: str
    better: Better = "higher"
    of: str | None = None
    target: float | None = None
    min: float | None = None
    median: float | None = None
    max: float | None = None
    missing: str | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without a target or a value."""
        if self.target is None or self.value is None:
            return None
        return self.value >= self.target if self.better == "higher" else self.value <= self.target


@dataclass(frozen=True)
class Report:
    """What one benchmark returned on one host: `host` is a line of text, `figures` in the benchmark's order."""

    name: str
    host: str
    figures: tuple[Figure, ...]
    seconds: float = 0.0


@dataclass(frozen=True)
class Interleaved:
    """Samples of variants that ran in turn: `samples[variant][round]`, all of one length."""

    samples: Mapping[str, tuple[float, ...]]

    def ratios(self, variant: str, of: str) -> tuple[float, ...]:
        """`variant` divided by `of`, round by round; both are names of variants."""
        return tuple(a / b for a, b in zip(self.samples[variant], self.samples[of], strict=True))

    def median(self, variant: str) -> float:
        """The median sample of one variant."""
        return statistics.median(self.samples[variant])


def interleave(variants: Mapping[str, Callable[[], float | None]], rounds: int, *, warmup: int = 1) -> Interleaved:
    """Runs the variants A B A B ... and returns a sample per variant and round.

    A variant that returns a number is sampled by it (a rate, a percentile); one that returns None by the seconds that
    the call took. `warmup` rounds run first and are forgotten.
    """
    if rounds < 1 or not variants:
        raise ValueError(f"interleave needs at least one variant and one round, got {len(variants)} and {rounds}")
    samples: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(-warmup, rounds):
        for name, run in variants.items():
            start = time.perf_counter()
            measured = run()
            elapsed = time.perf_counter() - start
            if turn >= 0:
                samples[name].append(elapsed if measured is None else float(measured))
    return Interleaved({name: tuple(values) for name, values in samples.items()})


def figure(name: str, samples: Sequence[float], unit: str, *, better: Better = "higher", of: str | None = None,
           target: float | None = None, scale: float = 1.0) -> Figure:
    """The figure of some samples: its value is their median. `scale` multiplies each (1e3 turns seconds into ms)."""
    if not samples:
        raise ValueError(f"figure {name!r} has no samples")
    scaled = [float(sample) * scale for sample in samples]
    middle = statistics.median(scaled)
    return Figure(name, middle, unit, better, of, target, min(scaled), middle, max(scaled))


def missing(name: str, unit: str, reason: str, *, better: Better = "higher", of: str | None = None) -> Figure:
    """The figure of a peer that cannot be measured here; `reason` says what to install."""
    return Figure(name, None, unit, better, of, missing=reason)


def host_line() -> str:
    """CPU model, cores this process may use, memory and kernel; never the host's name."""
    return (f"{cpu_model()}, {len(cpus_allowed())} cores, {memory_bytes() / 2**30:.0f} GiB, "
            f"{platform.system()} {platform.release().split('-')[0]}, Python {platform.python_version()}")


def render(report: Report) -> RenderableType:
    """One report for a terminal of 80 columns or more: per figure its name on a line of its own, which is never broken,
    and under it value, spread, target and whether it was met."""
    lines = [Text.from_markup(f"[bold]bench {report.name}[/] ({report.seconds:.0f} s)"), Text(report.host, "dim")]
    for item in report.figures:
        lines.append(Text.assemble("\n", (item.name, "cyan"), f"  of {item.of}" if item.of else ""))
        if item.value is None:
            lines.append(Text(f"  missing: {item.missing}"))
            continue
        spread = "" if item.min is None else f"{_number(item.min)} .. {_number(item.max)}"
        row = Text(f"  {_number(item.value):>12} {item.unit:<6} {spread:<26}  ")
        row.append_text(Text.from_markup(_target(item)))
        row.rstrip()
        lines.append(row)
    return Group(*lines)


def write_json(path: str | Path, reports: Sequence[Report]) -> None:
    """Writes `{"host": ..., "figures": [...]}` with the figures of all reports, in order."""
    figures = [asdict(item) for report in reports for item in report.figures]
    document = {"host": reports[0].host if reports else host_line(), "figures": figures}
    Path(path).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _target(item: Figure) -> str:
    if item.target is None:
        return ""
    sign = ">=" if item.better == "higher" else "<="
    verdict = {True: "[green]met[/]", False: "[yellow]not met[/]", None: "not measured"}[item.met]
    return f"{sign} {_number(item.target)} {verdict}"
