"""Which inputs have one value for all candidates of a request: those of the user, most often."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .requests import Request

__all__ = ["constant_inputs", "equal_rows"]


def constant_inputs(requests: Sequence[Request]) -> tuple[str, ...]:
    """Inputs of which every request has equal rows, or one row for all; none when no request has two rows, as nothing
    tells them apart then. Strings and numbers alike, NaN equal to itself."""
    several = [request for request in requests if request.rows > 1]
    if not several:
        return ()
    return tuple(name for name in sorted(several[0].inputs)
                 if all(r.inputs[name].ndim and equal_rows(r.inputs[name]) for r in several))


def equal_rows(value: np.ndarray) -> bool:
    """Whether all rows hold the same bits (strings: the same bytes)."""
    if value.ndim == 0 or len(value) < 2:
        return True
    if value.dtype == object:
        return bool(np.all(value == value[:1]))
    bits = np.ascontiguousarray(value).reshape(len(value), -1).view(np.uint8)
    return bool((bits == bits[:1]).all())
