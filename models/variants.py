"""Variants of a package's graph: the same scores, computed another way. No file access here.

A variant may have two graphs. `user` runs once a request and shares its tensors with `file`, the items' graph, which
runs once a slice; without `user` there is one graph. Both read inputs of the package's plain graph by name.
"""

from collections.abc import Collection, Iterator, Mapping

from pydantic import BaseModel, ConfigDict

__all__ = ["PLAIN", "SharedTensor", "Strict", "UserGraph", "Variant", "VariantHead", "variant_problems"]

PLAIN = "plain"
"""What the package's graph as the framework wrote it is called among variants."""


class Strict(BaseModel):
    """Base of whatever a manifest holds: nothing unknown, nothing converted."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SharedTensor(Strict):
    """A float32 tensor, shape with leading 1: output `name` of the user's graph, fed to the items' under that name."""

    name: str
    shape: tuple[int, ...]


class VariantHead(Strict):
    """A score a candidate: float32 [n] at tensor `name`; row `row` of float32 [heads, n] when heads come packed."""

    head: str
    name: str
    row: int | None = None


class UserGraph(Strict):
    """A graph of what depends on user and context alone, and the inputs that it reads."""

    file: str
    inputs: tuple[str, ...]


class Variant(Strict):
    """Another way to the scores: the items' graph, what it reads and gives, and the user's graph if there is one."""

    name: str
    file: str
    inputs: tuple[str, ...]
    heads: tuple[VariantHead, ...]
    user: UserGraph | None = None
    shared: tuple[SharedTensor, ...] = ()

    @property
    def packed(self) -> bool:
        """Whether all heads are rows of one tensor."""
        return self.heads[0].row is not None

    @property
    def files(self) -> tuple[str, ...]:
        """The graphs' files."""
        return (self.file,) if self.user is None else (self.file, self.user.file)


def variant_problems(variants: Collection[Variant], sides: Mapping[str, str], heads: Collection[str]) -> Iterator[str]:
    """What contradicts the plain graph: `sides` are its inputs' by name, `heads` its heads in order."""
    names = [variant.name for variant in variants]
    if len(set(names)) != len(names) or PLAIN in names:
        yield f"variants: names must differ from each other and from {PLAIN!r}, got {names}"
    for variant in variants:
        where = f"variants[{variant.name}]"
        yield from (f"{where}.{problem}" for problem in _input_problems(variant, sides))
        yield from (f"{where}.{problem}" for problem in _head_problems(variant, heads))


def _input_problems(variant: Variant, sides: Mapping[str, str]) -> Iterator[str]:
    read = {"inputs": variant.inputs, "user.inputs": variant.user.inputs if variant.user else ()}
    for where, names in read.items():
        if len(set(names)) != len(names):
            yield f"{where}: a name appears twice"
        yield from (f"{where}: {name!r} is no input of the plain graph" for name in names if name not in sides)
    for name in read["user.inputs"]:
        if sides.get(name) == "item":
            yield f"user.inputs: {name!r} is of the item side"
    shared = [tensor.name for tensor in variant.shared]
    if (variant.user is None) != (not shared):
        yield "shared: tensors are shared by a user's graph, and only by one"
    if len(set(shared)) != len(shared) or set(shared) & set(sides):
        yield "shared: a name appears twice, or is an input's"
    for tensor in variant.shared:
        if tensor.shape[:1] != (1,) or min(tensor.shape) < 1:
            yield f"shared[{tensor.name}]: shape {list(tensor.shape)} must start with 1 and be positive"


def _head_problems(variant: Variant, heads: Collection[str]) -> Iterator[str]:
    if [head.head for head in variant.heads] != list(heads):
        yield f"heads: {[head.head for head in variant.heads]}, the plain graph has {list(heads)}"
        return
    rows = [head.row for head in variant.heads]
    packed = rows == list(range(len(rows))) and len({head.name for head in variant.heads}) == 1
    if any(row is not None for row in rows) and not packed:
        yield f"heads: rows {rows} of {sorted({head.name for head in variant.heads})}; packed heads are the rows of one"
