"""The C++ suite and the check of the CPU, as pytest sees them."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest

from lambda_svc._core import Arena


def test_the_cpp_suite_passes(native_build):
    done = subprocess.run([native_build("lambda_svc_test")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_an_old_cpu_is_named_instead_of_crashing(native_build):
    emulator = shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("needs qemu-x86_64 (Debian package qemu-user) to be an older CPU")
    command = [emulator, "-cpu", "Nehalem-v1", native_build("lambda_svc_test"), "--missing-cpu-features"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "avx"


def test_arena_options_are_checked():
    with pytest.raises(ValueError, match="block_bytes: got 5000"):
        Arena(bytes_max=1 << 20, block_bytes=5000)
    arena = Arena(bytes_max=1 << 20)
    stats = arena.stats()
    assert (stats.leases, stats.leased_bytes, stats.pooled_bytes, stats.peak_bytes) == (0, 0, 0, 0)
    assert not arena.owns(np.zeros(1).ctypes.data)
