"""What the feature store's tests share: the implementations under one contract, and one small store of items."""

from __future__ import annotations

import os
from dataclasses import dataclass
from unittest import mock

import pyarrow as pa
import pytest

import feature_store as fs
from feature_store import _core, reference
from feature_store.extractor import ISA_VARIABLE


@dataclass(frozen=True)
class Implementation:
    """A cache and an extractor class that obey the contract; `isa` is empty for the plain-Python reference."""

    name: str
    isa: str

    @property
    def cache(self) -> type:
        return fs.FeatureCache if self.isa else reference.ReferenceCache

    def extractor(self, *args: object) -> fs.Extractor | reference.ReferenceExtractor:
        if not self.isa:
            return reference.ReferenceExtractor(*args)
        with mock.patch.dict(os.environ, {ISA_VARIABLE: self.isa}):
            return fs.Extractor(*args)


IMPLEMENTATIONS = [Implementation("reference", ""),
                   *(Implementation(f"native-{isa}", isa) for isa in _core.isas_available())]


@pytest.fixture(params=IMPLEMENTATIONS, ids=lambda implementation: implementation.name)
def implementation(request: pytest.FixtureRequest) -> Implementation:
    """Each implementation, the native one once for each instruction set that this CPU has."""
    return request.param


@pytest.fixture(scope="session")
def every_implementation() -> list[Implementation]:
    """All of them, the reference first."""
    return IMPLEMENTATIONS


ITEM_FEATURES = (
    fs.Feature("price", "item", "f32", default=2.5),
    fs.Feature("count", "item", "i64", default=-7),
    fs.Feature("title", "item", "bytes", default=b"\xff\x00none"),
    fs.Feature("vector", "item", "f32", "dense", 3, default=(1.0, float("nan"), -0.0)),
    fs.Feature("pair", "item", "bytes", "dense", 2, default=b"?"),
    fs.Feature("tags", "item", "i64", "multi", 4),
    fs.Feature("words", "item", "bytes", "multi", 3),
    fs.Feature("seen", "item", "i64", "sequence", 5),
    fs.Feature("ratings", "item", "f32", "sequence", 3),
)
ITEM_SLOTS = (
    fs.Slot("price", "price"),
    fs.Slot("log_price", "price", (fs.Clip(0, 1e6), fs.Log1p())),
    fs.Slot("price_bucket", "price", (fs.Log1p(), fs.Bucketize((0.0, 1.0, 2.0)))),
    fs.Slot("count", "count"),
    fs.Slot("title", "title", (fs.Hash64(seed=3),)),
    fs.Slot("count_x_title", "count", (fs.Cross("title", seed=9),)),
    fs.Slot("bucket_x_count_x_count", "price", (fs.Bucketize((2.0,)), fs.Cross("count"), fs.Cross("count", 1))),
    fs.Slot("vector", "vector"),
    fs.Slot("vector_bucket", "vector", (fs.Bucketize((0.0, 1.0)),)),
    fs.Slot("pair", "pair", (fs.Hash64(),)),
    fs.Slot("tags", "tags"),
    fs.Slot("tags_last", "tags", (fs.Truncate(2, "last"),)),
    fs.Slot("tags_padded", "tags", (fs.Truncate(3), fs.Pad(6, -1))),
    fs.Slot("words", "words", (fs.Hash64(),)),
    fs.Slot("words_padded", "words", (fs.Truncate(2, "last"), fs.Hash64((1 << 64) - 1), fs.Truncate(1), fs.Pad(2, 5))),
    fs.Slot("seen", "seen"),
    fs.Slot("seen_short", "seen", (fs.Truncate(2, "last"),)),
    fs.Slot("ratings", "ratings", (fs.Log1p(),)),
    fs.Slot("ratings_bucket", "ratings", (fs.Bucketize((1.0, 3.0)), fs.Pad(4, -9))),
    fs.Slot("ratings_nan", "ratings", (fs.Pad(3, float("nan")),)),
)


@pytest.fixture
def schema() -> fs.Schema:
    """Nine item features of every kind and dtype, one user feature, one context feature."""
    others = (fs.Feature("age", "user", "f32"), fs.Feature("hour", "context", "i64"))
    return fs.Schema(ITEM_FEATURES + others)


@pytest.fixture
def slots() -> tuple[fs.Slot, ...]:
    """Twenty item slots that use every transform, one user slot, one context slot."""
    return (*ITEM_SLOTS, fs.Slot("age", "age", (fs.Log1p(),)), fs.Slot("hour", "hour"))


@pytest.fixture
def table() -> pa.Table:
    """Four items: full, without anything, with empty bags, and with the longest bags."""
    return pa.table({
        "id": pa.array([10, -1, -(1 << 63), (1 << 63) - 1], pa.int64()),
        "price": pa.array([1.0, None, float("nan"), float("inf")], pa.float32()),
        "count": pa.array([5, None, -(1 << 63), 0], pa.int64()),
        "title": pa.array([b"a title that is longer than thirty-two bytes", None, b"", b"\x80\xfe"], pa.binary()),
        "vector": pa.array([[1, 2, 3], None, [-0.0, 0.0, 1e-40], [9, 8, 7]], pa.list_(pa.float32(), 3)),
        "pair": pa.array([[b"x", b"yy"], None, [b"", b""], [b"long " * 20, b"z"]], pa.list_(pa.binary(), 2)),
        "tags": pa.array([[1], None, [], [4, 3, 2, 1]], pa.list_(pa.int64())),
        "words": pa.array([["one", "two"], None, [], ["a", "b", "c"]], pa.list_(pa.string())),
        "seen": pa.array([[7, 8], None, [], [1, 2, 3, 4, 5]], pa.list_(pa.int64())),
        "ratings": pa.array([[0.5], None, [], [1.0, 3.0, 5.0]], pa.list_(pa.float32())),
    })
