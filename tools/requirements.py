"""Prints what pyproject.toml asks for, one requirement a line: dependencies and the extras that development uses.

Runs before anything is installed, so it uses the standard library only.
"""

import sys
import tomllib
from pathlib import Path

__all__ = ["requirements"]

EXTRAS = ("build", "dev", "openvino", "onnx")


def requirements(pyproject: Path) -> list[str]:
    """Requirements of the project and of EXTRAS, in that order."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *(line for extra in EXTRAS for line in extras[extra])]


if __name__ == "__main__":
    print("\n".join(requirements(Path(sys.argv[1]))))
