"""What only the native extractor has: instruction sets, the capsule, and many threads."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import feature_store as fs
from feature_store import _core
from feature_store.extractor import ISA_VARIABLE

CAPSULE = b"feature_store.FeatureSource.1"


@pytest.fixture
def store(schema, slots, table):
    return fs.Extractor(schema, slots, "item", fs.FeatureCache.from_arrow(schema, "item", table))


def test_the_widest_instruction_set_is_chosen_unless_told(schema, slots, monkeypatch):
    monkeypatch.delenv(ISA_VARIABLE, raising=False)
    assert fs.Extractor(schema, slots, "item").isa == _core.isas_available()[-1]
    monkeypatch.setenv(ISA_VARIABLE, "scalar")
    assert fs.Extractor(schema, slots, "item").isa == "scalar"


@pytest.mark.parametrize("isa", ["avx2", "avx512", "neon"])
def test_an_instruction_set_that_is_not_there_is_refused(schema, slots, monkeypatch, isa):
    monkeypatch.setenv(ISA_VARIABLE, isa)
    if isa in _core.isas_available():
        assert fs.Extractor(schema, slots, "item").isa == isa
        return
    with pytest.raises(fs.IsaError, match=f"got '{isa}', expected one that this CPU has: scalar"):
        fs.Extractor(schema, slots, "item")


def test_the_capsule_outlives_the_extractor(store):
    capsule = store.capsule
    del store
    gc.collect()
    valid = ctypes.pythonapi.PyCapsule_IsValid
    valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    assert valid(capsule, CAPSULE) == 1
    assert valid(capsule, b"feature_store.FeatureSource.2") == 0


def test_many_threads_give_the_same_bytes(store, schema, table):
    keys = np.resize(np.array([*table["id"].to_pylist(), 999]), 3000)
    column = {"words": fs.Column.of(schema.feature("words"), [["a", "bc"], []] * 1500)}
    expected = store.gather(keys, column)

    def gather(_: int) -> None:
        got = store.gather(keys, column)
        assert got.stats == expected.stats
        for name, out in expected.items():
            for part in ("values", "offsets", "lengths"):
                a, b = getattr(out, part), getattr(got[name], part)
                assert (a is None and b is None) or a.tobytes() == b.tobytes()

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(gather, i) for i in range(64)]:
            done.result()


def test_request_columns_may_be_unaligned(store):
    data = b"\0" + np.array([3.0, 4.0], "<f4").tobytes()
    column = fs.Column(np.frombuffer(data, "<f4", offset=1), shape=(2,))
    assert store.gather(np.array([1, 2]), {"price": column})["price"].values.tolist() == [3.0, 4.0]


def test_too_many_rows_for_int32_offsets_are_refused(store):
    with pytest.raises(fs.CallerError, match="gather them in parts"):
        store._refuse_too_many(1 << 29)


def test_mismatched_outs_are_a_programmers_error(store):
    with pytest.raises(fs.ProgrammerError, match="no room for 1 rows"):
        store._native.gather(np.zeros(1, np.int64), [None] * len(store.features),
                             [(np.empty(0, np.float32), None, None)] * len(store.slots), np.empty(1, np.uint8))


def test_nothing_else_of_the_project_is_imported():
    code = "import feature_store, feature_store.reference, sys; print(*{m.split('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    imported = set(done.stdout.split())
    assert "feature_store" in imported
    assert not imported & {"lambda_svc", "models", "paramserver", "tools", "tensorflow"}
