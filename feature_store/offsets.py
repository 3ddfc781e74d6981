"""Checking offsets without a Python loop."""

from __future__ import annotations

from typing import Any, Literal

from feature_store import _core

Problem = Literal["", "start", "decrease", "long"]
_PROBLEMS: tuple[Problem, ...] = ("", "start", "decrease", "long")


def offsets_problem(buffer: Any, length_max: int) -> tuple[Problem, int, int]:
    """Check int32 offsets: start at 0, never decrease, cut rows of at most `length_max` (-1: of any length).

    Returns (problem, place, value). No problem: value is the last offset. "start", "decrease": the offset at fault.
    "long": the row and its length.
    """
    problem, place, value = _core.check_offsets(buffer, length_max)
    return _PROBLEMS[problem], place, value
