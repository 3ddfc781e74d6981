"""The C++ test library seen from Python: the probe op, and fake sources in capsules."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

from lambda_svc.session.tensorflow import find_library

__all__ = ["TestLibrary"]

ROOT = Path(__file__).parents[3]
NAMES = ("probe_op.cc", "fake_capsules.cc", "probe_op.h", "fakes.h")
SOURCES = [Path(__file__).with_name(name) for name in NAMES]


class _Record(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64)]


class TestLibrary:
    """Opens the library that CMake built with LAMBDA_SVC_TESTS=ON, or compiles it when there is no current one."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        self._library = ctypes.CDLL(str(_built() or _compile(folder)))
        self._library.lambda_fake_features.restype = ctypes.c_void_p
        self._library.lambda_fake_table.restype = ctypes.c_void_p
        self._library.lambda_probe_take.restype = ctypes.c_size_t
        self._new_capsule = ctypes.pythonapi.PyCapsule_New
        self._new_capsule.restype = ctypes.py_object
        self._new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self._names: list[bytes] = []

    def register_probe(self) -> None:
        """Makes the op LambdaSvcProbe known to TensorFlow in this process; again is fine."""
        assert self._library.lambda_probe_register(str(find_library()[1]).encode()) == 1

    def take_records(self) -> list[tuple[int, int]]:
        """(address, bytes) of every input the op saw since the last call."""
        records = (_Record * 1024)()
        count = self._library.lambda_probe_take(records, 1024)
        return [(record.address, record.bytes) for record in records[:count]]

    def features(self, slots: str) -> object:
        """A FeatureSource capsule; slots as in probe_op.h, "2 2 5;1 0 1"."""
        return self._capsule(self._library.lambda_fake_features(slots.encode()), b"feature_store.FeatureSource.1")

    def table(self, dim: int) -> object:
        """A RowSource capsule."""
        return self._capsule(self._library.lambda_fake_table(dim), b"paramserver.RowSource.3")

    def _capsule(self, pointer: int, name: bytes) -> object:
        self._names.append(name)  # a capsule only borrows its name
        return self._new_capsule(pointer, name, None)


def _built() -> Path | None:
    newest = max(source.stat().st_mtime for source in SOURCES)
    found = [
        path
        for path in ROOT.glob("build/*/lambda_svc/csrc/liblambda_svc_test_library.so")
        if path.stat().st_mtime >= newest
    ]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def _compile(folder: Path) -> Path:
    target = folder / "liblambda_svc_test_library.so"
    sources = [str(path) for path in SOURCES if path.suffix == ".cc"]
    flags = ["-std=c++20", "-O1", "-fPIC", "-shared", f"-I{ROOT}"]
    subprocess.run([os.environ.get("CXX", "c++"), *flags, *sources, "-o", str(target), "-ldl"], check=True)
    return target
