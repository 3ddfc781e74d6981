"""What a loaded model reads and gives, as a package says it: features, slots, graph inputs and heads, read off a
signature. Imports tensorflow."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from feature_store.schema import Feature, Schema, Side
from feature_store.transforms import Slot

from .errors import SignatureError
from .loaders import FrozenModel, Signature, TensorSpec
from .package import GraphInput, Source, is_safe_name

__all__ = ["LoadedInput", "Reading", "head_outputs", "reading", "table_names"]

_DTYPES: Mapping[str, Literal["f32", "i64", "i32"]] = {"float32": "f32", "int64": "i64", "int32": "i32"}
_HEAD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True)
class LoadedInput:
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


@dataclass(frozen=True)
class Reading:
    """The inputs of a signature that its scores depend on, in the order of their names."""

    inputs: tuple[LoadedInput, ...]

    @property
    def schema(self) -> Schema:
        """A feature for each input, called as it."""
        return Schema(tuple(entry.feature for entry in self.inputs))

    @property
    def slots(self) -> tuple[Slot, ...]:
        """A slot for each feature, called as it, without transforms."""
        return tuple(Slot(entry.key, entry.key) for entry in self.inputs)

    def graph_inputs(self, frozen: FrozenModel, tables: Mapping[str, str]) -> Iterator[GraphInput]:
        """What is fed: the inputs that the graph still reads, and the rows of what was cut. `tables` names each cut
        variable's table."""
        for entry in self.inputs:
            node = frozen.placeholders[entry.key]
            if entry.key in frozen.inputs:
                yield GraphInput(name=f"{node}:0", dtype=entry.fed, shape=entry.shape, side=entry.side,
                                 source=Source(kind="values", slot=entry.key))
            for cut in frozen.cuts:
                if cut.ids == node:
                    yield GraphInput(name=f"{cut.input}:0", dtype="f32", shape=(*entry.shape, cut.shape[-1]),
                                     side=entry.side,
                                     source=Source(kind="rows", slot=entry.key, table=tables[cut.variable]))


def reading(frozen: FrozenModel, user: Collection[str] = (), context: Collection[str] = ()) -> Reading:
    """What a frozen signature reads; inputs are of the item side but for those named.

    Raises SignatureError naming the input that no feature can feed, and what would do.
    """
    signature, sides = frozen.signature, {**dict.fromkeys(context, "context"), **dict.fromkeys(user, "user")}
    for key in sides:
        if key not in signature.inputs:
            raise SignatureError(f"signature {signature.name!r}: {key!r} came as an input of the {sides[key]} side, "
                                 f"expected some of {sorted(signature.inputs)}")
    pooled = [cut for cut in frozen.cuts if cut.mode != "rows"]
    if pooled:
        raise SignatureError(f"signature {signature.name!r}: the ids {pooled[0].ids!r} are pooled by bags that come as "
                             "an input of their own, which no feature can be; export it with models.export.Servable")
    looked_up = {cut.ids for cut in frozen.cuts}
    read = [key for key, node in sorted(frozen.placeholders.items()) if key in frozen.inputs or node in looked_up]
    entries = tuple(_input(signature, key, sides.get(key, "item")) for key in read)
    if not any(entry.side == "item" for entry in entries):
        raise SignatureError(f"signature {signature.name!r}: no input is of the item side, so that all candidates "
                             "would have one score")
    return Reading(entries)


def _input(signature: Signature, key: str, side: Side) -> LoadedInput:
    spec = signature.inputs[key]
    where = f"signature {signature.name!r}, input {key!r}"
    if spec.dtype not in _DTYPES:
        raise SignatureError(f"{where}: {spec.dtype} cannot be fed; expected one of {', '.join(_DTYPES)}")
    shape = spec.shape
    leads = (-1,) if side == "item" else (-1, 1)
    if shape is None or len(shape) not in (1, 2) or shape[0] not in leads or any(d < 1 for d in shape[1:]):
        came = "unknown rank" if shape is None else f"shape {list(shape)}"
        once = "" if side != "item" or shape is None or shape[:1] != (1,) else "; is it of the user side?"
        raise SignatureError(f"{where}: {came}; expected [-1] or [-1, width], a row a candidate{once}")
    return LoadedInput(key, side, _DTYPES[spec.dtype], shape[1] if len(shape) == 2 else None,
                       side != "item" and shape[0] == -1)


def head_outputs(signature: Signature, wanted: Collection[str] = ()) -> tuple[dict[str, str], dict[str, str]]:
    """({head: output}, {output that is no head: why}). Heads are the outputs of one float32 a candidate, or those
    `wanted`. Raises SignatureError for a wanted one that cannot be a head, and when none can."""
    outputs = signature.outputs
    for key in wanted:
        problem = "there is no such output" if key not in outputs else _no_head(key, outputs[key])
        if problem:
            raise SignatureError(f"signature {signature.name!r}, output {key!r}: {problem}; outputs: "
                                 f"{', '.join(sorted(outputs))}")
    left_out = {key: _no_head(key, spec) for key, spec in sorted(outputs.items()) if not wanted}
    left_out = {key: why for key, why in left_out.items() if why}
    heads = {key: key for key in wanted or sorted(outputs) if key not in left_out}
    if not heads:
        reasons = "; ".join(f"{key!r}: {why}" for key, why in left_out.items())
        raise SignatureError(f"signature {signature.name!r}: no output can be a head; {reasons}")
    return heads, left_out


def _no_head(key: str, spec: TensorSpec) -> str:
    if spec.dtype != "float32":
        return f"{spec.dtype} came, expected float32"
    if spec.shape is not None and (not 1 <= len(spec.shape) <= 2 or spec.shape[1:] not in ((), (1,), (-1,))):
        return f"shape {list(spec.shape)} came, expected [-1] or [-1, 1]"
    if not _HEAD.fullmatch(key):
        return "a head's name is of letters, digits and '_', no digit first, so that formulas can name it"
    return ""


def table_names(frozen: FrozenModel) -> dict[str, str]:
    """A table's name for each variable that was cut."""
    names: dict[str, str] = {}
    for variable in sorted(frozen.tables):
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", variable).strip("_")[:100] or "table"
        while plain in names.values() or not is_safe_name(plain):
            plain += "_"
        names[variable] = plain
    return names
