"""The package on a CPU without AVX2, F16C and FMA: an emulated one of 2008, so that the wheel's one binary is proven to
choose its instructions at run time. The whole suite passes there too, by hand and in minutes:
qemu-x86_64 -cpu Nehalem-v1 python -m pytest tests/paramserver."""

import os
import shutil
import subprocess
import sys

import pytest

# Rows of an odd dim in both stored types, pooling, every output type, and files through pyarrow.
SELECTION = ("gives_back_what_was_put and -17] or pooling_modes or weights_multiply or in_place_in_any_float "
             "or comes_back_as_it_was")


def test_the_contract_holds_on_a_cpu_without_avx(checkout):
    emulator = shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("qemu-x86_64 is not installed: apt install qemu-user to run this")
    suites = [f"tests/paramserver/{name}" for name in ("test_contract.py", "test_parquet.py")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(checkout), *sys.path]))}
    environment.pop("PARAMSERVER_ISA", None)
    command = [emulator, "-cpu", "Nehalem-v1", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
               "-k", SELECTION, *suites]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "avx" not in done.stdout and " passed" in done.stdout


def test_the_emulated_cpu_really_lacks_avx2():
    emulator = shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("qemu-x86_64 is not installed: apt install qemu-user to run this")
    program = "from paramserver import Table; print(Table('t', 1).stats().instruction_set)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment.pop("PARAMSERVER_ISA", None)
    command = [emulator, "-cpu", "Nehalem-v1", sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "scalar", done.stderr
