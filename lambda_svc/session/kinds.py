"""The engines there are, by the name that a configuration and a response give them."""

from __future__ import annotations

from lambda_svc.errors import ConfigError, EngineUnavailable
from lambda_svc.session.engine import Engine
from lambda_svc.session.onnxruntime import CPU_PROVIDERS, GPU_PROVIDERS, OnnxRuntimeEngine, OnnxRuntimeOptions
from lambda_svc.session.openvino import OpenVinoEngine, OpenVinoOptions
from lambda_svc.session.tensorflow import TensorFlowEngine, TensorFlowOptions

__all__ = ["GRAPH_SUFFIX", "KINDS", "engine_versions", "open_engine"]

# The file of a package's graph that an engine loads, by its suffix.
GRAPH_SUFFIX = {"tensorflow": ".pb", "openvino": ".pb", "onnxruntime": ".onnx"}
KINDS = tuple(GRAPH_SUFFIX)


def open_engine(kind: str, precision: str = "f32", lanes: int = 1, threads: int = 0, device: str = "cpu",
                device_bytes_max: int = 0) -> Engine:
    """The engine called `kind` for graphs in `precision` on `device`, "cpu" or "gpu".

    lanes: runs of one graph at once; threads: of all of them together, 0 as many as the process may use;
    device_bytes_max: memory of a card that the lanes share out, 0 for what there is. Raises EngineUnavailable when it
    is not installed, ConfigError for a precision or a device that it does not offer.
    """
    if kind == "tensorflow":
        placed = {"lanes": lanes, "device": device, "device_bytes_max": device_bytes_max} if device != "cpu" else {}
        return TensorFlowEngine(options=TensorFlowOptions(intra_op_threads=threads, precision=precision, **placed))
    if kind == "openvino":
        if device != "cpu":
            raise ConfigError(f"device: got {device!r}; engine openvino computes on the CPU only")
        return OpenVinoEngine(OpenVinoOptions(precision=precision, lanes=lanes, threads=threads))
    if kind == "onnxruntime":
        providers = GPU_PROVIDERS if device == "gpu" else CPU_PROVIDERS
        return OnnxRuntimeEngine(OnnxRuntimeOptions(precision, lanes, threads, providers, device_bytes_max))
    raise ConfigError(f"engine: got {kind!r}; expected one of {', '.join(KINDS)}")


def engine_versions() -> dict[str, str]:
    """The versions of the engines that are installed here and can be used."""
    found = {}
    for kind in KINDS:
        try:
            found[kind] = open_engine(kind).version
        except EngineUnavailable:
            continue
    return found
