"""The dense part of a model on its way through the passes: one graph, or a user's graph and the items' beside it.

A pass is a pure function; what it takes and returns is this. `plain` is where every chain starts: the frozen graph as
the framework wrote it, tables cut out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import tensorflow as tf

__all__ = ["DenseGraph", "DenseInput", "Head", "Side"]

Side = Literal["user", "context", "item"]


@dataclass(frozen=True)
class DenseInput:
    """One fed tensor: `name` with port ("item_rows:0"), dtype, shape.

    The leading dimension is -1 (candidates) on the item side, 1 on the user and context sides.
    """

    name: str
    dtype: Literal["f32", "i64", "i32"]
    shape: tuple[int, ...]
    side: Side


@dataclass(frozen=True)
class Head:
    """One score a candidate: float32 [n] (or [n, 1]) at tensor `name`; row `row` of float32 [heads, n] when packed."""

    head: str
    name: str
    row: int | None = None


@dataclass(frozen=True, eq=False)
class DenseGraph:
    """Graphs with their feeds and fetches.

    Attributes:
        item: runs once per slice of candidates.
        inputs: what a request feeds, to either graph: an input belongs to each graph that holds its placeholder.
        heads: the item graph's fetches.
        user: runs once per user, None when nothing was split off.
        shared: float32 tensors that `user` computes and `item` reads: tensor `name` of the user graph feeds the
            placeholder of the same name in the item graph. Leading dimension 1.
    """

    item: tf.compat.v1.GraphDef
    inputs: tuple[DenseInput, ...]
    heads: tuple[Head, ...]
    user: tf.compat.v1.GraphDef | None = None
    shared: tuple[DenseInput, ...] = ()

    @property
    def outputs(self) -> tuple[str, ...]:
        """The item graph's fetched tensors, each once, in the order of the heads."""
        return tuple(dict.fromkeys(head.name for head in self.heads))

    def graphs(self) -> Mapping[str, tf.compat.v1.GraphDef]:
        """The graphs by name, "user" first when there is one."""
        return ({} if self.user is None else {"user": self.user}) | {"item": self.item}
