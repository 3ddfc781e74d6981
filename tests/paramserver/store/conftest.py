"""Where the tests of the store write, and which tables they use."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from paramserver import Table
from paramserver.reference import ReferenceTable

from tests.paramserver.store import making
from tests.paramserver.store.making import Clock, serving

SHARED_MEMORY = Path("/dev/shm")
SPACE_BYTES = 256 << 20


@pytest.fixture
def tmp_path(tmp_path):
    """A folder in memory where there is one with space: the tests sync a lot, and none depends on a real disk."""
    usable = SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK)
    if not usable or shutil.disk_usage(SHARED_MEMORY).free < SPACE_BYTES:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="paramserver-store-", dir=SHARED_MEMORY) as folder:
        yield Path(folder)


@pytest.fixture(params=[Table, ReferenceTable], ids=["native", "reference"])
def each_table(request, monkeypatch):
    """Runs a test with native tables and with those in Python."""
    monkeypatch.setattr(making, "TABLE_CLASS", request.param)


@pytest.fixture
def clock():
    """The time that leases go by."""
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    """A store that serves, and holds what was published for ten seconds of the clock."""
    with serving(tmp_path / "shard", clock=clock, hold_s=10.0) as store:
        yield store
