"""What this process may use of the machine: CPU, cores, memory and limits, read from /proc, /sys and cgroup v1 or v2.

Paths are parameters so that tests can show another machine.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CgroupLimits", "cgroup_limits", "cpu_features", "cpu_model", "cpus_allowed", "memory_bytes"]

_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_CGROUP_ROOT = Path("/sys/fs/cgroup")
_CGROUP_SELF = Path("/proc/self/cgroup")
_UNLIMITED_BYTES = 1 << 60  # cgroup v1 writes "no limit" as a huge number of pages


@dataclass(frozen=True)
class CgroupLimits:
    """Limits that the cgroup puts on this process: `cpus` (may be a fraction) and `memory_bytes`, None without one."""

    version: int
    cpus: float | None
    memory_bytes: int | None


def cpu_model(cpuinfo: Path = _CPUINFO) -> str:
    """The CPU's marketing name, or `unknown CPU`."""
    return _cpuinfo_field(cpuinfo, "model name") or "unknown CPU"


def cpu_features(cpuinfo: Path = _CPUINFO) -> frozenset[str]:
    """The CPU's flags as the kernel names them (`avx2`, `avx512f`, `amx_bf16` ...)."""
    return frozenset((_cpuinfo_field(cpuinfo, "flags") or "").split())


def cpus_allowed() -> frozenset[int]:
    """The cores that this process's affinity allows."""
    return frozenset(os.sched_getaffinity(0))


def memory_bytes(meminfo: Path = _MEMINFO) -> int:
    """The machine's memory; the cgroup's limit, when lower, is in `cgroup_limits`."""
    for line in meminfo.read_text(encoding="ascii").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def cgroup_limits(root: Path = _CGROUP_ROOT, membership: Path = _CGROUP_SELF) -> CgroupLimits:
    """The tightest limits on the way from this process's cgroup up to the root, v2 or v1."""
    paths = _memberships(membership)
    if (root / "cgroup.controllers").exists():
        folders = _upwards(root, paths.get("", "/"))
        return CgroupLimits(2, _least(map(_cpus_v2, folders)), _least(map(_memory_v2, folders)))
    cpu = _upwards(_controller(root, "cpu"), paths.get("cpu", "/"))
    memory = _upwards(_controller(root, "memory"), paths.get("memory", "/"))
    return CgroupLimits(1, _least(map(_cpus_v1, cpu)), _least(map(_memory_v1, memory)))


def _cpuinfo_field(cpuinfo: Path, field: str) -> str | None:
    for line in cpuinfo.read_text(encoding="ascii", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return None


def _memberships(membership: Path) -> dict[str, str]:
    """Controller to cgroup path; v2's single hierarchy has the empty name."""
    paths: dict[str, str] = {}
    for line in (_read(membership) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _controller(root: Path, name: str) -> Path:
    joined = root / "cpu,cpuacct"
    return joined if name == "cpu" and joined.exists() else root / name


def _upwards(root: Path, path: str) -> list[Path]:
    """The cgroup's folder and its parents up to `root`; inside a container the path may not exist, the root does."""
    folder = root / path.strip("/")
    folders = [folder]
    while folder != root:
        folder = folder.parent
        folders.append(folder)
    return folders


def _cpus_v2(folder: Path) -> float | None:
    quota, _, period = (_read(folder / "cpu.max") or "max").partition(" ")
    return None if quota == "max" else int(quota) / int(period or 100_000)


def _memory_v2(folder: Path) -> int | None:
    text = _read(folder / "memory.max") or "max"
    return None if text == "max" else int(text)


def _cpus_v1(folder: Path) -> float | None:
    quota = int(_read(folder / "cpu.cfs_quota_us") or -1)
    period = int(_read(folder / "cpu.cfs_period_us") or 100_000)
    return None if quota < 0 else quota / period


def _memory_v1(folder: Path) -> int | None:
    limit = int(_read(folder / "memory.limit_in_bytes") or _UNLIMITED_BYTES)
    return None if limit >= _UNLIMITED_BYTES else limit


def _least(values):
    least = min((value for value in values if value is not None), default=math.inf)
    return None if least == math.inf else least


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return None
