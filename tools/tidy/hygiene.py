"""What no file may hold: names that say nothing, paths of one machine, muffled failures, leftovers, binaries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from tools.tidy.tree import Problem, Tree

__all__ = ["check"]

VAGUE_NAMES = frozenset({"utils", "util", "helpers", "misc", "common"})
BINARIES = (".so", ".o", ".a", ".pyc", ".whl", ".parquet", ".arrow")
_TEXTS = (".py", ".cc", ".h", ".inl", ".sh", ".md", ".txt", ".toml", ".cmake", ".yaml", ".yml", ".proto", "Makefile",
          ".ci/run")
# The patterns are spelled so that this file does not match them itself.
PATTERNS = (
    ("machine-path", re.compile(r"(?<![\w.])/(?:work|root|home/\w+|opt/py[p]i|tmp/ve[n]v)(?:/|\b)"),
     "a path of one machine"),
    ("registry-host", re.compile(r"\b(?:py[p]i|debian|npmjs)[.](?:org|com)\b|py[t]honhosted"),
     "the address of a package registry: name the registry instead"),
    ("muffled", re.compile(r"\|\|\s*tru[e]\b"), "a failure is muffled"),
    ("leftover", re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X])\b"), "unfinished work"),
    ("skip", re.compile(r"mark[.]skip\s*$|mark[.]skip\(\)|pytest[.]skip\(\)"), "a skip without its reason"),
)


def check(tree: Tree) -> Iterator[Problem]:
    """Problems of file names and of their text, whatever the language."""
    for path in tree.files:
        if VAGUE_NAMES & set(PurePosixPath(path).with_suffix("").parts):
            yield Problem(path, 1, "vague-name", "name the module after what it does")
        if path.endswith(BINARIES):
            yield Problem(path, 1, "binary", "built files and data stay out of the tree")
        elif path.endswith(_TEXTS) and "_pb2" not in path:
            for number, line in enumerate(tree.text(path).splitlines(), 1):
                for rule, pattern, text in PATTERNS:
                    if pattern.search(line):
                        yield Problem(path, number, rule, f"{text}: {line.strip()[:80]}")
