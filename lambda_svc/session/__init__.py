"""Engines that run dense graphs, the threads they may use and the streams they run on."""

from lambda_svc.session.engine import Engine, GraphSignature, LoadedGraph, TensorSpec
from lambda_svc.session.streams import Streams, StreamStats
from lambda_svc.session.tensorflow import TensorFlowEngine, TensorFlowOptions, find_library
from lambda_svc.session.threads import usable_cpus

__all__ = [
    "Engine",
    "GraphSignature",
    "LoadedGraph",
    "StreamStats",
    "Streams",
    "TensorFlowEngine",
    "TensorFlowOptions",
    "TensorSpec",
    "find_library",
    "usable_cpus",
]
