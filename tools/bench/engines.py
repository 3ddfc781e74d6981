"""The dense part of each zoo model: the graph as frameworks write it against passes and engines, and its floor.

The baseline is TensorFlow in f32 on the plain graph, the user tiled in the graph, with the best of its settings of the
same run: one or all threads, the default executor in the framework's own session or the single-threaded one through the
C API, oneDNN on. Every variant of one model and number of candidates runs in turn, and so do the products and the copy
that this host's peaks are read from. `floor_ms` is the larger of FLOPs (after all passes: what depends on the user
once) over peak FLOPs and bytes (feeds, constants and scores, each once) over the bandwidth of a copy; `ceiling` is
stock time over the floor, `of_ceiling` the speedup over the ceiling. `up_to=PASS` is a pass on top of those before it.
Models over long histories are scored 256 candidates at a time, all variants alike. Scores are compared on the trained
MovieLens model, too. At base size; --quick takes one model.
"""

from __future__ import annotations

from tools.bench.figures import Figure

__all__ = ["run"]


def run(quick: bool) -> list[Figure]:
    """Measures; --quick takes DIN at 500 candidates, without the passes one by one."""
    from tools.engines.measure import measure  # imports tensorflow

    return measure(quick)
