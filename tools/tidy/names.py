"""Public names: listed in `__all__`, really there, and documented."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tools.tidy.tree import PACKAGES, Problem, Tree

__all__ = ["check", "listed"]

_Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def check(tree: Tree) -> Iterator[Problem]:
    """Problems of names in the packages: missing `__all__`, ghosts in it, missing docstrings."""
    for path in tree.matching(".py", within=PACKAGES):
        syntax = tree.syntax(path)
        if ast.get_docstring(syntax) is None and syntax.body:
            yield Problem(path, 1, "docstring", "a module says in a line or two what it is for")
        if path.endswith("__init__.py") and not _has_all(syntax):
            yield Problem(path, 1, "public-names", "a package's __init__.py has __all__")
        names = listed(tree, path)
        yield from _ghosts(path, syntax, names)
        yield from _undocumented(path, syntax, names)


def listed(tree: Tree, path: str) -> frozenset[str]:
    """The names in a module's `__all__`, empty without one."""
    names: set[str] = set()
    for node in tree.syntax(path).body:
        value = _all_value(node)
        if value is not None:
            names |= {item.value for item in ast.walk(value)
                      if isinstance(item, ast.Constant) and isinstance(item.value, str)}
    return frozenset(names)


def _all_value(node: ast.stmt) -> ast.expr | None:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    is_all = any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)
    return node.value if is_all else None


def _has_all(syntax: ast.Module) -> bool:
    return any(_all_value(node) is not None for node in syntax.body)


def _ghosts(path: str, syntax: ast.Module, names: frozenset[str]) -> Iterator[Problem]:
    bound = {name for node in ast.walk(syntax) for name in _bound(node)}
    lazily = "__getattr__" in bound
    for name in sorted(names - bound):
        if not lazily:
            yield Problem(path, 1, "public-names", f"__all__ lists {name!r}, which the module does not define")


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, _Documented):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.alias):
        yield node.asname or node.name.split(".")[0]


def _undocumented(path: str, syntax: ast.Module, names: frozenset[str]) -> Iterator[Problem]:
    for node in syntax.body:
        if isinstance(node, _Documented) and node.name in names:
            if ast.get_docstring(node) is None:
                yield Problem(path, node.lineno, "docstring", f"{node.name} is public and has no docstring")
            yield from _undocumented_methods(path, node)


def _undocumented_methods(path: str, owner: _Documented) -> Iterator[Problem]:
    if not isinstance(owner, ast.ClassDef):
        return
    for node in owner.body:
        if isinstance(node, _Documented) and not node.name.startswith("_") and ast.get_docstring(node) is None:
            yield Problem(path, node.lineno, "docstring", f"{owner.name}.{node.name} is public and has no docstring")
