"""TensorFlow through its C API: the library is found without importing the Python package, and opened by path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from lambda_svc._core import TensorFlowExecutable, TensorFlowLibrary, keep_freed_memory
from lambda_svc.errors import ConfigError, EngineError, EngineUnavailable
from lambda_svc.proto.tf_config_pb2 import RunOptions, SessionConfig
from lambda_svc.session.engine import PRECISIONS, GraphSignature, LoadedGraph
from lambda_svc.session.threads import usable_cpus

__all__ = ["TensorFlowEngine", "TensorFlowOptions", "find_library"]

DEVICES = ("cpu", "gpu")
EXECUTORS = ("SINGLE_THREADED_EXECUTOR", "")
# Old control flow, and tensors by reference: the single-threaded executor refuses them.
_DEFAULT_EXECUTOR_OPS = ("Switch", "RefSwitch", "Merge", "Enter", "Exit", "HashTable", "Variable", "VariableV2")
_OP_FIELDS = tuple(b"\x12" + bytes([len(op)]) + op.encode() for op in _DEFAULT_EXECUTOR_OPS)  # of a NodeDef


@dataclass(frozen=True)
class TensorFlowOptions:
    """How sessions run. Thread counts of 0 mean as many as the process may use.

    The intra-op pool is shared by all sessions of the process and sized by the first one. The single-threaded executor
    runs a small graph in a tenth of the default one's time; kernels still use the intra-op pool. `precision` bf16 has
    grappler rewrite what tolerates it. `xla` compiles clusters of the graph, again for each number of candidates; it
    needs the default executor and an environment variable read by the process's first session (docs/performance.md).

    `lanes` above 0 put a copy of the graph on each of as many devices, on which one run at a time goes from start to
    end: virtual devices of one card for `device` gpu, which share out `device_bytes_max`, or logical ones of the CPU.
    With 0 there is no placement, and runs go side by side on the CPU. The first session of a process decides what
    virtual devices there are. Untested on GPU.
    """

    intra_op_threads: int = 0
    inter_op_threads: int = 1
    executor: str = "SINGLE_THREADED_EXECUTOR"
    device_count: dict[str, int] = field(default_factory=dict)
    precision: str = "f32"
    xla: bool = False
    lanes: int = 0
    device: str = "cpu"
    device_bytes_max: int = 0

    def __post_init__(self) -> None:
        if min(self.intra_op_threads, self.inter_op_threads) < 0:
            raise ConfigError(
                f"thread counts: got {self.intra_op_threads} and {self.inter_op_threads}; expected 0 or more"
            )
        if self.executor not in EXECUTORS:
            raise ConfigError(f"executor: got {self.executor!r}; expected one of {EXECUTORS}")
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision: got {self.precision!r}; expected one of {PRECISIONS}")
        self._check_lanes()

    def _check_lanes(self) -> None:
        if self.device not in DEVICES:
            raise ConfigError(f"device: got {self.device!r}; expected one of {DEVICES}")
        if min(self.lanes, self.device_bytes_max) < 0:
            raise ConfigError(f"lanes, device_bytes_max: got {self.lanes} and {self.device_bytes_max}; expected 0 or "
                              "more")
        if self.device == "cpu":
            return
        if self.lanes == 0 or (self.lanes > 1 and not self.device_bytes_max):
            raise ConfigError(f"lanes, device_bytes_max: got {self.lanes} and {self.device_bytes_max}; on a GPU "
                              "expected at least one lane, and with several the memory that they share out")
        if self.precision != "f32":
            raise ConfigError(f"precision: got {self.precision!r}; on a GPU TensorFlow's graphs run in 'f32' only")

    def devices(self) -> list[str]:
        """Each lane's device as TensorFlow names it."""
        return [f"/device:{self.device.upper()}:{lane}" for lane in range(self.lanes)]

    def config_proto(self) -> bytes:
        """A serialised tensorflow.ConfigProto."""
        return SessionConfig(
            device_count={"CPU": self.lanes} if self.device == "cpu" and self.lanes else self.device_count,
            gpu_options=self._gpu_options(),
            intra_op_parallelism_threads=self.intra_op_threads or usable_cpus(),
            inter_op_parallelism_threads=max(self.inter_op_threads or usable_cpus(), 2 * self.lanes),
            graph_options=SessionConfig.GraphOptions(
                optimizer_options=SessionConfig.OptimizerOptions(global_jit_level=int(self.xla)),
                rewrite_options=SessionConfig.RewriterConfig(
                    auto_mixed_precision_onednn_bfloat16=int(self.precision == "bf16")
                ),
            ),
            experimental=SessionConfig.Experimental(executor_type=self._executor()),
        ).SerializeToString(deterministic=True)

    def _gpu_options(self) -> SessionConfig.GpuOptions | None:
        if self.device == "cpu":
            return None
        if not self.device_bytes_max:
            return SessionConfig.GpuOptions(allow_growth=True)
        limits = [self.device_bytes_max / self.lanes / 2**20] * self.lanes
        virtual = SessionConfig.VirtualDevices(memory_limit_mb=limits)
        return SessionConfig.GpuOptions(experimental=SessionConfig.GpuExperimental(virtual_devices=[virtual]))

    def run_options(self) -> bytes:
        """A serialised tensorflow.RunOptions: the graph runs in the thread that asked, or on lanes, where parts of it
        wait for each other, in the session's threads."""
        return RunOptions(inter_op_thread_pool=0 if self.lanes else -1).SerializeToString(deterministic=True)

    def _executor(self) -> str:
        """What XLA puts into a graph has old control flow, which the single-threaded executor refuses; and between
        devices it waits forever for what it would have to run itself."""
        return "" if self.xla or self.lanes else self.executor


