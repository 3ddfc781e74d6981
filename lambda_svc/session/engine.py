"""The contract between the service and an engine: load a graph, get something a Pipeline can run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

__all__ = ["PRECISIONS", "Engine", "Executable", "GraphSignature", "LoadedGraph", "TensorSpec"]

PRECISIONS = ("f32", "bf16")  # what products are computed in; feeds and scores are float32 in both


@dataclass(frozen=True)
class TensorSpec:
    """One input: its name in the graph ("history_item_rows:0"), dtype ("f32", "i64" or "i32") and shape.

    A leading -1 stands for the number of candidates; inputs of the user and context sides lead with 1.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class GraphSignature:
    """Inputs in the order they are fed, and names of float32 outputs.

    `shapes` are the outputs' shapes: (-1,) for a score a candidate, which the graph may have as [n, 1]; (heads, -1) for
    packed heads; a fixed one for what a user's graph shares. Empty means a score a candidate for each.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...] = ()

    def fetches(self) -> list[tuple[str, list[int]]]:
        """(name, shape) of every output."""
        shapes = self.shapes or ((-1,),) * len(self.outputs)
        return [(name, list(shape)) for name, shape in zip(self.outputs, shapes, strict=True)]


class Executable(Protocol):
    """A loaded graph. Thread-safe."""

    @property
    def capsule(self) -> object:
        """PyCapsule "lambda_svc.Executable.1" for a Pipeline."""

    def run(self, feeds: Sequence[np.ndarray], rows: int) -> tuple[np.ndarray, int]:
        """Runs once. Returns float32 [heads, rows] and the bytes of feeds that had to be copied. Raises EngineError."""

    def fetch(self, feeds: Sequence[np.ndarray], rows: int) -> tuple[list[np.ndarray], int]:
        """The same for outputs of any shape: a float32 array for each."""


@dataclass(frozen=True)
class LoadedGraph:
    """A graph in an engine, with what a response says about it.

    callback: whether each run calls back into Python, and so waits for the GIL.
    """

    executable: Executable
    signature: GraphSignature
    engine: str
    precision: str
    callback: bool = False

    @property
    def capsule(self) -> object:
        """The executable's capsule, for a Pipeline."""
        return self.executable.capsule


class Engine(Protocol):
    """A runtime for dense graphs. Its options are given to its constructor, fixed for all graphs it loads."""

    name: str
    version: str

    def load(self, graph: bytes, signature: GraphSignature) -> LoadedGraph:
        """Loads a graph in the engine's format: a frozen GraphDef, for ONNX Runtime an ONNX ModelProto.

        Raises EngineError naming what does not fit, EngineUnavailable.
        """
