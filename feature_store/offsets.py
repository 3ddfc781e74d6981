"""Checking offsets without a Python loop."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np


def offsets_problem(buffer: Any, length_max: int) -> tuple[Literal["", "start", "decrease", "long"], int, int]:
    """Check int32 offsets: (problem, place, value), where problem "" means fine and value is the last offset."""
    offsets = np.frombuffer(buffer, "<i4").astype(np.int64)
    if offsets[0] != 0:
        return "start", 0, int(offsets[0])
    lengths = np.diff(offsets)
    if (lengths < 0).any():
        place = int(np.argmax(lengths < 0))
        return "decrease", place + 1, int(offsets[place + 1])
    if length_max >= 0 and (lengths > length_max).any():
        place = int(np.argmax(lengths > length_max))
        return "long", place, int(lengths[place])
    return "", 0, int(offsets[-1])
