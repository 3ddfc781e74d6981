"""A running cluster for the commands that need one, and a way to run them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

CHECKOUT = Path(__file__).resolve().parents[3]
SERVE_S = 60


@pytest.fixture
def ps():
    """Runs `lambda-svc ps ...` in this process; returns its result."""
    from tools.cli import app

    return lambda *words: CliRunner().invoke(app, ["ps", *map(str, words)])


@pytest.fixture(scope="session")
def shell_environment(tmp_path_factory):
    """An environment whose `lambda-svc` is this checkout's."""
    folder = tmp_path_factory.mktemp("bin")
    script = folder / "lambda-svc"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tools.cli "$@"\n')
    script.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:/usr/bin:/bin", "PYTHONPATH": str(CHECKOUT)}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory, shell_environment):
    """A cluster of 2 shards x 2 replicas, its servers running; the example table is loaded and published as epoch 1."""
    directory = tmp_path_factory.mktemp("ps") / "cluster"

    def run(*words: object) -> None:
        subprocess.run(["lambda-svc", "ps", *map(str, words)], env=shell_environment, check=True, timeout=SERVE_S)

    run("init", directory, "--shards", 2, "--replicas", 2, "--first-port", 0, "--example")
    configs = sorted((directory / "servers").glob("*.yaml"))
    servers = subprocess.Popen(["lambda-svc", "ps", "serve", *map(str, configs)], env=shell_environment)
    try:
        run("load", directory / "example.parquet", "--cluster", directory, "--version", 1, "--wait-s", SERVE_S)
        run("publish", "--cluster", directory)
        yield directory
    finally:
        servers.terminate()
        servers.wait(SERVE_S)
