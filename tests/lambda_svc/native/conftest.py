"""Graphs, the C++ test library and an engine, once a session."""

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

from lambda_svc.session.tensorflow import TensorFlowEngine
from tests.lambda_svc.native.library import TestLibrary


@pytest.fixture(scope="session")
def graphs() -> Path:
    """A folder of <name>.pb; see graphs.py. Kept between runs, since importing TensorFlow is most of the work."""
    script = Path(__file__).with_name("graphs.py")
    digest = hashlib.sha256(script.read_bytes() + version("tensorflow-cpu").encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"lambda_svc-graphs-{os.getuid()}-{digest}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
            subprocess.run([sys.executable, str(script), fresh], check=True, capture_output=True)
            with contextlib.suppress(OSError):  # another run was first
                Path(fresh).rename(folder)
            Path(fresh).mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def library(tmp_path_factory) -> TestLibrary:
    """The C++ test library."""
    return TestLibrary(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="session")
def engine() -> TensorFlowEngine:
    """An engine with two intra-op threads."""
    return TensorFlowEngine(intra_op_threads=2)
