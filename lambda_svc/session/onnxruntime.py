"""ONNX Runtime: graphs that the export wrote as ONNX, run through its Python API.

Each run calls back into Python and takes the GIL for the hand-over, not for the computation; LoadedGraph.callback says
so. The package is imported when an engine is made, never before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np

from lambda_svc._core import PythonExecutable
from lambda_svc.errors import ConfigError, EngineError, EngineUnavailable
from lambda_svc.session.engine import GraphSignature, LoadedGraph, TensorSpec
from lambda_svc.session.threads import usable_cpus

__all__ = ["CPU_PROVIDERS", "GPU_PROVIDERS", "TENSORRT_PROVIDERS", "OnnxRuntimeEngine", "OnnxRuntimeOptions"]

CPU_PROVIDERS = ("CPUExecutionProvider",)
GPU_PROVIDERS = ("CUDAExecutionProvider",)
TENSORRT_PROVIDERS = ("TensorrtExecutionProvider", *GPU_PROVIDERS)
_TYPES = {"f32": "tensor(float)", "i64": "tensor(int64)", "i32": "tensor(int32)"}


@dataclass(frozen=True)
class OnnxRuntimeOptions:
    """How sessions run.

    lanes: sessions, each with its share of `threads`, on a GPU each with a stream of its own; 0 threads mean as many as
    the process may use. providers: what computes, best first; those for a GPU are untested. device_bytes_max: memory
    of the card that the lanes share out, 0 for what there is.
    """

    precision: str = "f32"
    lanes: int = 1
    threads: int = 0
    providers: tuple[str, ...] = CPU_PROVIDERS
    device_bytes_max: int = 0

    def __post_init__(self) -> None:
        if self.precision != "f32":
            raise ConfigError(f"precision: got {self.precision!r}; ONNX Runtime computes these graphs in 'f32' only, "
                              "its CPU kernels know no bf16 product")
        if self.lanes < 1 or min(self.threads, self.device_bytes_max) < 0:
            raise ConfigError(f"lanes, threads, device_bytes_max: got {self.lanes}, {self.threads} and "
                              f"{self.device_bytes_max}; expected at least 1, 0 and 0")
        if not self.providers:
            raise ConfigError("providers: got none; expected at least one")


class OnnxRuntimeEngine:
    """Loads ONNX models. Raises EngineUnavailable when the package or a provider that was asked for is missing."""

    name = "onnxruntime"

    def __init__(self, options: OnnxRuntimeOptions | None = None) -> None:
        self.options = options or OnnxRuntimeOptions()
        self._runtime = _import()
        self.version: str = self._runtime.__version__
        offered = self._runtime.get_available_providers()
        missing = [name for name in self.options.providers if name not in offered]
        if missing:
            raise EngineUnavailable(f"ONNX Runtime {self.version} has no {', '.join(missing)}; it has {offered}")
        share = self.options.device_bytes_max // self.options.lanes
        self._providers = [(name, {"gpu_mem_limit": share} if share and name in GPU_PROVIDERS else {})
                           for name in self.options.providers]

    def load(self, graph: bytes, signature: GraphSignature) -> LoadedGraph:
        """Loads a serialised ONNX ModelProto. Raises EngineError naming the input or output that does not fit."""
        if not signature.outputs:
            raise EngineError("outputs: got none; expected at least one head")
        sessions = [self._session(graph) for _ in range(self.options.lanes)]
        read = _read_inputs(sessions[0], signature)
        _check_outputs(sessions[0], signature)
        executable = PythonExecutable(
            _runner(sessions, read, signature),
            [(spec.name, spec.dtype, list(spec.shape)) for spec in signature.inputs],
            signature.fetches(),
        )
        return LoadedGraph(executable, signature, f"{self.name} {self.version}", self.options.precision, callback=True)

    def _session(self, graph: bytes) -> Any:
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = max(1, (self.options.threads or usable_cpus()) // self.options.lanes)
        options.inter_op_num_threads = 1
        # Threads that spin between runs take the cores from lookups and from other engines.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        try:
            session = self._runtime.InferenceSession(graph, options, providers=self._providers)
        except Exception as error:  # its exceptions have no common base but this
            raise EngineError(f"the graph does not load: {error}") from error
        # It goes on with the CPU, without a word, when a GPU's provider does not start.
        first, taken = self.options.providers[0], session.get_providers()
        if taken[0] != first:
            raise EngineUnavailable(f"ONNX Runtime {self.version} offers {first} and does not start it here; it took "
                                    f"{', '.join(taken)}")
        return session


def _import() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise EngineUnavailable(f"ONNX Runtime does not load: {error}; pip install 'lambda-svc[onnx]'") from error
    return onnxruntime


def _read_inputs(session: Any, signature: GraphSignature) -> tuple[bool, ...]:
    """Which of the signature's inputs the model has; one that no output depends on is not in it."""
    have = {node.name: node for node in session.get_inputs()}
    for name in have.keys() - {spec.name for spec in signature.inputs}:
        raise EngineError(f"input {name}: the graph needs it and the signature does not feed it")
    for spec in signature.inputs:
        if spec.dtype not in _TYPES:
            raise EngineError(f"input {spec.name}: dtype {spec.dtype}; expected f32, i64 or i32")
        if spec.name in have:
            _check_input(spec, have[spec.name])
    return tuple(spec.name in have for spec in signature.inputs)


def _check_input(spec: TensorSpec, node: Any) -> None:
    if node.type != _TYPES[spec.dtype]:
        raise EngineError(f"input {spec.name}: the graph has {node.type}; the signature says {spec.dtype}")
    shape = tuple(size if isinstance(size, int) else -1 for size in node.shape)
    fits = len(shape) == len(spec.shape) and all(mine in (-1, want) for mine, want in zip(shape, spec.shape))
    if not fits:
        raise EngineError(f"input {spec.name}: the graph has shape {list(shape)}; "
                          f"the signature says {list(spec.shape)}")


def _check_outputs(session: Any, signature: GraphSignature) -> None:
    have = {node.name: node for node in session.get_outputs()}
    for name in signature.outputs:
        if name not in have:
            raise EngineError(f"output {name}: the graph has no such node; it has {', '.join(sorted(have))}")
        if have[name].type != _TYPES["f32"]:
            raise EngineError(f"output {name}: the graph has {have[name].type}; expected float32, one score a row")


def _runner(sessions: Sequence[Any], read: Sequence[bool],
            signature: GraphSignature) -> Callable[[list[np.ndarray]], list[np.ndarray]]:
    """A function of the feeds that has a session to itself, and waits for one when all are taken."""
    free: SimpleQueue[Any] = SimpleQueue()
    for session in sessions:
        free.put(session)
    names, outputs = [spec.name for spec in signature.inputs], list(signature.outputs)

    def run(feeds: list[np.ndarray]) -> list[np.ndarray]:
        fed = {name: feed for name, feed, wanted in zip(names, feeds, read) if wanted}
        session = free.get()
        try:
            return session.run(outputs, fed)
        finally:
            free.put(session)

    return run
