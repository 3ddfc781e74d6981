"""How an input of a framework's signature becomes a feature, and which outputs can be heads. No tensorflow here: the
service asks the same of a SavedModel as export does."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from feature_store.schema import Feature, Side

from .errors import SignatureError

__all__ = ["SignatureInput", "choose_heads", "sides_of", "signature_input"]

_DTYPES: Mapping[str, Literal["f32", "i64", "i32"]] = {"float32": "f32", "int64": "i64", "int32": "i32"}
_HEAD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True)
class SignatureInput:
    """One input of a signature, fed from the feature of the same name.

    Attributes:
        key: the signature's name for it.
        side: whose feature it is; one value a candidate for items, one a request otherwise.
        dtype: the framework's; a feature's whole numbers are i64, which the served graph casts.
        width: values a row; None for a plain [n], 1 for [n, 1].
        tiled: whether the model has a row of it for each candidate although its side has one a request.
    """

    key: str
    side: Side
    dtype: Literal["f32", "i64", "i32"]
    width: int | None
    tiled: bool

    @property
    def fed(self) -> Literal["f32", "i64"]:
        """The dtype of the feature, and of what is fed."""
        return "f32" if self.dtype == "f32" else "i64"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that is fed, -1 for the number of candidates."""
        return (-1 if self.side == "item" else 1, *(() if self.width is None else (self.width,)))

    @property
    def feature(self) -> Feature:
        """Raw numbers, as they are fed; missing ones are 0."""
        if self.width is None:
            return Feature(self.key, self.side, self.fed)
        return Feature(self.key, self.side, self.fed, "dense", self.width)


def sides_of(signature: str, inputs: Collection[str], user: Collection[str],
             context: Collection[str]) -> dict[str, Side]:
    """The side of each input: the item's but for those named. Raises SignatureError for a name that is no input."""
    sides: dict[str, Side] = dict.fromkeys(inputs, "item")
    for side, keys in (("context", context), ("user", user)):
        for key in keys:
            if key not in sides:
                raise SignatureError(f"signature {signature!r}: {key!r} came as an input of the {side} side, expected "
                                     f"some of {sorted(inputs)}")
            sides[key] = side
    return sides


def signature_input(signature: str, key: str, dtype: str, shape: Sequence[int] | None, side: Side) -> SignatureInput:
    """An input of `shape` (-1 for open dimensions, None for unknown rank). Raises SignatureError naming the input when
    no feature can feed it, and what would do."""
    where = f"signature {signature!r}, input {key!r}"
    if dtype not in _DTYPES:
        raise SignatureError(f"{where}: {dtype} cannot be fed; expected one of {', '.join(_DTYPES)}")
    leads = (-1,) if side == "item" else (-1, 1)
    if shape is None or len(shape) not in (1, 2) or shape[0] not in leads or any(d < 1 for d in shape[1:]):
        came = "unknown rank" if shape is None else f"shape {list(shape)}"
        once = "" if side != "item" or shape is None or tuple(shape[:1]) != (1,) else "; is it of the user side?"
        raise SignatureError(f"{where}: {came}; expected [-1] or [-1, width], a row a candidate{once}")
    return SignatureInput(key, side, _DTYPES[dtype], shape[1] if len(shape) == 2 else None,
                          side != "item" and shape[0] == -1)


def _head_problem(key: str, dtype: str, shape: Sequence[int] | None) -> str:
    if dtype != "float32":
        return f"{dtype} came, expected float32"
    if shape is not None and (not 1 <= len(shape) <= 2 or tuple(shape[1:]) not in ((), (1,), (-1,))):
        return f"shape {list(shape)} came, expected [-1] or [-1, 1]"
    if not _HEAD.fullmatch(key):
        return "a head's name is of letters, digits and '_', no digit first, so that formulas can name it"
    return ""


def choose_heads(signature: str, outputs: Mapping[str, tuple[str, Sequence[int] | None]],
                 wanted: Collection[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """(heads, {output that is no head: why}) of outputs {key: (dtype, shape)}: those `wanted`, else all that can be.

    Raises SignatureError for a wanted one that cannot be a head, and when none can.
    """
    for key in wanted:
        problem = _head_problem(key, *outputs[key]) if key in outputs else "there is no such output"
        if problem:
            raise SignatureError(f"signature {signature!r}, output {key!r}: {problem}; outputs: "
                                 f"{', '.join(sorted(outputs))}")
    if wanted:
        return tuple(wanted), {}
    problems = {key: _head_problem(key, *outputs[key]) for key in sorted(outputs)}
    heads = tuple(key for key, why in problems.items() if not why)
    left_out = {key: why for key, why in problems.items() if why}
    if not heads:
        reasons = "; ".join(f"{key!r}: {why}" for key, why in left_out.items())
        raise SignatureError(f"signature {signature!r}: no output can be a head; {reasons}")
    return heads, left_out
