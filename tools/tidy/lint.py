"""What a general linter knows better: unused imports and names, undefined names, mutable defaults (ruff)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

from tools.tidy.tree import Problem, Tree

__all__ = ["check"]

SELECTED = "E4,E9,F,B006,B904,RUF100"


def check(tree: Tree) -> Iterator[Problem]:
    """Problems that ruff finds in Python files."""
    files = tree.matching(".py")
    if not files:
        return
    from ruff import find_ruff_bin
    command = [os.fsdecode(find_ruff_bin()), "check", "--isolated", "--no-cache", "--output-format=json",
               f"--select={SELECTED}", "--target-version=py311", *files]
    result = subprocess.run(command, cwd=tree.root, capture_output=True, text=True)
    if result.returncode not in (0, 1):
        raise RuntimeError(f"ruff failed: {result.stderr.strip()}")
    for item in json.loads(result.stdout):
        path = os.path.relpath(item["filename"], tree.root.resolve())
        yield Problem(path, item["location"]["row"], item["code"] or "syntax", item["message"])
