"""Feature files with flipped, lost and added bytes: features or a typed error, never anything else.

Arrow itself aborts the process on arrays whose offsets contradict their buffers, so they must be refused before use.
"""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feature_store as fs

VARIANTS = {"plain": {"compression": "none", "use_dictionary": False}, "packed": {"compression": "zstd"}}


def damaged(raw: bytes, rng: random.Random, near_end: int) -> bytes:
    """A copy with one to five edits, six in ten of them within `near_end` bytes of the end."""
    copy = bytearray(raw)
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(copy)) if rng.random() < 0.4 else max(0, len(copy) - rng.randrange(1, near_end))
        edit = rng.random()
        if edit < 0.8:
            copy[at] = rng.choice((rng.randrange(256), copy[at] ^ 1 << rng.randrange(8), 127, 255))
        elif edit < 0.9:
            del copy[at : at + rng.randint(1, 8)]
        else:
            copy[at:at] = rng.randbytes(rng.randint(1, 4))
    return bytes(copy)


@pytest.fixture
def item_slots(slots):
    return [slot for slot in slots if slot.name not in ("age", "hour")]


@pytest.mark.parametrize("variant", VARIANTS)
def test_damaged_parquet_gives_only_typed_errors(schema, item_slots, table, tmp_path, variant):
    rng, path, outcomes = random.Random(5), tmp_path / "items.parquet", set()
    pq.write_table(table, path, **VARIANTS[variant])
    good, keys = path.read_bytes(), table["id"].to_numpy()
    for _ in range(250):
        path.write_bytes(damaged(good, rng, 1200))
        try:
            cache = fs.FeatureCache.from_parquet(schema, "item", path)
        except fs.DataError:
            outcomes.add("refused")
        else:
            fs.Extractor(schema, item_slots, "item", cache).gather(keys)
            outcomes.add("read")
    assert outcomes == {"refused", "read"}


def test_a_column_name_that_is_no_text_is_a_data_error(schema, table, tmp_path):
    path = tmp_path / "items.parquet"
    pq.write_table(table, path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"price", b"\xe5rice"))
    with pytest.raises(fs.DataError, match=r"cannot read .*items\.parquet"):
        fs.FeatureCache.from_parquet(schema, "item", path)


def test_damaged_arrow_columns_give_only_typed_errors(schema, item_slots, table):
    rng, sink, outcomes = random.Random(6), pa.BufferOutputStream(), set()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    good, extractor = sink.getvalue().to_pybytes(), fs.Extractor(schema, item_slots, "item")
    for _ in range(1500):
        raw = damaged(good, rng, len(good))
        try:
            read = pa.ipc.open_file(pa.py_buffer(raw)).read_all()
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            continue
        try:
            columns = {f.name: fs.Column.of(f, read[f.name]) for f in schema.side("item")}
            extractor.gather(None, columns)
            outcomes.add("read")
        except (KeyError, fs.FeatureError):
            outcomes.add("refused")
    assert outcomes == {"refused", "read"}


@pytest.mark.parametrize("offsets", [[0, 9, 2], [0, -1, 1], [0, 2, 1]])
def test_offsets_outside_of_their_buffer_are_refused(offsets):
    feature = fs.Feature("tags", "item", "i64", "multi", 8)
    buffers = [None, pa.py_buffer(np.array(offsets, np.int32))]
    array = pa.Array.from_buffers(pa.list_(pa.int64()), 2, buffers, children=[pa.array([7, 8])])
    with pytest.raises(fs.FeatureError, match="feature 'tags'"):
        fs.Column.of(feature, array)
    table = pa.table({"id": [1, 2], "tags": array})
    with pytest.raises(fs.DataError, match="column 'tags'"):
        fs.FeatureCache.from_arrow(fs.Schema((feature,)), "item", table)
