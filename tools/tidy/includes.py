"""C++ includes: from the top of the tree, across packages by interface headers only, Python in bindings only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from tools.tidy.cxx import included
from tools.tidy.tree import Problem, Tree

__all__ = ["check"]

# Who may include another package's header, and which: the contracts that packages hand to each other in capsules.
INTERFACES = {
    "lambda_svc": frozenset({"paramserver/csrc/row_source.h", "feature_store/csrc/feature_source.h"}),
    "paramserver": frozenset(),
    "feature_store": frozenset(),
    "tools": frozenset({"paramserver/csrc/hash.h"}),  # peers hash ids as we do, so that only their maps differ
}
_PYTHON = ("nanobind/", "Python.h", "pybind11/")


def check(tree: Tree) -> Iterator[Problem]:
    """Problems of C++ files: their includes, and files that no build or include reaches."""
    for path in tree.matching(".cc", ".h", ".inl"):
        for line, mark, target in included(tree.text(path)):
            text = _wrong(tree, path, mark, target)
            if text:
                yield Problem(path, line, "include", text)
    yield from _unreached(tree)


def _wrong(tree: Tree, path: str, mark: str, target: str) -> str | None:
    if mark == "<":
        python = target.startswith(_PYTHON) and not PurePosixPath(path).name.startswith("bindings")
        return f"<{target}> belongs to bindings*.cc only" if python else None
    if not (tree.root / target).is_file():
        return f'"{target}" is not a file: include from the top of the tree ("package/csrc/file.h")'
    if path.startswith("tests/"):
        return None
    package, owner = path.split("/")[0], target.split("/")[0]
    if owner != package and target not in INTERFACES.get(package, frozenset()):
        return f'{package} may not include "{target}": packages share interface headers only'
    return None


def _unreached(tree: Tree) -> Iterator[Problem]:
    reached = {target for path in tree.matching(".cc", ".h", ".inl") for _, _, target in included(tree.text(path))}
    built = "\n".join(tree.text(path) for path in tree.files if path.endswith(("CMakeLists.txt", ".sh")))
    for path in tree.matching(".cc", ".h", ".inl"):
        if path.endswith(".cc") and PurePosixPath(path).name not in built and path not in reached:
            yield Problem(path, 1, "dead-file", "no CMakeLists.txt and no script builds it")
        elif path.endswith((".h", ".inl")) and path not in reached:
            yield Problem(path, 1, "dead-file", "nothing includes it")
