"""How many CPUs this process may use: affinity and the quotas of its cgroups (v1 and v2), never the host's cores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["cgroup_cpus", "usable_cpus"]


def usable_cpus(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """The smaller of affinity and cgroup quota, rounded up to whole CPUs, at least 1."""
    affinity = len(os.sched_getaffinity(0))
    quota = cgroup_cpus(proc, cgroups)
    return affinity if quota is None else max(1, min(affinity, -int(-quota // 1)))


def cgroup_cpus(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> float | None:
    """The tightest CPU quota on the way from this process's cgroup to the root, in CPUs; None when there is none."""
    quotas = [quota for folder in _folders(proc, cgroups) if (quota := _quota(folder)) is not None]
    return min(quotas, default=None)


def _folders(proc: Path, cgroups: Path) -> Iterator[Path]:
    """Every cgroup folder that may hold a quota for this process, up to the root of its hierarchy."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        roots = [cgroups] if not controllers else [cgroups / controllers, cgroups / "cpu"]
        for root in roots:
            # A container often sees its own group as the root while /proc names the host's path.
            folder = root / path.lstrip("/")
            yield from (root / part for part in (folder, *folder.parents) if part.is_relative_to(root))


def _quota(folder: Path) -> float | None:
    v2 = _words(folder / "cpu.max")
    if len(v2) == 2 and v2[0] != "max":
        return int(v2[0]) / int(v2[1])
    quota, period = _words(folder / "cpu.cfs_quota_us"), _words(folder / "cpu.cfs_period_us")
    if quota and period and int(quota[0]) > 0:
        return int(quota[0]) / int(period[0])
    return None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
