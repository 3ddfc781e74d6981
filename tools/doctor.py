"""`lambda-svc doctor`: what this machine and installation offer the service, what is missing and what to do about it.

Each check is a function that returns findings. `fail` means the service cannot run, `warn` that it runs slower or with
less than it could; the exit code is 1 for a `fail` and 0 otherwise. TensorFlow's library is opened in a process of its
own: on a CPU that is too old it ends with an illegal instruction, which must not end the doctor.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tools import host
from tools.launcher import SWITCH, find_jemalloc, live_allocator

__all__ = ["CHECKS", "Finding", "examine", "run"]

Status = Literal["ok", "info", "warn", "fail"]
_COLOURS = {"ok": "green", "info": "cyan", "warn": "yellow", "fail": "red"}
_THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_OPEN = """
import ctypes, sys
for path in sys.argv[1:]:
    library = ctypes.CDLL(path)
library.TF_Version.restype = ctypes.c_char_p
print(library.TF_Version().decode())
"""
_ENGINE = "import sys; from lambda_svc.session import open_engine; print(open_engine(sys.argv[1]).version)"
_REINSTALL = "pip install --force-reinstall --no-deps tensorflow-cpu==2.21.*"
_NOFILE_MIN = 4096
_CORES = ("paramserver", "feature_store", "lambda_svc")
_VERSIONS = ("lambda-svc", "tensorflow-cpu", "grpcio", "protobuf", "numpy", "pyarrow", "pydantic")


@dataclass(frozen=True)
class Finding:
    """One line of the report; `advice` is empty when there is nothing to do."""

    name: str
    value: str
    status: Status = "ok"
    advice: str = ""


def allocator() -> Iterator[Finding]:
    """Which allocator malloc comes from in this process."""
    live = live_allocator()
    if live == "jemalloc":
        yield Finding("allocator", live)
    elif find_jemalloc() is None:
        yield Finding("allocator", live, "warn", "install libjemalloc2; `serve` then preloads it by itself")
    else:
        yield Finding("allocator", live, "info", f"libjemalloc is installed but not preloaded ({SWITCH}=0?)")


def huge_pages() -> Iterator[Finding]:
    """Transparent and reserved huge pages; large tables ask for them with madvise."""
    text = _read(_THP)
    mode = text.partition("[")[2].partition("]")[0] or "absent"
    if mode in ("always", "madvise"):
        yield Finding("transparent huge pages", mode)
    else:
        yield Finding("transparent huge pages", mode, "warn", f"as root: echo madvise > {_THP}; lookups get faster")
    reserved = next((line.split()[1] for line in _read(Path("/proc/meminfo")).splitlines()
                     if line.startswith("HugePages_Total:")), "0")
    yield Finding("hugetlb pages", reserved, "info", "nothing: tables ask for transparent huge pages")


def cpu() -> Iterator[Finding]:
    """Model, the features that the cores dispatch on, and what they dispatch to."""
    features = host.cpu_features()
    wanted = ("avx2", "fma", "f16c", "avx512f", "avx512_bf16", "amx_bf16")
    yield Finding("cpu", host.cpu_model())
    present = [name for name in wanted if name in features]
    yield Finding("cpu features", " ".join(present) or f"none of {' '.join(wanted)}")
    yield Finding("instruction set used", *_dispatched())


def cores() -> Iterator[Finding]:
    """Cores by affinity and by the cgroup's quota; thread pools are sized to the smaller."""
    allowed, limits = len(host.cpus_allowed()), host.cgroup_limits()
    quota = "no quota" if limits.cpus is None else f"quota {limits.cpus:.2f}"
    yield Finding("cores", f"{allowed} by affinity, {quota} (cgroup v{limits.version}), {os.cpu_count()} in the host")


def memory() -> Iterator[Finding]:
    """Memory of the machine and the cgroup's limit."""
    limit = host.cgroup_limits().memory_bytes
    shown = "no limit" if limit is None else f"limit {limit / 2**30:.1f} GiB"
    yield Finding("memory", f"{host.memory_bytes() / 2**30:.1f} GiB, {shown}")


def process_limits() -> Iterator[Finding]:
    """Locked memory and open files."""
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    shown = "unlimited" if locked == resource.RLIM_INFINITY else f"{locked / 2**20:.0f} MiB"
    yield Finding("memlock limit", shown, "info", "nothing: no memory is locked")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    few = files != resource.RLIM_INFINITY and files < _NOFILE_MIN
    yield Finding("open files limit", str(files), "warn" if few else "ok",
                  f"raise it to {_NOFILE_MIN} or more (ulimit -n): one per connection" if few else "")


