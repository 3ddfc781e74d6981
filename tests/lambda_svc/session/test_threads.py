"""CPU counts from affinity and cgroups, v1 and v2."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lambda_svc.session.threads import cgroup_cpus, usable_cpus


def host(folder: Path, membership: str, files: dict[str, str]) -> tuple[Path, Path]:
    """A /proc and a /sys/fs/cgroup with the given content."""
    proc, cgroups = folder / "proc", folder / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(membership)
    cgroups.mkdir()
    for name, text in files.items():
        path = cgroups / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return proc, cgroups


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/a/b\n", {"a/b/cpu.max": "50000 100000\n", "a/cpu.max": "150000 100000\n"}, 0.5),
        ("0::/\n", {"cpu.max": "300000 100000\n"}, 3.0),
        ("0::/on/the/host\n", {"cpu.max": "200000 100000\n"}, 2.0),
        ("0::/a\n", {"a/cpu.max": "max 100000\n"}, None),
        (
            "4:cpu,cpuacct:/a\n1:memory:/b\n",
            {"cpu,cpuacct/a/cpu.cfs_quota_us": "250000\n", "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n"},
            2.5,
        ),
        ("4:cpu,cpuacct:/x\n", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1.0),
        ("4:cpu:/a\n", {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, None),
        ("4:cpuset:/a\n", {"cpuset/a/cpu.cfs_quota_us": "1", "cpuset/a/cpu.cfs_period_us": "1"}, None),
    ],
)
def test_the_tightest_quota_on_the_way_to_the_root_counts(tmp_path, membership, files, expected):
    assert cgroup_cpus(*host(tmp_path, membership, files)) == expected


def test_usable_cpus_is_the_smaller_of_quota_and_affinity(tmp_path):
    affinity = len(os.sched_getaffinity(0))
    proc, cgroups = host(tmp_path, "0::/\n", {"cpu.max": "max 100000"})
    assert usable_cpus(proc, cgroups) == affinity
    (cgroups / "cpu.max").write_text("10000 100000")
    assert usable_cpus(proc, cgroups) == 1
    (cgroups / "cpu.max").write_text(f"{(affinity * 100000) - 50000} 100000")
    assert usable_cpus(proc, cgroups) == affinity
    assert usable_cpus(tmp_path / "none", tmp_path / "none") == affinity
    assert 1 <= usable_cpus() <= affinity
