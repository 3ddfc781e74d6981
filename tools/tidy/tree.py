"""The source tree that rules look at: its files, their text and syntax trees, read once."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

__all__ = ["PACKAGES", "Problem", "Tree"]

PACKAGES = ("lambda_svc", "paramserver", "feature_store", "models", "tools")
_SKIPPED_FOLDERS = {".git", ".venv", "build", "dist", "__pycache__", ".pytest_cache", ".hypothesis", ".ruff_cache"}


@dataclass(frozen=True)
class Problem:
    """One broken rule: `path` relative to the root, `line` from 1, `rule` the rule's short name."""

    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


class Tree:
    """A checkout. Files are those that git tracks or would track; without git, all but build products."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._text: dict[str, str] = {}
        self._syntax: dict[str, ast.Module] = {}

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Paths relative to the root, with forward slashes, sorted; only files that exist."""
        listed = self._listed_by_git() if (self.root / ".git").exists() else self._listed_by_walk()
        return tuple(sorted(path for path in listed if (self.root / path).is_file()))

    def matching(self, *suffixes: str, within: tuple[str, ...] = ()) -> list[str]:
        """Files with one of the suffixes, in one of the top folders `within` when given; generated code is left out."""
        return [path for path in self.files
                if path.endswith(suffixes) and "_pb2" not in path and (not within or path.split("/")[0] in within)]

    def text(self, path: str) -> str:
        """A file's text; bytes that are not UTF-8 come as replacement characters."""
        if path not in self._text:
            self._text[path] = (self.root / path).read_text(encoding="utf-8", errors="replace")
        return self._text[path]

    def syntax(self, path: str) -> ast.Module:
        """A Python file's syntax tree; an empty one when it does not parse (the linter reports that)."""
        if path not in self._syntax:
            try:
                self._syntax[path] = ast.parse(self.text(path))
            except SyntaxError:
                self._syntax[path] = ast.Module([], [])
        return self._syntax[path]

    def module_path(self, dotted: str) -> str | None:
        """The file of a module of this tree, or None."""
        base = dotted.replace(".", "/")
        return next((path for path in (f"{base}.py", f"{base}/__init__.py") if path in self._set), None)

    @cached_property
    def _set(self) -> frozenset[str]:
        return frozenset(self.files)

    def _listed_by_git(self) -> list[str]:
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listing = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=True)
        return [path for path in listing.stdout.split("\0") if path]

    def _listed_by_walk(self) -> list[str]:
        paths = (path.relative_to(self.root) for path in self.root.rglob("*"))
        return [path.as_posix() for path in paths if not _SKIPPED_FOLDERS & set(path.parts)]
