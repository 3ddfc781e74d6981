"""The native core on a CPU without AVX: the contract suite, run by an emulator of Intel's Nehalem (2008)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QEMU = shutil.which("qemu-x86_64")
CHOSEN = "native and (stored_rows or nan_and_infinities or training or truncate or pad_cells or overrides or tile)"


@pytest.mark.skipif(QEMU is None, reason="qemu-x86_64 is not installed (Debian: apt-get install qemu-user)")
@pytest.mark.skipif("FEATURE_STORE_EMULATED" in os.environ, reason="this already is the emulated CPU")
def test_the_contract_holds_without_avx():
    # Emulated imports and assertion rewriting cost seconds each, so the run goes without what it does not need.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [ROOT, *sys.path])),
                   "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [QEMU, "-cpu", "Nehalem-v1", sys.executable, "-m", "pytest", "-v", "-x", "--assert=plain",
               "-p", "no:cacheprovider", "-k", CHOSEN, str(Path(__file__).parent / "test_contract.py")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[native-scalar] PASSED" in done.stdout
    assert "[native-avx2]" not in done.stdout
