"""The stock path, tuned: a plain graph in TensorFlow in f32, with each of the settings that a team would try.

The default executor runs independent operations side by side, through the framework's own Python session; the
single-threaded one runs through the C API, as the service does. TensorFlow sizes the pool that kernels share once in a
process, so what has another number of threads runs in a process of its own. oneDNN is on, as it is by default.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from lambda_svc.errors import EngineError
from lambda_svc.session import TensorFlowOptions, usable_cpus
from models.passes import DenseGraph

from .request import DenseRequest, Lane, aligned

__all__ = ["STOCK", "Elsewhere", "Setting", "settings", "stock_request"]

STOCK = "variant=stock"
_SINGLE, _DEFAULT = "single", "default"


class Setting(NamedTuple):
    """Threads of the kernels' pool, and the executor: "single" or "default"."""

    intra_op: int
    executor: str

    def __str__(self) -> str:
        """As figures name it."""
        return f"{STOCK},engine=tensorflow,precision=f32,intra_op={self.intra_op},executor={self.executor}"


def settings() -> tuple[Setting, ...]:
    """With all threads this process may use, and with one; both executors."""
    return tuple(Setting(threads, executor) for threads in sorted({1, usable_cpus()}, reverse=True)
                 for executor in (_SINGLE, _DEFAULT))


def stock_request(plain: DenseGraph, feeds: Mapping[str, np.ndarray], setting: Setting,
                  slice_rows: int = 0) -> Callable[[], Mapping[str, np.ndarray]]:
    """A request that returns {head: float32 [n]}, in this process. Raises EngineError, EngineUnavailable."""
    if setting.executor == _DEFAULT:
        return _session(plain, feeds, setting, slice_rows)
    options = TensorFlowOptions(intra_op_threads=setting.intra_op)
    return DenseRequest(plain, feeds, Lane("tensorflow", "f32", options), slice_rows).run


def _session(plain: DenseGraph, feeds: Mapping[str, np.ndarray], setting: Setting, slice_rows: int):
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(plain.item, name="")
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=setting.intra_op,
                                      inter_op_parallelism_threads=usable_cpus())
    names = {node.name for node in plain.item.node}
    read = [entry for entry in plain.inputs if entry.name.partition(":")[0] in names]
    fed = [aligned(feeds[entry.name]) for entry in read]
    n = max(len(value) for entry, value in zip(read, fed, strict=True) if entry.side == "item")
    session = tf.compat.v1.Session(graph=graph, config=config)
    call = session.make_callable(list(plain.outputs), [entry.name for entry in read])

    def run() -> dict[str, np.ndarray]:
        step = slice_rows or n
        parts = [call(*(value[first:first + step] if entry.side == "item" else value
                        for entry, value in zip(read, fed, strict=True))) for first in range(0, n, step)]
        values = [np.concatenate([part[i].reshape(-1) for part in parts]) for i in range(len(plain.outputs))]
        found = dict(zip(plain.outputs, values, strict=True))
        return {head.head: found[head.name] for head in plain.heads}

    return run


class Elsewhere:
    """A process that runs stock requests with a pool of its own size. Used as a context; ends with it."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there,), daemon=True)
        self._process.start()
        there.close()

    def __enter__(self) -> Elsewhere:
        return self

    def __exit__(self, *_: object) -> None:
        self._here.close()
        self._process.join(10)
        self._process.terminate()

    def load(self, plain: DenseGraph, feeds: Mapping[str, np.ndarray], setting: Setting,
             slice_rows: int = 0) -> Callable[[], float]:
        """A request that runs there and returns its seconds; the last one with the same setting is forgotten. Raises
        EngineError."""
        self._ask((setting, (plain, feeds, slice_rows)))
        return lambda: self._ask((setting, None))

    def _ask(self, question: tuple) -> float:
        try:
            self._here.send(question)
            answer = self._here.recv()
        except (EOFError, OSError) as error:
            raise EngineError(f"the process beside this one ended: {error or 'no reason'}") from error
        if isinstance(answer, str):
            raise EngineError(answer)
        return answer


def _serve(pipe) -> None:
    """Answers questions until the pipe closes: (setting, what to load) or (setting, None), run it; seconds or an error
    as text."""
    loaded: dict[Setting, Callable] = {}
    while True:
        try:
            setting, given = pipe.recv()
        except EOFError:
            return
        start = time.perf_counter()
        try:
            if given is None:
                loaded[setting]()
            else:
                loaded.pop(setting, None)
                loaded[setting] = stock_request(*given[:2], setting, given[2])
        except Exception as error:  # told to the process that asked
            pipe.send(f"{type(error).__name__}: {error}")
        else:
            pipe.send(time.perf_counter() - start)
