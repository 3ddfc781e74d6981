"""The passes by name, in the order in which they build on one another."""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from ..errors import ConfigError
from .candidate_weights import candidate_weights
from .canonical import canonical
from .dense import DenseGraph
from .distribute_products import distribute_products
from .flatten_products import flatten_products
from .fold_batch_norm import fold_batch_norm
from .fold_constants import fold_constants
from .merge_parallel import merge_parallel
from .pack_outputs import pack_outputs
from .simplify_shapes import simplify_shapes
from .sink_tiles import sink_tiles
from .split_user import split_user

__all__ = ["PASSES", "apply"]

PASSES: Mapping[str, Callable[[DenseGraph], DenseGraph]] = MappingProxyType({
    "fold_constants": fold_constants,
    "simplify_shapes": simplify_shapes,
    "fold_batch_norm": fold_batch_norm,
    "sink_tiles": sink_tiles,
    "merge_parallel": merge_parallel,
    "distribute_products": distribute_products,
    "candidate_weights": candidate_weights,
    "flatten_products": flatten_products,
    "pack_outputs": pack_outputs,
    "split_user": split_user,
})


def apply(dense: DenseGraph, names: Collection[str] = tuple(PASSES)) -> DenseGraph:
    """The dense graph after the passes of `names`, in the order of PASSES, and in canonical form. Raises ConfigError
    for a name that is no pass, GraphError for a graph that cannot be rewritten (control flow, functions)."""
    unknown = sorted(set(names) - set(PASSES))
    if unknown:
        raise ConfigError(f"no pass is called {unknown[0]!r}; there are {', '.join(PASSES)}")
    for name, run in PASSES.items():
        if name in names:
            dense = run(dense)
    return canonical(dense)
