"""Who may import whom (docs/architecture.md): packages, gRPC, tensorflow, and public names across packages."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tools.tidy.names import listed
from tools.tidy.tree import PACKAGES, Problem, Tree

__all__ = ["check"]

# Package -> modules of other packages it may import, with everything below them.
ALLOWED = {
    "paramserver": (),
    "feature_store": (),
    "models": ("feature_store",),
    "lambda_svc": ("paramserver", "feature_store", "models.package"),
    "tools": ("paramserver", "feature_store", "models", "lambda_svc"),
}
# Endings of names. The benchmark of ranking is a client too: of the stock path that it compares with.
GRPC_FILES = ("server.py", "client.py", "bench/rank.py", "bench/switch.py")
# Files of `models` that a service or a pusher loads; all other packages are without tensorflow altogether.
MODELS_WITHOUT_TENSORFLOW = ("models/__init__.py", "models/package.py", "models/manifest.py", "models/errors.py",
                             "models/push.py", "models/allow_list.py", "models/signature_input.py")


@dataclass(frozen=True)
class _Import:
    line: int
    module: str
    name: str | None  # of `from module import name`
    lazy: bool  # inside a function


def check(tree: Tree) -> Iterator[Problem]:
    """Problems of imports in the packages; tests may import what they test."""
    for path in tree.matching(".py", within=PACKAGES):
        package = path.split("/")[0]
        for item in _imports(tree, path):
            text = (_cross_package(tree, package, item) or _grpc(path, item) or _tensorflow(path, package, item))
            if text:
                yield Problem(path, item.line, "import", text)


def _imports(tree: Tree, path: str) -> Iterator[_Import]:
    syntax = tree.syntax(path)
    lazy = {id(inner) for node in ast.walk(syntax) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for inner in ast.walk(node)}
    for node in ast.walk(syntax):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield _Import(node.lineno, alias.name, None, id(node) in lazy)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(path, node)
            for alias in node.names:
                yield _Import(node.lineno, module, alias.name, id(node) in lazy)


def _absolute(path: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = path.removesuffix(".py").split("/")[:-node.level]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _cross_package(tree: Tree, package: str, item: _Import) -> str | None:
    owner = item.module.split(".")[0]
    if owner not in PACKAGES or owner == package:
        return None
    full = f"{item.module}.{item.name}" if item.name else item.module
    if not any(full == allowed or full.startswith(f"{allowed}.") for allowed in ALLOWED[package]):
        return f"{package} may not import {full}"
    if any(part.startswith("_") for part in full.split(".")):
        return f"{full} is private to {owner}"
    if item.name and not _is_public(tree, item.module, item.name):
        return f"{item.name} is not in the __all__ of {item.module}"
    return None


def _is_public(tree: Tree, module: str, name: str) -> bool:
    if tree.module_path(f"{module}.{name}"):
        return True
    path = tree.module_path(module)
    return path is not None and ("_pb2" in path or name in listed(tree, path))


def _grpc(path: str, item: _Import) -> str | None:
    if item.module.split(".")[0] in ("grpc", "grpc_health", "grpc_reflection") and not path.endswith(GRPC_FILES):
        return f"grpc belongs to files named {' or '.join(GRPC_FILES)}"
    return None


def _tensorflow(path: str, package: str, item: _Import) -> str | None:
    if item.module.split(".")[0] not in ("tensorflow", "keras"):
        return None
    if package == "tools":
        return None if item.lazy else "tools import tensorflow inside the function that needs it"
    if package == "models" and path not in MODELS_WITHOUT_TENSORFLOW:
        return None
    return f"the service and what it loads never import {item.module}"
