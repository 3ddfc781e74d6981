"""Cuts a frozen graph down to what a signature feeds and fetches, for engines that take whole graphs only.

OpenVINO computes every node that nothing reads, and fetches those only. So whatever the signature's outputs do not
need goes, and each output gets an Identity node of its own at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import DecodeError

from lambda_svc.errors import EngineError
from lambda_svc.proto.tf_graph_pb2 import GraphDef, NodeDef
from lambda_svc.session.engine import GraphSignature

__all__ = ["CutGraph", "cut_to"]

_FLOAT = b"\x30\x01"  # tensorflow.AttrValue{type: DT_FLOAT}


@dataclass(frozen=True)
class CutGraph:
    """A serialised GraphDef whose only ends are the outputs.

    `fetches` names the tensor of each output, in the signature's order; `read` tells for each input whether an output
    depends on it: one that no output depends on is not in the graph.
    """

    graph: bytes
    fetches: tuple[str, ...]
    read: tuple[bool, ...]


def cut_to(graph: bytes, signature: GraphSignature) -> CutGraph:
    """The part of a frozen GraphDef between a signature's inputs and outputs.

    Raises EngineError naming an input or output that the graph does not have, or has not as a placeholder.
    """
    try:
        whole = GraphDef.FromString(graph)
    except DecodeError as error:
        raise EngineError(f"the graph does not load: not a serialised GraphDef: {error}") from error
    nodes = {node.name: node for node in whole.node}
    ends = [_node("output", name, nodes) for name in signature.outputs]
    feeds = [_placeholder(spec.name, nodes) for spec in signature.inputs]
    if not ends:
        raise EngineError("outputs: got none; expected at least one head")
    needed = _needed(ends, nodes)
    del whole.node[:]
    whole.node.extend(node for name, node in nodes.items() if name in needed)
    fetches = [_fetch(whole, name, nodes) for name in signature.outputs]
    read = tuple(name in needed for name in feeds)
    return CutGraph(whole.SerializeToString(deterministic=True), tuple(fetches), read)


def _node(what: str, tensor: str, nodes: dict[str, NodeDef]) -> str:
    name, colon, port = tensor.partition(":")
    if colon and not (port.isascii() and port.isdigit()):
        raise EngineError(f"{what} {tensor}: expected NODE or NODE:INDEX")
    if name not in nodes:
        raise EngineError(f"{what} {tensor}: the graph has no such node")
    return name


def _placeholder(tensor: str, nodes: dict[str, NodeDef]) -> str:
    name = _node("input", tensor, nodes)
    if not nodes[name].op.startswith("Placeholder"):
        raise EngineError(f"input {tensor}: the graph computes it ({nodes[name].op}); expected a placeholder")
    if tensor.partition(":")[2] not in ("", "0"):
        raise EngineError(f"input {tensor}: the node has only 1 outputs")
    return name


def _needed(ends: list[str], nodes: dict[str, NodeDef]) -> set[str]:
    """Names of the nodes that `ends` depend on, themselves included. Raises EngineError for an edge to no node."""
    needed: set[str] = set()
    waiting = list(ends)
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        if name not in nodes:
            raise EngineError(f"the graph does not load: a node reads {name}, which is not in the graph")
        needed.add(name)
        waiting.extend(edge.lstrip("^").partition(":")[0] for edge in nodes[name].input)
    return needed


def _fetch(graph: GraphDef, tensor: str, taken: dict[str, NodeDef]) -> str:
    """Appends an Identity of `tensor` under a name that is free; returns the tensor it makes."""
    name = f"fetch/{tensor.replace(':', '/')}"
    while name in taken:
        name += "_"
    node = graph.node.add(name=name, op="Identity", input=[tensor])
    node.attr["T"] = _FLOAT
    taken[name] = node
    return f"{name}:0"
