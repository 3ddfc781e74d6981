"""Dead code (vulture): functions and classes that no production code uses, methods that nobody does, tests included."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from tools.tidy.tree import PACKAGES, Problem, Tree

__all__ = ["check"]

# Called by frameworks, by their names or because of a decorator.
_CALLED = ["test_*", "pytest_*", "model_post_init", "__getattr__", "__dir__", "do_*", "intercept_service",
           "handle_*", "log_message"]
_DECORATORS = ["@*.command*", "@*.callback*", "@pytest.fixture*", "@*.hookimpl*", "@field_validator*",
               "@model_validator*", "@field_serializer*", "@model_serializer*", "@*.register*"]


def check(tree: Tree) -> Iterator[Problem]:
    """Problems: unused functions and classes of the packages, unused methods, unreachable code."""
    production = tree.matching(".py", within=PACKAGES)
    everything = tree.matching(".py")
    # Generated servicers and stubs use what they call, but are not judged themselves.
    generated = [path for path in tree.files if "_pb2" in path and path.endswith(".py")]
    yield from _unused(tree, production, generated, ("function", "class", "unreachable_code"))
    yield from _unused(tree, everything, generated, ("method", "property"))


def _unused(tree: Tree, paths: list[str], generated: list[str], kinds: tuple[str, ...]) -> Iterator[Problem]:
    from vulture import Vulture
    vulture = Vulture(ignore_names=_CALLED, ignore_decorators=_DECORATORS)
    for path in [*paths, *generated]:
        vulture.scan((tree.root / path).read_text(encoding="utf-8"), filename=Path(path))
    judged = set(paths)
    for item in vulture.get_unused_code(min_confidence=60):
        path = item.filename.as_posix()
        if item.typ in kinds and path in judged and not any(fnmatch(item.name, name) for name in _CALLED):
            yield Problem(path, item.first_lineno, "dead-code", f"unused {item.typ} {item.name!r}")
