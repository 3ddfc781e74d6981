"""How most passes work: the graph is built anew, inputs before readers, and a rule may put something else in a node's
place. Equal nodes fall together on the way, and what nothing reads stays behind."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ..errors import GraphError
from .dense import DenseGraph, DenseInput
from .editor import Editor
from .graph import GraphIndex, data_inputs, node_of, port_of

__all__ = ["Rule", "open_graph", "rebuild", "rewrite", "sorted_nodes"]

Rule = Callable[[Editor, object, Sequence[str]], "str | Sequence[str] | None"]
"""rule(editor, node, inputs) -> what stands for the node's outputs, or None to keep it. `node` is of the old graph,
`inputs` are its data inputs in the new one."""


def rewrite(dense: DenseGraph, rule: Rule, user: bool = True) -> DenseGraph:
    """The dense graph with a rule applied to the item graph and, with `user`, to the user graph if there is one."""
    item, heads = rebuild(dense.item, (*dense.inputs, *dense.shared), dense.outputs, rule)
    dense = replace(dense, item=item, heads=tuple(replace(h, name=heads[h.name]) for h in dense.heads))
    if dense.user is None or not user:
        return dense
    shared = [entry.name for entry in dense.shared]
    graph, names = rebuild(dense.user, dense.inputs, shared, rule)
    if list(names.values()) != shared:
        raise GraphError("a rule for item graphs moved what the user graph shares")
    return replace(dense, user=graph)


def rebuild(graph_def, inputs: Iterable[DenseInput], outputs: Sequence[str], rule: Rule):
    """(the new GraphDef, {old output: new output}), tensor names with port. Raises GraphError for a loop."""
    editor, new = open_graph(graph_def, inputs, outputs, rule)
    names = {output: _full(new[_plain(output)]) for output in outputs}
    return editor.finish(names.values()), names


def open_graph(graph_def, inputs: Iterable[DenseInput], outputs: Sequence[str], rule: Rule | None = None):
    """(the editor that holds what `outputs` need, {old reference: new reference}); outputs are also there under the
    names given. Raises GraphError for a loop, or for functions."""
    if graph_def.library.function:
        raise GraphError("the graph calls functions; inline them first")
    index, editor, new = GraphIndex(graph_def), Editor(inputs, graph_def.versions), {}
    for node in sorted_nodes(index, outputs):
        if node.op == "Placeholder":
            new[node.name] = editor.node(node.name).name
            continue
        read = [new[_plain(reference)] for reference in data_inputs(node)]
        put = rule(editor, node, read) if rule else None
        made = editor.copy(node, read) if put is None else [put] if isinstance(put, str) else list(put)
        for port, reference in enumerate(made):
            new[node.name if port == 0 else f"{node.name}:{port}"] = reference
    return editor, new | {output: new[_plain(output)] for output in outputs}


def sorted_nodes(index: GraphIndex, outputs: Iterable[str]) -> list:
    """The nodes that `outputs` need, inputs before readers: in an order that depends on the graph's structure alone.
    Raises GraphError for a loop, or for a node that waits for another without reading it."""
    done: dict[str, bool] = {}
    found = []
    stack = [(node_of(output), False) for output in reversed(list(outputs))]
    while stack:
        name, ready = stack.pop()
        if ready:
            done[name] = True
            found.append(index.nodes[name])
            continue
        if name in done:
            if not done[name]:
                raise GraphError(f"node {name!r} is part of a loop; control flow is not rewritten")
            continue
        done[name] = False
        node = index.nodes[name]
        if len(data_inputs(node)) != len(node.input):
            raise GraphError(f"node {name!r} ({node.op}) waits for another; control flow is not rewritten")
        stack.append((name, True))
        stack.extend((node_of(r), False) for r in reversed(node.input) if not done.get(node_of(r)))
    return found


def _plain(reference: str) -> str:
    return reference if port_of(reference) else node_of(reference)


def _full(reference: str) -> str:
    return reference if ":" in reference else f"{reference}:0"
