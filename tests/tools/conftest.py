"""Environments for commands that these tests start."""

import os

import pytest


@pytest.fixture
def bare_environment() -> dict[str, str]:
    """This process's environment without a preloaded allocator."""
    return {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "LAMBDA_SVC_JEMALLOC")}
