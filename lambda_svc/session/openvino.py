"""OpenVINO through its C API: the library is found without importing the Python package, and opened by path."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from lambda_svc._core import OpenVinoExecutable, OpenVinoLibrary
from lambda_svc.errors import ConfigError, EngineUnavailable
from lambda_svc.session.engine import PRECISIONS, GraphSignature, LoadedGraph
from lambda_svc.session.frozen_graph import cut_to
from lambda_svc.session.threads import usable_cpus

__all__ = ["OpenVinoEngine", "OpenVinoOptions", "find_library"]


@dataclass(frozen=True)
class OpenVinoOptions:
    """How graphs are compiled.

    lanes: runs at once, each with its share of `threads`; 0 threads mean as many as the process may use.
    """

    precision: str = "f32"
    lanes: int = 1
    threads: int = 0

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision: got {self.precision!r}; expected one of {PRECISIONS}")
        if self.lanes < 1 or self.threads < 0:
            raise ConfigError(f"lanes, threads: got {self.lanes}, {self.threads}; expected at least 1 and 0")


def find_library() -> Path:
    """The path of libopenvino_c.so.* in the wheel. Raises EngineUnavailable when there is none."""
    spec = find_spec("openvino")
    folders = [] if spec is None else [Path(folder) / "libs" for folder in spec.submodule_search_locations or []]
    for folder in folders:
        for path in sorted(folder.glob("libopenvino_c.so*")):
            return path
    where = ", ".join(map(str, folders)) or "no folder, the package is not installed"
    raise EngineUnavailable(f"OpenVINO's library was not found (looked in {where}); pip install 'lambda-svc[openvino]'")


class OpenVinoEngine:
    """Compiles frozen graphs for this CPU, the number of candidates left open.

    int64 inputs are computed in 32 bits; a run with a value beyond them is refused. Raises EngineUnavailable when the
    library cannot be used here.
    """

    name = "openvino"

    def __init__(self, options: OpenVinoOptions | None = None) -> None:
        self.options = options or OpenVinoOptions()
        self._library = OpenVinoLibrary(str(find_library()))
        self.version: str = self._library.version.partition("-")[0]

    def load(self, graph: bytes, signature: GraphSignature) -> LoadedGraph:
        """Loads a frozen GraphDef. Raises EngineError naming the input or output that does not fit."""
        cut = cut_to(graph, signature)
        executable = OpenVinoExecutable(
            self._library,
            cut.graph,
            [(spec.name, spec.dtype, list(spec.shape)) for spec in signature.inputs],
            list(cut.read),
            [(name, fetch, shape) for (name, shape), fetch in zip(signature.fetches(), cut.fetches)],
            precision=self.options.precision,
            lanes=self.options.lanes,
            threads=self.options.threads or usable_cpus(),
        )
        return LoadedGraph(executable, signature, f"{self.name} {self.version}", self.options.precision)
