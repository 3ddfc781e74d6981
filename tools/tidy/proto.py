"""Generated code is what the .proto files generate now, with the pinned grpcio-tools."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.tidy.tree import Problem, Tree

__all__ = ["check", "generate"]

_SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")  # the last one only for files with a service


def check(tree: Tree) -> Iterator[Problem]:
    """Problems: a generated file that is missing or differs from what protoc writes."""
    protos = [path for path in tree.files if path.endswith(".proto")]
    if not protos:
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(tree.root, protos, Path(folder))
        for path in protos:
            has_service = re.search(r"^service\s", tree.text(path), re.MULTILINE)
            for suffix in _SUFFIXES if has_service else _SUFFIXES[:2]:
                generated = path.removesuffix(".proto") + suffix
                new, old = Path(folder, generated), tree.root / generated
                if not old.is_file() or old.read_bytes() != new.read_bytes():
                    yield Problem(generated, 1, "proto",
                                  f"differs from what {path} generates: run python -m tools.tidy.proto")


def generate(root: Path, protos: list[str], out: Path) -> None:
    """Runs protoc on `protos` (relative to `root`), writing messages, stubs of types and of services below `out`."""
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={out}", f"--pyi_out={out}",
               f"--grpc_python_out={out}", *protos]
    subprocess.run(command, cwd=root, check=True)


if __name__ == "__main__":
    checkout = Path(__file__).resolve().parents[2]
    generate(checkout, [path for path in Tree(checkout).files if path.endswith(".proto")], checkout)
