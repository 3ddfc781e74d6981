"""The variants that an export makes of a plain graph: passes applied, scores compared. Imports tensorflow."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from .errors import ExportCheckError
from .passes import DenseGraph, apply
from .passes.dense import DenseInput
from .passes.graph import node_of
from .variants import SharedTensor, UserGraph, Variant, VariantHead

__all__ = ["Rewritten", "random_feeds", "rewritten", "run"]

_CANDIDATES = (1, 7, 64)


@dataclass(frozen=True, eq=False)
class Rewritten:
    """A variant, and its graphs."""

    entry: Variant
    dense: DenseGraph

    def write(self, directory: Path, onnx: Mapping[str, bytes] | None = None) -> None:
        """Writes the graphs below a package's folder; `onnx` are the same as serialised ModelProtos by part."""
        graphs = self.dense.graphs()
        for part, file in zip(reversed(graphs), self.entry.files, strict=True):
            (directory / file).parent.mkdir(parents=True, exist_ok=True)
            (directory / file).write_bytes(graphs[part].SerializeToString(deterministic=True))
            if onnx is not None:
                (directory / file).with_suffix(".onnx").write_bytes(onnx[part])


def rewritten(plain: DenseGraph, tolerance: float) -> tuple[Rewritten, ...]:
    """The variants of a plain graph, the most rewritten last. Raises GraphError for a graph that no pass can read,
    ExportCheckError when scores of random feeds differ by more than `tolerance`."""
    dense = apply(plain)
    _check_scores("user_once", plain, dense, tolerance)
    return (Rewritten(_entry("user_once", dense), dense),)


def _entry(name: str, dense: DenseGraph) -> Variant:
    folder = f"graph/{name}"
    user = None if dense.user is None else UserGraph(file=f"{folder}/user.pb", inputs=_read(dense.user, dense.inputs))
    return Variant(
        name=name,
        file=f"{folder}/item.pb",
        inputs=_read(dense.item, dense.inputs),
        heads=tuple(VariantHead(head=head.head, name=head.name, row=head.row) for head in dense.heads),
        user=user,
        shared=tuple(SharedTensor(name=entry.name, shape=entry.shape) for entry in dense.shared),
    )


def _read(graph_def, inputs: tuple[DenseInput, ...]) -> tuple[str, ...]:
    names = {node.name for node in graph_def.node}
    return tuple(entry.name for entry in inputs if node_of(entry.name) in names)


def _check_scores(name: str, plain: DenseGraph, dense: DenseGraph, tolerance: float) -> None:
    rng = np.random.default_rng(0)
    for n in _CANDIDATES:
        feeds = random_feeds(plain, n, rng)
        want, got = run(plain, feeds), run(dense, feeds)
        for head, scores in want.items():
            difference = float(np.max(np.abs(got[head] - scores)))
            if not difference <= tolerance:
                raise ExportCheckError(f"variant {name!r}: head {head!r} differs from the plain graph by "
                                       f"{difference:.3g}, {tolerance:.3g} is allowed")


def random_feeds(dense: DenseGraph, n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Feeds for one user and n candidates: float32 normal; whole numbers 0 or 1, in every bucket and length."""
    feeds = {}
    for entry in dense.inputs:
        shape = [n if d < 0 else d for d in entry.shape]
        if entry.dtype == "f32":
            feeds[entry.name] = rng.normal(0.0, 0.5, shape).astype(np.float32)
        else:
            feeds[entry.name] = rng.integers(0, 2, shape, np.int64 if entry.dtype == "i64" else np.int32)
    return feeds


def run(dense: DenseGraph, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """{head: float32 [n]} by TensorFlow, the user's graph first if there is one."""
    fed = dict(feeds)
    if dense.user is not None:
        names = [entry.name for entry in dense.shared]
        fed |= dict(zip(names, _run(dense.user, names, fed), strict=True))
    found = dict(zip(dense.outputs, _run(dense.item, dense.outputs, fed), strict=True))
    return {h.head: found[h.name].reshape(-1) if h.row is None else found[h.name][h.row] for h in dense.heads}


def _run(graph_def, fetches, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    names = {node.name for node in graph_def.node}
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(graph_def, name="")
    with tf.compat.v1.Session(graph=graph) as session:
        return session.run(list(fetches), {k: v for k, v in feeds.items() if node_of(k) in names})
