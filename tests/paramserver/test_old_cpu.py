"""The package on a CPU without AVX2, F16C and FMA: an emulated one of 2008, so that the wheel's one binary is proven to
choose its instructions at run time. The whole suite passes there too, by hand and in minutes:
qemu-x86_64 -cpu Nehalem-v1 python -m pytest tests/paramserver."""

import os
import shutil
import subprocess
import sys

import pytest

# Rows of an odd dim in both stored types, pooling, every output type, and files through pyarrow. The reference has no
# instructions to choose, and costs most of the time there.
SELECTION = ("not reference and not ReferenceTable and not mapped and (gives_back_what_was_put and -17] "
             "or pooling_modes or weights_multiply or in_place_in_any_float or comes_back_as_it_was)")


def test_the_contract_holds_on_a_cpu_without_avx(checkout):
    emulator = shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("qemu-x86_64 is not installed: apt install qemu-user to run this")
    suites = [f"tests/paramserver/{name}" for name in ("test_contract.py", "test_parquet.py")]
    # Emulated imports and assertion rewriting cost seconds each, so the run goes without what it does not need.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(checkout), *sys.path])),
                                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("PARAMSERVER_ISA", None)
    command = [emulator, "-cpu", "Nehalem-v1", sys.executable, "-m", "pytest", "-v", "--assert=plain",
               "-p", "no:cacheprovider", "-k", SELECTION, *suites]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    # The parameters are the sets that the CPU runs: the emulated one runs the scalar set only.
    assert "[scalar-f32-17] PASSED" in done.stdout and "avx" not in done.stdout
    assert "comes_back_as_it_was" in done.stdout
