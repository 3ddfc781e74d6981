"""The dense part of each zoo model: the graph as frameworks write it against passes and engines, and its floor.

The baseline is TensorFlow in f32 on the plain graph, the user tiled in the graph, with the best of its settings
(threads and executor) of the same run. Every variant of one model and number of candidates runs in turn. `of_ceiling`
is the speedup over the highest that FLOPs, bytes and this host's measured peaks allow; the floor counts what depends on
the user once. Passes are measured one after the other, each on top of those before. Scores are compared on the trained
MovieLens model, too. At base size; --quick takes one model.
"""

from __future__ import annotations

from tools.bench.figures import Figure

__all__ = ["run"]


def run(quick: bool) -> list[Figure]:
    """Measures; --quick takes DIN at 500 candidates, without the passes one by one."""
    from tools.engines.measure import measure  # imports tensorflow

    return measure(quick)
