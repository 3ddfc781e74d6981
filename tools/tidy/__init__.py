"""Style as a failing check: `python -m tools.tidy` prints `path:line: rule: what is wrong` and exits 1 for a tree that
breaks a rule of the house. Each module holds one family of rules, a function from a tree to its problems.
"""

from __future__ import annotations

from tools.tidy import dead, hygiene, imports, includes, lint, names, proto, sizes
from tools.tidy.tree import Problem, Tree

__all__ = ["RULES", "Problem", "Tree", "check"]

RULES = (sizes.check, imports.check, includes.check, names.check, hygiene.check, lint.check, dead.check, proto.check)


def check(tree: Tree) -> list[Problem]:
    """Every problem of a source tree, ordered by path and line."""
    problems = [problem for rule in RULES for problem in rule(tree)]
    return sorted(problems, key=lambda problem: (problem.path, problem.line, problem.rule))