def find_library() -> tuple[Path, Path]:
    """Paths of libtensorflow_cc.so.2 and libtensorflow_framework.so.2. Raises EngineUnavailable when there are none."""
    spec = find_spec("tensorflow")
    folders = [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations or []]
    for folder in folders:
        paths = folder / "libtensorflow_cc.so.2", folder / "libtensorflow_framework.so.2"
        if all(path.is_file() for path in paths):
            return paths
    where = ", ".join(map(str, folders)) or "no folder, the package is not installed"
    raise EngineUnavailable(f"TensorFlow's library was not found (looked in {where}); pip install tensorflow-cpu")


class TensorFlowEngine:
    """Loads frozen graphs into TensorFlow sessions. Raises EngineUnavailable when the library cannot be used here."""

    name = "tensorflow"

    def __init__(self, intra_op_threads: int = 0, options: TensorFlowOptions | None = None) -> None:
        self.options = options or TensorFlowOptions(intra_op_threads=intra_op_threads)
        # Its start-up notices go to stderr by default; errors still do.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
        if self.options.xla:
            os.environ.setdefault("TF_XLA_FLAGS", "--tf_xla_cpu_global_jit")
        keep_freed_memory(usable_cpus())
        cc, framework = find_library()
        self._library = TensorFlowLibrary(str(cc), str(framework))
        self.version: str = self._library.version

    def _options_for(self, graph: bytes) -> TensorFlowOptions:
        # Bytes of a weight may look like such an op: then a graph is run by the other executor, to the same scores.
        return replace(self.options, executor="") if any(field in graph for field in _OP_FIELDS) else self.options

    def load(self, graph: bytes, signature: GraphSignature, once: Sequence[str] = ()) -> LoadedGraph:
        """Loads a GraphDef, a copy for each lane: a frozen one, or one whose nodes `once`, run now in that order,
        restore its variables and fill its tables.

        Raises EngineError naming the input or output that does not fit, the node that fails or the memory that is
        short, EngineUnavailable naming a device that is missing.
        """
        lanes, budget = self.options.lanes, self.options.device_bytes_max
        if budget and lanes * len(graph) > budget:
            raise EngineError(f"device_bytes_max: got {budget}; {lanes} lanes with a graph of {len(graph)} bytes each "
                              f"need {lanes * len(graph)}")
        executable = TensorFlowExecutable(
            self._library,
            graph,
            [(spec.name, spec.dtype, list(spec.shape)) for spec in signature.inputs],
            signature.fetches(),
            self._options_for(graph).config_proto(),
            self.options.run_options(),
            list(once),
            self.options.devices(),
        )
        return LoadedGraph(executable, signature, f"{self.name} {self.version}", self.options.precision)
