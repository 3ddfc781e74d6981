"""TensorFlow through its C API: the library is found without importing the Python package, and opened by path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from lambda_svc._core import TensorFlowExecutable, TensorFlowLibrary, keep_freed_memory
from lambda_svc.errors import ConfigError, EngineUnavailable
from lambda_svc.proto.tf_config_pb2 import RunOptions, SessionConfig
from lambda_svc.session.engine import PRECISIONS, GraphSignature, LoadedGraph
from lambda_svc.session.threads import usable_cpus

__all__ = ["TensorFlowEngine", "TensorFlowOptions", "find_library"]

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
    """

    intra_op_threads: int = 0
    inter_op_threads: int = 1
    executor: str = "SINGLE_THREADED_EXECUTOR"
    device_count: dict[str, int] = field(default_factory=dict)
    precision: str = "f32"
    xla: bool = False

    def __post_init__(self) -> None:
        if min(self.intra_op_threads, self.inter_op_threads) < 0:
            raise ConfigError(
                f"thread counts: got {self.intra_op_threads} and {self.inter_op_threads}; expected 0 or more"
            )
        if self.executor not in EXECUTORS:
            raise ConfigError(f"executor: got {self.executor!r}; expected one of {EXECUTORS}")
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision: got {self.precision!r}; expected one of {PRECISIONS}")

    def config_proto(self) -> bytes:
        """A serialised tensorflow.ConfigProto."""
        return SessionConfig(
            device_count=self.device_count,
            intra_op_parallelism_threads=self.intra_op_threads or usable_cpus(),
            inter_op_parallelism_threads=self.inter_op_threads or usable_cpus(),
            graph_options=SessionConfig.GraphOptions(
                optimizer_options=SessionConfig.OptimizerOptions(global_jit_level=int(self.xla)),
                rewrite_options=SessionConfig.RewriterConfig(
                    auto_mixed_precision_onednn_bfloat16=int(self.precision == "bf16")
                ),
            ),
            # What XLA puts into a graph has old control flow, which the single-threaded executor refuses.
            experimental=SessionConfig.Experimental(executor_type="" if self.xla else self.executor),
        ).SerializeToString(deterministic=True)

    def run_options(self) -> bytes:
        """A serialised tensorflow.RunOptions: the graph runs in the thread that asked."""
        return RunOptions(inter_op_thread_pool=-1).SerializeToString(deterministic=True)


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
        """Loads a GraphDef: a frozen one, or one whose nodes `once`, run now in that order, restore its variables and
        fill its tables. Raises EngineError naming the input or output that does not fit, or the node that fails."""
        executable = TensorFlowExecutable(
            self._library,
            graph,
            [(spec.name, spec.dtype, list(spec.shape)) for spec in signature.inputs],
            signature.fetches(),
            self._options_for(graph).config_proto(),
            self.options.run_options(),
            **({"once": list(once)} if once else {}),
        )
        return LoadedGraph(executable, signature, f"{self.name} {self.version}", self.options.precision)
