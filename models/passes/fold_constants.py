"""Constants are folded: what follows from constants alone is computed once, here.

The op's own kernel computes it, so that no value changes: NaN, infinities, signed zeros and small epsilons stay what
they are, and nothing is simplified algebraically.
"""

import numpy as np

from .dense import DenseGraph
from .evaluate import evaluate, is_pure
from .kinds import PASSING
from .rewrite import rewrite

__all__ = ["CONSTANT_BYTES_MAX", "fold_constants"]

CONSTANT_BYTES_MAX = 64 << 20


def fold_constants(dense: DenseGraph) -> DenseGraph:
    """The graphs with constants for what does not depend on any input; a result of more than CONSTANT_BYTES_MAX bytes
    stays an op. Nodes that only pass a value on go."""
    return rewrite(dense, _rule)


def _rule(editor, node, inputs):
    if node.op in PASSING and node.op != "CheckNumerics":
        return inputs[0]
    if node.op == "Const" or not is_pure(node.op):
        return None
    outputs = editor.copy(node, inputs)
    values = [editor.value(reference) for reference in outputs]
    if any(value is None for value in values):
        read = [editor.value(reference) for reference in inputs]
        if not inputs or any(value is None for value in read):
            return outputs
        values = evaluate(node, read)
    if values is None or sum(np.asarray(value).nbytes for value in values) > CONSTANT_BYTES_MAX:
        return outputs
    return [editor.constant(value) for value in values]
