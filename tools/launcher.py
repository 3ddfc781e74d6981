"""Starts the server under jemalloc: a process that has threads and large arrays fragments less there than in glibc.

An allocator can only be chosen before a process starts, so `reexec_with_jemalloc` replaces this process by itself with
the system's libjemalloc preloaded. Without one, or with `LAMBDA_SVC_JEMALLOC=0`, everything runs on glibc.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["SWITCH", "find_jemalloc", "live_allocator", "preload_environment", "reexec_with_jemalloc"]

SWITCH = "LAMBDA_SVC_JEMALLOC"  # 0: never preload
_OPTIONS = "MALLOC_CONF"
# An engine's temporaries are freed and asked for again with every run: pages that are kept need not be faulted in anew.
_KEEP = "background_thread:true,dirty_decay_ms:60000,muzzy_decay_ms:60000"
_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
_NAMES = ("libjemalloc.so.2", "libjemalloc.so")


def find_jemalloc(folders: Sequence[str] = _FOLDERS) -> Path | None:
    """The system's libjemalloc, or None."""
    for folder in folders:
        for name in _NAMES:
            path = Path(folder, name)
            if path.exists():
                return path
    return None


def live_allocator(maps: Path = Path("/proc/self/maps")) -> str:
    """`jemalloc` when malloc comes from it in this process, else `glibc`.

    Having the library mapped is not enough (a wheel may carry one for itself): it must be the preloaded one.
    """
    preloaded = [Path(item).name for item in os.environ.get("LD_PRELOAD", "").replace(":", " ").split()]
    mapped = {Path(line.split(maxsplit=5)[5].strip()).name for line in maps.read_text(encoding="utf-8").splitlines()
              if len(line.split(maxsplit=5)) == 6}
    is_live = any("jemalloc" in name for name in preloaded) and any("libjemalloc" in name for name in mapped)
    return "jemalloc" if is_live else "glibc"


def preload_environment(environment: Mapping[str, str], library: Path | None) -> dict[str, str] | None:
    """The environment to start again with, or None when there is nothing to change."""
    preload = environment.get("LD_PRELOAD", "")
    if environment.get(SWITCH, "1") == "0" or library is None or "jemalloc" in preload:
        return None
    return {_OPTIONS: _KEEP, **environment, "LD_PRELOAD": f"{library}:{preload}" if preload else str(library)}


def reexec_with_jemalloc() -> None:
    """Replaces this process by the same command line under jemalloc; returns when there is nothing to change."""
    environment = preload_environment(os.environ, find_jemalloc())
    if environment is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
