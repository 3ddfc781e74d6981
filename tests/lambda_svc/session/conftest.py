"""The graphs of the engines' contract, once a session."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def contract_graphs() -> Path:
    """A folder of <name>.pb and <name>.onnx; see contract_graphs.py. Kept between runs: imports are what takes long."""
    script = Path(__file__).with_name("contract_graphs.py")
    made_of = script.read_bytes() + (ROOT / "models" / "onnx.py").read_bytes()
    made_of += "".join(version(package) for package in ("tensorflow-cpu", "tf2onnx", "onnx")).encode()
    folder = Path(tempfile.gettempdir()) / (
        f"lambda_svc-contract-{os.getuid()}-{hashlib.sha256(made_of).hexdigest()[:16]}"
    )
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            done = subprocess.run([sys.executable, str(script), fresh], capture_output=True, text=True, env=environment)
            assert done.returncode == 0, done.stderr
            with contextlib.suppress(OSError):  # another run was first
                Path(fresh).rename(folder)
            Path(fresh).mkdir(exist_ok=True)
    return folder