def compiler() -> Iterator[Finding]:
    """The C++ compiler; only building needs one."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        path = shutil.which(name) if name else None
        if path:
            line = subprocess.run([path, "--version"], capture_output=True, text=True).stdout.partition("\n")[0]
            yield Finding("compiler", line, "info", "nothing: only building from source needs it")
            return
    yield Finding("compiler", "none", "info", "to build from source: g++ 11 or clang++ 14 or newer")


def native_cores() -> Iterator[Finding]:
    """The extension modules of the packages."""
    for package in _CORES:
        try:
            importlib.import_module(f"{package}._core")
            yield Finding(f"{package} core", "loads")
        except ImportError as error:
            yield Finding(f"{package} core", str(error), "fail", "build it (`make installed`), or reinstall the wheel")


def tensorflow_library() -> Iterator[Finding]:
    """TensorFlow's C API, found as the service finds it: without importing the Python package."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        yield Finding("tensorflow library", "not installed", "fail", _REINSTALL)
        return
    libraries = [Path(spec.submodule_search_locations[0], f"libtensorflow_{part}.so.2") for part in ("framework", "cc")]
    absent = [path.name for path in libraries if not path.exists()]
    if absent:
        yield Finding("tensorflow library", f"{', '.join(absent)} missing", "fail", _REINSTALL)
        return
    command = [sys.executable, "-c", _OPEN, *map(str, libraries)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if result.returncode == 0:
        yield Finding("tensorflow library", f"{result.stdout.strip()} loads")
    elif result.returncode < 0:
        yield Finding("tensorflow library", f"killed by signal {-result.returncode}", "fail",
                      "this CPU is too old for TensorFlow's wheel: it needs AVX")
    else:
        yield Finding("tensorflow library", result.stderr.strip().splitlines()[-1], "fail", _REINSTALL)


def engines() -> Iterator[Finding]:
    """The engines that `engine.kind` may name beside TensorFlow, opened as the service opens them."""
    for kind, extra in (("openvino", "openvino"), ("onnxruntime", "onnx")):
        command = [sys.executable, "-c", _ENGINE, kind]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if result.returncode == 0:
            yield Finding(f"engine {kind}", f"{result.stdout.strip()} loads")
        else:
            reason = f"killed by signal {-result.returncode}" if result.returncode < 0 else \
                result.stderr.strip().splitlines()[-1].partition(": ")[2]
            yield Finding(f"engine {kind}", reason, "info", f"to use it: pip install 'lambda-svc[{extra}]'")


def versions() -> Iterator[Finding]:
    """Versions of Python, the kernel and the packages that matter."""
    yield Finding("python", f"{platform.python_version()} on {platform.system()} {platform.release().split('-')[0]}")
    for package in _VERSIONS:
        try:
            yield Finding(package, version(package))
        except PackageNotFoundError:
            yield Finding(package, "not installed", "warn", f"pip install {package}")


def emulator() -> Iterator[Finding]:
    """qemu, with which the tests run the cores on older CPUs."""
    path = shutil.which("qemu-x86_64")
    advice = "nothing: only tests on older CPUs need it" if path else "to test on older CPUs: install qemu-user"
    yield Finding("qemu-x86_64", "found" if path else "none", "info", advice)


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    cpu, cores, memory, huge_pages, allocator, process_limits, native_cores, tensorflow_library, engines,
    versions, compiler, emulator,
)


def examine() -> list[Finding]:
    """Findings of every check, in the order of CHECKS."""
    return [finding for check in CHECKS for finding in check()]


def run(as_json: bool) -> int:
    """Prints the findings as a table or as JSON; returns 1 when the service cannot run here, else 0."""
    findings = examine()
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        console = Console()
        console.print(_table(findings))
        console.print(_summary(findings), highlight=False)
    return 1 if any(item.status == "fail" for item in findings) else 0


def _table(findings: list[Finding]) -> Table:
    """The findings; a column of advice only when there is some."""
    advised = any(item.advice for item in findings)
    table = Table("what", "found", "", *(["what to do"] if advised else []), title="lambda-svc doctor",
                  title_justify="left")
    for item in findings:
        status = f"[{_COLOURS[item.status]}]{item.status}[/]"
        table.add_row(escape(item.name), escape(item.value), status, *([escape(item.advice)] if advised else []))
    return table


def _summary(findings: list[Finding]) -> str:
    """Whether the service can run, and what to look at."""
    counts = Counter(item.status for item in findings)
    if counts["fail"]:
        return f"The service cannot run here: mend what says fail ({counts['fail']} of {len(findings)} findings)."
    if counts["warn"]:
        return f"The service can run here; {counts['warn']} of {len(findings)} findings could be better, see warn."
    return f"The service can run here; {len(findings)} findings, nothing to mend."


def _dispatched() -> tuple[str, Status]:
    """What the parameter server's core says it runs on, from a table of its own."""
    try:
        paramserver = importlib.import_module("paramserver")
        return str(paramserver.Table("doctor", 8).stats().instruction_set), "ok"
    except (ImportError, AttributeError):
        return "unknown: the core does not load", "warn"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
