"""The models of the zoo by name and size. Imports tensorflow."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import ConfigError
from ..export import Servable, build, dense_graph
from ..golden import golden_inputs, golden_table
from ..interface import Interface
from ..passes.dense import DenseGraph, DenseInput
from ..tensors import tensors
from .cross import CROSS
from .definition import Definition
from .din import DIN
from .din_long import DIN_LONG
from .dlrm import DLRM
from .fields import Field, interface_of, vocabulary_of
from .random_weights import ROW_STDDEV, randomise
from .requests import draw_request
from .two_tower import TWO_TOWER

__all__ = ["NAMES", "SIZES", "Feeds", "ZooEntry", "dense", "get"]

_DEFINITIONS = {d.name: d for d in (TWO_TOWER, DIN, DIN_LONG, CROSS, DLRM)}
NAMES = tuple(_DEFINITIONS)
SIZES = ("small", "base", "large")
GOLDEN_REQUESTS, GOLDEN_CANDIDATES = 6, 16
_DENSE_ROWS = 2

Feeds = Callable[[int, np.random.Generator], dict[str, np.ndarray]]
"""feeds(n, rng) -> the inputs of a DenseGraph by name, for one user and n candidates."""


@dataclass(frozen=True)
class ZooEntry:
    """A model of the zoo at one size."""

    definition: Definition
    size: str

    @property
    def name(self) -> str:
        """The model's name in a repository, such as din_base."""
        return f"{self.definition.name}_{self.size}"

    @property
    def config(self) -> Any:
        """The config of the size."""
        return self.definition.sizes[self.size]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """What the model reads."""
        return self.definition.fields(self.config)

    @cached_property
    def interface(self) -> Interface:
        """The same as features, slots and inputs."""
        return interface_of(self.fields)

    def servable(self, seed: int = 0) -> Servable:
        """The model with random weights drawn from `seed`, and golden rows of random requests."""
        return self._servable(self.fields, seed)

    def dense(self, seed: int = 0) -> tuple[DenseGraph, Feeds]:
        """The dense part alone, as `servable` has it, and random feeds for it: rows come as float32 inputs, so that no
        table is needed; histories are full."""
        servable = self._servable(tuple(replace(f, rows=_DENSE_ROWS) if f.looked_up else f for f in self.fields), seed)
        graph = dense_graph(servable, build(servable))
        buckets = {f"{field.name}:0": field.rows for field in self.fields if field.kind == "bucket"}
        lengths = {f"{field.name}_length:0": field.length for field in self.fields if field.kind == "sequence"}

        def feed(entry: DenseInput, n: int, rng: np.random.Generator) -> np.ndarray:
            shape = [n if d == -1 else d for d in entry.shape]
            if entry.name in buckets:
                return rng.integers(0, buckets[entry.name], shape)
            if entry.name in lengths:
                return np.full(shape, lengths[entry.name], np.int32)
            return rng.normal(0.0, ROW_STDDEV, shape).astype(np.float32)

        return graph, lambda n, rng: {entry.name: feed(entry, n, rng) for entry in graph.inputs}

    def _servable(self, fields: tuple[Field, ...], seed: int) -> Servable:
        network = self.definition.network(self.config, fields)
        network.serve(tensors(_zeros(self.interface)))
        randomise(network, seed)
        vocabularies = {field.source: vocabulary_of(field.source, field.rows) for field in fields if field.looked_up}

        def golden() -> tuple[pa.Table, dict[str, np.ndarray]]:
            requests = [draw_request(fields, GOLDEN_CANDIDATES, np.random.default_rng([seed, group]), empty=group == 0)
                        for group in range(GOLDEN_REQUESTS)]
            groups = [golden_table(self.interface.schema, request.records(g)) for g, request in enumerate(requests)]
            scores = [network.serve(tensors(golden_inputs(rows, self.interface, vocabularies, one_user=True)))
                      for rows in groups]
            by_head = {head: np.concatenate([one[head].numpy() for one in scores]) for head in network.heads}
            return pa.concat_tables(groups), by_head

        notes = {"weights": "random", "scenario": self.definition.scenario, "seed": seed}
        return Servable(self.name, self.interface, network.heads, network.serve, vocabularies, golden, notes)


def get(name: str, size: str = "base") -> ZooEntry:
    """The model of that name and size. Raises ConfigError for one that is not there, with the nearest that is."""
    if name not in _DEFINITIONS:
        close = get_close_matches(name, NAMES, n=1, cutoff=0.4)
        raise ConfigError(f"no zoo model is called {name!r}; " + (f"did you mean {close[0]!r}?" if close else
                                                                  f"there are {', '.join(NAMES)}"))
    if size not in SIZES:
        raise ConfigError(f"size is {size!r}; expected {', '.join(SIZES)}")
    return ZooEntry(_DEFINITIONS[name], size)


def dense(name: str, size: str = "base", seed: int = 0) -> tuple[DenseGraph, Feeds]:
    """The dense part of a zoo model, its plain graph, with random weights, and feeds for it; see ZooEntry.dense."""
    return get(name, size).dense(seed)


def _zeros(interface: Interface) -> dict[str, np.ndarray]:
    """One user and one candidate, whose every id is row 0 of its table."""
    dtypes = {"f32": np.float32, "i64": np.int64, "i32": np.int32}
    return {e.name: np.zeros([d or 1 for d in e.shape], dtypes[e.dtype]) for e in interface.inputs}
