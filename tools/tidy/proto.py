"""Generated code is what the .proto files generate now, with the pinned grpcio-tools."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.tidy.tree import Problem, Tree

__all__ = ["check", "write"]

_SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")  # the last one only for files with a service


def check(tree: Tree) -> Iterator[Problem]:
    """Problems: a generated file that is missing or differs from what protoc writes."""
    for name, content in _generated(tree):
        old = tree.root / name
        if not old.is_file() or old.read_bytes() != content:
            yield Problem(name, 1, "proto", "is not what its .proto generates: run python -m tools.tidy --write-protos")


def write(tree: Tree) -> None:
    """Writes the generated files into the tree."""
    for name, content in _generated(tree):
        (tree.root / name).write_bytes(content)


def _generated(tree: Tree) -> Iterator[tuple[str, bytes]]:
    """Name and content of every file that protoc makes of the tree's .proto files: messages, types, services."""
    protos = [path for path in tree.files if path.endswith(".proto")]
    if not protos:
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={folder}", f"--pyi_out={folder}",
                   f"--grpc_python_out={folder}", *protos]
        subprocess.run(command, cwd=tree.root, check=True)
        for path in protos:
            has_service = re.search(r"^service\s", tree.text(path), re.MULTILINE)
            for suffix in _SUFFIXES if has_service else _SUFFIXES[:2]:
                name = path.removesuffix(".proto") + suffix
                yield name, Path(folder, name).read_bytes()

