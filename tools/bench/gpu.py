"""The dense part of zoo models on a GPU, in whatever engine here can use one. Untested on GPU.

Everything behind the lookups runs on the card, in as many lanes as named: virtual devices (TensorFlow) or sessions with
a stream of their own (ONNX Runtime with CUDA or TensorRT). `gpu.ms` is one request alone, `gpu.requests_s` as many
callers as lanes, `gpu.cpu_ms` OpenVINO on the CPU in the same run; `gpu.products_elsewhere` counts products that ran on
another device than their lane's. An engine that lacks a GPU is missing, with its own words. Ends within five minutes.
"""

from __future__ import annotations

from tools.bench.figures import Figure

__all__ = ["run"]


def run(quick: bool) -> list[Figure]:
    """Measures; --quick takes DIN at 500 candidates."""
    from tools.engines.gpu import measure  # imports tensorflow

    return measure(quick)
