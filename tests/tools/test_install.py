"""The installer's refusals: each ends `make` with one line that says what to do, and downloads nothing first."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

COPIED = ("Makefile", "pyproject.toml", "constraints.txt", "CMakeLists.txt", "tools/install.sh",
          "tools/requirements.py")


@pytest.fixture
def tree(tmp_path, checkout) -> Path:
    """A checkout with nothing but what the installer reads; it has no environment."""
    for name in COPIED:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(checkout / name, tmp_path / name)
    for package in ("lambda_svc", "paramserver", "feature_store", "models"):
        (tmp_path / package).mkdir()
    return tmp_path


def make_demo(tree: Path, **changes: str) -> tuple[int, list[str]]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tree), "LC_ALL": "C", **changes}
    result = subprocess.run(["make", "demo"], cwd=tree, env=environment, capture_output=True, text=True, timeout=240)
    return result.returncode, (result.stdout + result.stderr).splitlines()


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_an_old_compiler_ends_in_one_line_before_any_download(tree):
    compiler = program(tree / "old-g++", 'echo "g++ (Old) 8.3.0"; [ "$1" = --version ]')
    code, lines = make_demo(tree, CXX=compiler)
    assert code != 0
    assert len(lines) == 1 and "C++20" in lines[0] and "g++ (Old) 8.3.0" in lines[0] and "set CXX" in lines[0]
    assert not (tree / ".venv").exists()


def test_an_unsuitable_python_ends_in_one_line(tree):
    code, lines = make_demo(tree, PYTHON=program(tree / "python3.9", "exit 1"))
    assert code != 0 and len(lines) == 1
    assert "3.11" in lines[0] and "PYTHON=" in lines[0]


def test_a_python_that_cannot_make_environments_is_named(tree):
    partial = program(tree / "python-partial", 'case "$2" in *ensurepip*) exit 1;; esac')
    code, lines = make_demo(tree, PYTHON=partial)
    assert code != 0 and len(lines) == 1
    assert "python3-venv" in lines[0]


def test_no_network_ends_in_a_line_that_says_so(tree):
    code, lines = make_demo(
        tree, PIP_CONFIG_FILE=os.devnull, PIP_INDEX_URL="http://127.0.0.1:1/simple", PIP_RETRIES="0")
    assert code != 0
    assert "no package index" in lines[-1] and "build/install.log" in lines[-1]
    assert len(lines) <= 8, lines
    assert (tree / "build" / "install.log").read_text()


def test_the_constraints_pin_everything_and_name_no_address(checkout):
    lines = (checkout / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert len(pins) > 40
    for pin in pins:
        name, equals, version = pin.partition("==")
        assert equals and name and version and "+" not in version and "/" not in pin, pin
        assert name.replace("_", "-") != "lambda-svc"


def test_what_is_installed_is_what_is_pinned(checkout):
    if Path(sys.prefix) != checkout / ".venv":
        pytest.skip("not the environment that `make` installs")
    for line in (checkout / "constraints.txt").read_text().splitlines():
        name, equals, pinned = line.partition("==")
        if equals:
            assert version(name) == pinned, name
