"""Whether a model may be served as it came: everything that serving it would run is of allowed ops."""

from ..allow_list import check_graph
from ..passes.graph import GraphIndex, node_of
from .freezing import name_assets
from .loaded import Loaded
from .restore import part_of

__all__ = ["admit"]


def admit(loaded: Loaded) -> None:
    """Checks what the signatures compute, what initialises the model and what restores it, functions included.

    What only saves or trains is never run, so that it may be there. Raises OpRefusedError naming node and op,
    GraphError for a graph that is not whole.
    """
    scored = [node_of(spec.name) for signature in loaded.signatures.values() for spec in signature.outputs.values()]
    paths = {node_of(tensor) for tensor in loaded.assets}
    if loaded.restore_op:
        restoring = part_of(loaded.graph_def, loaded.restore_op)
        check_graph(restoring.SerializeToString(), {loaded.prefix}, assigns=True)
    if loaded.init_op:
        index = GraphIndex(part_of(loaded.graph_def, loaded.init_op))
        name_assets(index, loaded)
        check_graph(index.pruned([loaded.init_op]).SerializeToString(), paths, assigns=True)
    if scored:
        check_graph(part_of(loaded.graph_def, *scored).SerializeToString(), paths)
