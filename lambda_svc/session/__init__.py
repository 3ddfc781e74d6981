"""Engines that run dense graphs, the threads they may use and the streams they run on."""

from lambda_svc.session.engine import Engine, GraphSignature, LoadedGraph, TensorSpec
from lambda_svc.session.kinds import GRAPH_SUFFIX, KINDS, engine_versions, open_engine
from lambda_svc.session.onnxruntime import OnnxRuntimeEngine, OnnxRuntimeOptions
from lambda_svc.session.openvino import OpenVinoEngine, OpenVinoOptions
from lambda_svc.session.streams import Streams, StreamStats
from lambda_svc.session.tensorflow import TensorFlowEngine, TensorFlowOptions, find_library
from lambda_svc.session.threads import usable_cpus

__all__ = [
    "GRAPH_SUFFIX",
    "KINDS",
    "Engine",
    "GraphSignature",
    "LoadedGraph",
    "OnnxRuntimeEngine",
    "OnnxRuntimeOptions",
    "OpenVinoEngine",
    "OpenVinoOptions",
    "StreamStats",
    "Streams",
    "TensorFlowEngine",
    "TensorFlowOptions",
    "TensorSpec",
    "engine_versions",
    "find_library",
    "open_engine",
    "usable_cpus",
]
