"""Benchmarks: a registry by name, each a module of its own, run by `lambda-svc bench NAME`.

A benchmark module's docstring opens with the line that `bench --list` prints, and it has `run(quick) -> list[Figure]`;
quick ends within 45 s. A peer is imported only when it is measured.
"""

from __future__ import annotations

import importlib
import importlib.util
import time

from tools.bench.figures import Report, host_line

__all__ = ["BENCHMARKS", "names", "run", "summary"]

# Name on the command line -> module with run(quick: bool) -> list[Figure].
BENCHMARKS: dict[str, str] = {
    "deltas": "tools.bench.deltas",
    "engines": "tools.bench.engines",
    "gpu": "tools.bench.gpu",
    "load": "tools.bench.load",
    "lookup": "tools.bench.lookup",
    "peers": "tools.bench.peers",
    "pooled_int8": "tools.bench.pooled_int8",
    "rank": "tools.bench.rank",
    "remote": "tools.bench.remote",
    "rowbytes": "tools.bench.rowbytes",
    "switch": "tools.bench.switch",
    "tiered": "tools.bench.tiered",
}


def names() -> list[str]:
    """Names of the benchmarks of this installation, in the order of the registry."""
    return [name for name, module in BENCHMARKS.items() if importlib.util.find_spec(module) is not None]


def summary(name: str) -> str:
    """The first line of a benchmark's docstring. Raises KeyError for an unknown name."""
    return (importlib.import_module(BENCHMARKS[name]).__doc__ or "").strip().partition("\n")[0]


def run(name: str, *, quick: bool = False) -> Report:
    """Runs one benchmark and returns its figures, with the host's line. Raises KeyError for an unknown name."""
    module = importlib.import_module(BENCHMARKS[name])
    start = time.perf_counter()
    figures = tuple(module.run(quick))
    return Report(name, host_line(), figures, time.perf_counter() - start)
