"""What a host offers, read from made-up /proc and /sys trees."""

import os

from tools import host


def write(root, files):
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return root


def test_cpu_model_and_features(tmp_path):
    text = "processor : 0\nmodel name\t: Some CPU 9\nflags\t\t: sse2 avx2 fma\n"
    info = write(tmp_path, {"cpuinfo": text}) / "cpuinfo"
    assert host.cpu_model(info) == "Some CPU 9"
    assert host.cpu_features(info) == {"sse2", "avx2", "fma"}


def test_cgroup_v2_takes_the_tightest_limit_on_the_way_up(tmp_path):
    root = write(tmp_path, {
        "cgroup.controllers": "cpu memory", "a/cpu.max": "150000 100000", "a/memory.max": "max",
        "a/b/cpu.max": "max 100000", "a/b/memory.max": "1000", "self": "0::/a/b\n",
    })
    assert host.cgroup_limits(root, root / "self") == host.CgroupLimits(2, 1.5, 1000)


def test_cgroup_v1_reads_quota_and_limit(tmp_path):
    root = write(tmp_path, {
        "cpu,cpuacct/job/cpu.cfs_quota_us": "200000", "cpu,cpuacct/job/cpu.cfs_period_us": "100000",
        "memory/job/memory.limit_in_bytes": "4096", "memory/memory.limit_in_bytes": str((1 << 63) - 4096),
        "self": "4:memory:/job\n3:cpu,cpuacct:/job\n",
    })
    assert host.cgroup_limits(root, root / "self") == host.CgroupLimits(1, 2.0, 4096)


def test_no_limits_are_none(tmp_path):
    assert host.cgroup_limits(tmp_path, tmp_path / "absent") == host.CgroupLimits(1, None, None)


def test_this_machine_has_memory_and_cores():
    assert host.memory_bytes() > 1 << 28
    assert host.cpus_allowed() == os.sched_getaffinity(0)
