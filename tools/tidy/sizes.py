"""Files of at most 500 lines, functions of at most 70, and of at most 40 in the files a request passes through."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tools.tidy.cxx import functions
from tools.tidy.tree import PACKAGES, Problem, Tree

__all__ = ["check"]

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
REQUEST_FUNCTION_LINES_MAX = 40
LINE_COLUMNS_MAX = 120
REQUEST_PATH = frozenset({
    "lambda_svc/server.py", "lambda_svc/request.py", "lambda_svc/admission.py", "lambda_svc/ranking.py",
    "lambda_svc/response.py", "lambda_svc/csrc/pipeline.cc",
})
_SOURCES = (".py", ".cc", ".h", ".inl", ".sh", ".proto", ".cmake")


def check(tree: Tree) -> Iterator[Problem]:
    """Problems of size: files, functions and lines."""
    for path in tree.matching(*_SOURCES):
        yield from _lines(tree, path)
        limit = REQUEST_FUNCTION_LINES_MAX if path in REQUEST_PATH else FUNCTION_LINES_MAX
        for name, line, lines in _functions(tree, path):
            if lines > limit:
                yield Problem(path, line, "function-size", f"{name} has {lines} lines, at most {limit}: split it")


def _lines(tree: Tree, path: str) -> Iterator[Problem]:
    lines = tree.text(path).splitlines()
    if len(lines) > FILE_LINES_MAX:
        yield Problem(path, len(lines), "file-size", f"{len(lines)} lines, at most {FILE_LINES_MAX}: split it")
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_COLUMNS_MAX:
            yield Problem(path, number, "line-length", f"{len(line)} columns, at most {LINE_COLUMNS_MAX}")


def _functions(tree: Tree, path: str) -> Iterator[tuple[str, int, int]]:
    if path.endswith(".py"):
        for node in ast.walk(tree.syntax(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name, node.lineno, node.end_lineno - node.lineno + 1
    elif path.endswith((".cc", ".h", ".inl")) and path.split("/")[0] in (*PACKAGES, "tests"):
        yield from functions(tree.text(path))
