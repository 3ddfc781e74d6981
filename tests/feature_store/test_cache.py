"""Loading stored features: what is refused, and by which name."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feature_store as fs


def replaced(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


@pytest.mark.parametrize(("name", "column", "message"), [
    ("price", pa.array([1.0] * 4), "column 'price': got Arrow values of type double, expected float"),
    ("count", pa.array(["1"] * 4), "column 'count': got Arrow values of type large_binary"),
    ("title", pa.array([1] * 4), "column 'title': got Arrow values of type int64, expected binary or string"),
    ("tags", pa.array([1] * 4), "column 'tags': got Arrow type int64, expected list"),
    ("tags", pa.array([[1], [], [], [1, 2, 3, 4, 5]]),
     r"column 'tags': got 5 values in row 3 \(id 9223372036854775807\), expected at most 4"),
    ("seen", pa.array([[1] * 6, [], [], []]), r"'seen': got 6 values in row 0 \(id 10\), expected at most 5"),
    ("tags", pa.array([[1], [2, None], [], []]), r"null inside a list in row 1 \(id -1\)"),
    ("vector", pa.array([[1, 2]] * 4, pa.list_(pa.float32(), 2)), r"got 2 values in row 0 \(id 10\), expected 3"),
    ("id", pa.array([1, 2, 3, 1]), "id 1 stands"),
    ("id", pa.array([1, None, 3, 4]), "key column 'id': got a null in row 1"),
    ("id", pa.array([1.0, 2.0, 3.0, 4.0]), "key column 'id': got type double"),
], ids=str)
def test_columns_that_do_not_match_are_refused(implementation, schema, table, name, column, message):
    with pytest.raises(fs.DataError, match=message):
        implementation.cache.from_arrow(schema, "item", replaced(table, name, column))


def test_missing_columns_are_named(implementation, schema, table):
    with pytest.raises(fs.DataError, match="feature column 'tags': is missing"):
        implementation.cache.from_arrow(schema, "item", table.drop_columns(["tags"]))
    with pytest.raises(fs.DataError, match="key column 'item_id': is missing"):
        implementation.cache.from_arrow(schema, "item", table, key="item_id")
    with pytest.raises(fs.DataError, match="'price': stands 2 times"):
        implementation.cache.from_arrow(schema, "item", table.append_column("price", table["price"]))


def test_a_feature_that_only_requests_bring(implementation, schema, slots, table):
    cache = implementation.cache.from_arrow(schema, "item", table.drop_columns(["tags"]), request_only=["tags"])
    got = implementation.extractor(schema, slots, "item", cache).gather(np.array([10]))
    assert got["tags"].offsets.tolist() == [0, 0] and got.stats == fs.GatherStats(9, 8)
    with pytest.raises(fs.DataError, match="did you mean 'tags'"):
        fs.FeatureCache.from_arrow(schema, "item", table, request_only=["tagz"])


def test_all_null_columns_are_absent(implementation, schema, slots, table):
    for name in ("price", "title", "words", "vector"):
        table = replaced(table, name, pa.nulls(4))
    got = implementation.extractor(schema, slots, "item", implementation.cache.from_arrow(schema, "item", table)
                                   ).gather(np.array([10]))
    assert got["price"].values.tolist() == [2.5] and got.stats == fs.GatherStats(9, 5)


def test_arrow_arrays_in_chunks_slices_and_other_encodings(implementation, schema, slots, table):
    table = replaced(table, "title", table["title"].cast(pa.large_binary()))
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1, 2), table.slice(3, 1)])
    keys = table["id"].to_numpy()
    got = [implementation.extractor(schema, slots, "item", implementation.cache.from_arrow(schema, "item", part)
                                    ).gather(keys) for part in (table, chunked, chunked.slice(1, 3))]
    for name, expected in got[0].items():
        assert got[1][name].values.tobytes() == expected.values.tobytes()
    assert got[2].known.tolist() == [False, True, True, True]


@pytest.mark.parametrize("content", [None, b"PAR1 but not really"])
def test_files_that_cannot_be_read(implementation, schema, tmp_path, content):
    path = tmp_path / "items.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(fs.DataError, match="cannot read .*items.parquet"):
        implementation.cache.from_parquet(schema, "item", path)


def test_parquet_with_dictionary_pages_and_strings(schema, table, tmp_path):
    words = pa.array([["one", "two"], None, [], ["a", "b", "c"]])
    pq.write_table(replaced(table, "words", words), tmp_path / "a.parquet", use_dictionary=True, compression="zstd")
    assert len(fs.FeatureCache.from_parquet(schema, "item", str(tmp_path / "a.parquet"))) == 4


def test_many_rows_are_all_found():
    schema = fs.Schema((fs.Feature("x", "item", "f32"),))
    rng = np.random.default_rng(7)
    ids = np.unique(rng.integers(-(1 << 63), (1 << 63) - 1, 200_000, endpoint=True))
    rng.shuffle(ids)
    values = rng.random(len(ids), np.float32)
    cache = fs.FeatureCache.from_arrow(schema, "item", pa.table({"id": ids, "x": values}))
    got = fs.Extractor(schema, [fs.Slot("x", "x")], "item", cache).gather(ids[::-1].copy())
    assert got.known.all() and np.array_equal(got["x"].values, values[::-1])
    assert not cache.contains(np.setdiff1d(ids + 1, ids)).any()
    assert len(ids) * 20 < cache.nbytes < len(ids) * 60


def test_contains_reads_uint64_as_the_same_bits(schema, table):
    cache = fs.FeatureCache.from_arrow(schema, "item", table)
    assert cache.contains(np.array([(1 << 64) - 1, 1 << 63, 3], np.uint64)).tolist() == [True, True, False]
    assert cache.contains([]).tolist() == []


def test_a_cache_of_another_schema_is_refused(schema, slots, table):
    other = fs.Schema(tuple(fs.Feature("price", "item", "f32", default=3) if f.name == "price" else f
                            for f in schema.features if f.name != "seen"))
    cache = fs.FeatureCache.from_arrow(other, "item", table)
    with pytest.raises(fs.SchemaError) as caught:
        fs.Extractor(schema, slots, "item", cache)
    assert "feature 'price' was stored as" in str(caught.value) and "feature 'seen' is not stored" in str(caught.value)
    fs.Extractor(schema, [fs.Slot("count", "count")], "item", cache)
