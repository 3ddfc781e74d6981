"""Prints what pyproject.toml asks for, one requirement a line: dependencies and the extras `dev` and `build`.

Runs before anything is installed, so it uses the standard library only.
"""

import sys
import tomllib
from pathlib import Path

__all__ = ["requirements"]


def requirements(pyproject: Path) -> list[str]:
    """Requirements of the project and of its extras `dev` and `build`, in the file's order."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *extras["build"], *extras["dev"]]


if __name__ == "__main__":
    print("\n".join(requirements(Path(sys.argv[1]))))
