"""The reference's own hash and logarithm against published values, and the native core against the reference."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import feature_store as fs
from feature_store import _core, reference

# Digests of the reference implementation (github.com/Cyan4973/xxHash) for its own generated test buffer.
SANITY = [(0, 2654435761, 0xAC75FDA2929B17EF), (1, 0, 0xE934A84ADB052768), (1, 2654435761, 0x5014607643A9B4C3),
          (4, 0, 0x9136A0DCA57457EE), (14, 0, 0x8282DCC4994E35C8), (14, 2654435761, 0xC3BD6BF63DEB6DF0),
          (222, 0, 0xB641AE8CB691C174), (222, 2654435761, 0x20CB8AB7AE10C14A)]


def sanity_buffer(size: int) -> bytes:
    generator, out = 2654435761, bytearray()
    for _ in range(size):
        out.append(generator >> 56)
        generator = generator * 11400714785074694797 & ((1 << 64) - 1)
    return bytes(out)


@pytest.mark.parametrize(("size", "seed", "digest"), SANITY)
def test_xxh64_of_the_sanity_buffer(size, seed, digest):
    assert reference.xxh64(sanity_buffer(size), seed) == digest == _core.xxh64(sanity_buffer(size), seed)


@pytest.mark.parametrize(("text", "digest"), [(b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B),
                                              (b"abc", 0x44BC2CF5AD770999)])
def test_xxh64_of_published_strings(text, digest):
    assert reference.xxh64(text) == digest == _core.xxh64(text, 0)


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(0, (1 << 64) - 1))
def test_xxh64_of_anything_equals_the_reference(data, seed):
    assert _core.xxh64(data, seed) == reference.xxh64(data, seed)


@settings(deadline=None, max_examples=300)
@given(st.floats(width=32, min_value=-1, exclude_min=True, allow_infinity=False))
def test_log1p_is_within_one_rounding_of_the_truth(value):
    got, truth = reference.log1p(np.float32(value)), np.float32(math.log1p(value))
    assert abs(int(got.view(np.int32)) - int(truth.view(np.int32))) <= 1


FEATURES = (
    fs.Feature("f", "item", "f32", default=-1.5),
    fs.Feature("i", "item", "i64", default=(1 << 64) - 3),
    fs.Feature("b", "item", "bytes", default=b"\xfe"),
    fs.Feature("v", "item", "f32", "dense", 2, default=(0.5, float("inf"))),
    fs.Feature("m", "item", "bytes", "multi", 5),
    fs.Feature("s", "item", "f32", "sequence", 4),
)
floats = st.floats(width=32) | st.sampled_from([0.0, -0.0, -1.0, 1e-45])
ids = st.integers(-(1 << 63), (1 << 63) - 1)
CELLS = {"f": floats, "i": ids, "b": st.binary(max_size=40), "v": st.lists(floats, min_size=2, max_size=2),
         "m": st.lists(st.binary(max_size=40), max_size=5), "s": st.lists(floats, max_size=4)}
f32_ops = st.lists(st.just(fs.Log1p()) | st.tuples(floats, floats).filter(lambda p: not any(map(math.isnan, p)))
                   .map(lambda p: fs.Clip(min(p), max(p))), max_size=3)
boundaries = st.lists(st.integers(-50, 50), min_size=1, max_size=40, unique=True).map(lambda b: tuple(sorted(b)))
cuts = st.lists(st.builds(fs.Truncate, st.integers(1, 6), st.sampled_from(["first", "last"])), max_size=2)
seeds = st.integers(0, (1 << 64) - 1)


@st.composite
def random_slots(draw):
    """A chain of each shape that type-checks."""
    bucketize = draw(st.lists(boundaries.map(fs.Bucketize), max_size=1))
    crosses = draw(st.lists(st.builds(fs.Cross, st.sampled_from(["i", "b"]), seeds), max_size=2))
    hashing = fs.Hash64(draw(seeds))
    pad = draw(st.lists(st.builds(fs.Pad, st.integers(5, 7), st.integers(-2, 2)), max_size=1))
    return [
        fs.Slot("f", "f", (*draw(f32_ops), *bucketize, *(crosses if bucketize else ()))),
        fs.Slot("i", "i", crosses),
        fs.Slot("b", "b", (hashing, *crosses)),
        fs.Slot("v", "v", (*draw(f32_ops), *bucketize)),
        fs.Slot("m", "m", (*draw(cuts), hashing, *draw(cuts), *pad)),
        fs.Slot("s", "s", (*draw(cuts), *draw(f32_ops), *bucketize, *draw(cuts), *pad)),
    ]


@settings(deadline=None, max_examples=60)
@given(slots=random_slots(), data=st.data())
def test_native_gives_the_bytes_of_the_reference(every_implementation, slots, data):
    """Whatever the chains, rows, keys and own columns: equal bytes on every instruction set."""
    schema = fs.Schema(FEATURES)
    stored = data.draw(st.lists(ids, max_size=8, unique=True), "stored")
    cells = {name: data.draw(st.lists(st.none() | values, min_size=len(stored), max_size=len(stored)), name)
             for name, values in CELLS.items()}
    table = pa.table({"id": pa.array(stored, pa.int64()),
                      **{f.name: pa.array(cells[f.name], fs.arrow_type(f)) for f in FEATURES}})
    keys = np.array(data.draw(st.lists(st.sampled_from([*stored, 17]), max_size=12), "keys"), np.int64)
    own = {f.name: fs.Column.of(f, data.draw(st.lists(CELLS[f.name], min_size=len(keys), max_size=len(keys))))
           for f in FEATURES if data.draw(st.booleans(), f"own {f.name}")}
    results = [implementation.extractor(schema, slots, "item", implementation.cache.from_arrow(schema, "item", table))
               .gather(keys, own) for implementation in every_implementation]
    for result in results[1:]:
        assert result.stats == results[0].stats and result.known.tolist() == results[0].known.tolist()
        for name, expected in results[0].items():
            for part in ("values", "offsets", "lengths"):
                a, b = getattr(expected, part), getattr(result[name], part)
                assert (a is None) == (b is None)
                if a is not None:
                    assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), (name, part, a, b)
