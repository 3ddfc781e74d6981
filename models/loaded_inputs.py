"""What a loaded model reads and gives, as a package says it: features, slots, graph inputs and heads, read off a
signature. Imports tensorflow."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from feature_store.schema import Schema
from feature_store.transforms import Slot

from .errors import SignatureError
from .loaders import FrozenModel, Signature
from .package import GraphInput, Source, is_safe_name
from .signature_input import SignatureInput, choose_heads, sides_of, signature_input

__all__ = ["Reading", "head_outputs", "reading", "table_names"]


@dataclass(frozen=True)
class Reading:
    """The inputs of a signature that its scores depend on, in the order of their names."""

    inputs: tuple[SignatureInput, ...]

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
    signature = frozen.signature
    sides = sides_of(signature.name, signature.inputs, user, context)
    pooled = [cut for cut in frozen.cuts if cut.mode != "rows"]
    if pooled:
        raise SignatureError(f"signature {signature.name!r}: the ids {pooled[0].ids!r} are pooled by bags that come as "
                             "an input of their own, which no feature can be; export it with models.export.Servable")
    looked_up = {cut.ids for cut in frozen.cuts}
    read = [key for key, node in sorted(frozen.placeholders.items()) if key in frozen.inputs or node in looked_up]
    entries = tuple(signature_input(signature.name, key, signature.inputs[key].dtype, signature.inputs[key].shape,
                                    sides[key]) for key in read)
    if not any(entry.side == "item" for entry in entries):
        raise SignatureError(f"signature {signature.name!r}: no input is of the item side, so that all candidates "
                             "would have one score")
    return Reading(entries)


def head_outputs(signature: Signature, wanted: Collection[str] = ()) -> tuple[tuple[str, ...], dict[str, str]]:
    """(heads, {output that is no head: why}); see choose_heads."""
    return choose_heads(signature.name, {key: (spec.dtype, spec.shape) for key, spec in signature.outputs.items()},
                        wanted)


def table_names(frozen: FrozenModel) -> dict[str, str]:
    """A table's name for each variable that was cut."""
    names: dict[str, str] = {}
    for variable in sorted(frozen.tables):
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", variable).strip("_")[:100] or "table"
        while plain in names.values() or not is_safe_name(plain):
            plain += "_"
        names[variable] = plain
    return names
