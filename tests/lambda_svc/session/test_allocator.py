"""What a run frees stays mapped: the next run does not fault it in anew. In processes of their own, as malloc's
settings are process-wide; in a thread, as requests are."""

import os
import subprocess
import sys

import pytest

CHURN = """
import resource, sys, threading
import numpy as np
from lambda_svc._core import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory(2)

def run():  # the temporaries of one run, freed at its end
    kept = [np.ones(size // 8) for size in (3 << 20, 11 << 20, 7 << 20, 19 << 20)]
    del kept

def churn():
    for _ in range(5):
        run()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        run()
    print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 20)

thread = threading.Thread(target=churn)
thread.start()
thread.join()
"""


def faults_per_run(mode: str) -> int:
    environment = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "GLIBC_TUNABLES")}
    command = [sys.executable, "-c", CHURN, mode]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(not hasattr(os, "confstr") or "glibc" not in (os.confstr("CS_GNU_LIBC_VERSION") or ""),
                    reason="only glibc has these settings")
def test_freed_memory_is_not_faulted_in_anew():
    default, kept = faults_per_run("default"), faults_per_run("keep")
    assert default > 500, "the churn no longer shows what is to be avoided"
    assert kept < default / 20
