"""As much C++ as tidiness needs: comments blanked, functions with their lengths, includes."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["blanked", "functions", "included"]

_NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(?P<tag>\w*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
                    re.DOTALL)
_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
_SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b[^()]*$")
_NAME = re.compile(r"([~\w:]+)\s*\(")


def blanked(text: str) -> str:
    """The text with comments, strings and characters blanked, line breaks kept."""
    return _NOISE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def functions(text: str) -> Iterator[tuple[str, int, int]]:
    """(name, first line, lines) of every function body outside other functions."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda match: "\n" * match.group().count("\n"), blanked(text),
                  flags=re.MULTILINE)
    start, line, inside, opened = 0, 1, 0, ("", 0)
    for match in re.finditer(r"[{};\n]", code):
        mark = match.group()
        if mark == "\n":
            line += 1
            continue
        header = code[start:match.start()]
        start = match.end()
        if mark == "{":
            if inside == 0 and not _SCOPE.search(header) and "(" in header:
                name = _NAME.search(header)
                opened = (name.group(1) if name else "?", line - header.lstrip().count("\n"))
                inside = 1
            elif inside:
                inside += 1
        elif mark == "}" and inside:
            inside -= 1
            if inside == 0:
                yield opened[0], opened[1], line - opened[1] + 1


def included(text: str) -> Iterator[tuple[int, str, str]]:
    """(line, `<` or `"`, path) of every include."""
    for match in _INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start(1)) + 1, match.group(1), match.group(2)
