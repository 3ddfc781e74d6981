"""One contract, every implementation: the plain-Python reference and the native core on each instruction set."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feature_store as fs

UNKNOWN = 999


@pytest.fixture
def store(implementation, schema, slots, table):
    """An extractor over the four items."""
    return implementation.extractor(schema, slots, "item", implementation.cache.from_arrow(schema, "item", table))


def test_stored_rows_come_in_the_order_of_the_keys(store):
    got = store.gather(np.array([10, (1 << 63) - 1, 10]))
    assert got["count"].values.tolist() == [5, 0, 5]
    assert got["price"].values.tolist() == [1.0, np.inf, 1.0]
    assert got["vector"].values.tolist() == [[1, 2, 3], [9, 8, 7], [1, 2, 3]]
    assert got.known.tolist() == [True, True, True]


def test_ids_may_be_uint64_and_any_pattern(store):
    keys = np.array([(1 << 64) - 1, 1 << 63, 10, UNKNOWN], np.uint64)
    assert store.gather(keys).known.tolist() == [True, True, True, False]


def test_unknown_and_null_give_defaults(store):
    got = store.gather(np.array([UNKNOWN, -1]))
    assert got.known.tolist() == [False, True]
    for row in (0, 1):
        assert got["price"].values[row] == 2.5
        assert got["count"].values[row] == -7
        assert got["vector"].values[row].tobytes() == np.array([1.0, np.nan, -0.0], np.float32).tobytes()
        assert got["seen"].lengths[row] == 0 and got["seen"].values[row].tolist() == [0] * 5
    assert got["tags"].offsets.tolist() == [0, 0, 0] and got["tags"].values.size == 0


def test_stats_count_only_cells_that_are_there(store):
    used = len(store.features)
    assert store.gather(np.array([10])).stats == fs.GatherStats(used, used)
    assert store.gather(np.array([UNKNOWN])).stats == fs.GatherStats(used, 0)
    assert store.gather(np.array([-1, 10, 10])).stats == fs.GatherStats(3 * used, 2 * used)


def test_stats_count_only_features_that_slots_read(implementation, schema, table):
    cache = implementation.cache.from_arrow(schema, "item", table)
    slots = [fs.Slot("a", "count", (fs.Cross("title"),)), fs.Slot("b", "count")]
    store = implementation.extractor(schema, slots, "item", cache)
    assert store.gather(np.array([10, UNKNOWN, -1])).stats == fs.GatherStats(6, 2)
    columns = {"count": fs.Column.of(schema.feature("count"), [1, 2, 3])}
    assert store.gather(np.array([10, UNKNOWN, -1]), columns).stats == fs.GatherStats(6, 4)


def test_zero_keys_give_empty_slots(store):
    got = store.gather(np.empty(0, np.int64))
    assert got["price"].values.shape == (0,) and got["vector"].values.shape == (0, 3)
    assert got["tags"].offsets.tolist() == [0]
    assert got["seen"].values.shape == (0, 5) and got["seen"].lengths.shape == (0,)
    assert got.stats == fs.GatherStats(0, 0)


def test_dtypes_and_shapes_are_what_the_specs_say(store):
    got = store.gather(np.array([10, UNKNOWN]))
    assert [spec.name for spec in store.slots] == list(got)
    for spec in store.slots:
        out = got[spec.name]
        assert out.values.dtype == {"f32": np.float32, "i64": np.int64}[spec.dtype]
        assert (out.offsets is not None) == (spec.layout == "ragged")
        assert (out.lengths is not None) == (spec.layout == "padded")
        if spec.layout != "ragged":
            wide = spec.layout == "padded" or spec.width > 1
            assert out.values.shape == ((2, spec.width) if wide else (2,))


def test_truncate_keeps_the_end_asked_for(store):
    got = store.gather(np.array([(1 << 63) - 1, 10]))
    assert got["tags"].values.tolist() == [4, 3, 2, 1, 1] and got["tags"].offsets.tolist() == [0, 4, 5]
    assert got["tags_last"].values.tolist() == [2, 1, 1] and got["tags_last"].offsets.tolist() == [0, 2, 3]
    assert got["seen_short"].values.tolist() == [[4, 5], [7, 8]]


def test_pad_cells_are_never_transformed(store):
    got = store.gather(np.array([10]))
    assert got["tags_padded"].values.tolist() == [[1, -1, -1, -1, -1, -1]]
    assert got["ratings_bucket"].values.tolist() == [[0, -9, -9, -9]] and got["ratings_bucket"].lengths.tolist() == [1]
    assert got["ratings"].values[0, 1:].tolist() == [0.0, 0.0]
    assert np.isnan(got["ratings_nan"].values[0, 1:]).all()


def test_nan_and_infinities(implementation):
    schema = fs.Schema((fs.Feature("x", "item", "f32"),))
    slots = [fs.Slot("log", "x", (fs.Log1p(),)), fs.Slot("clip", "x", (fs.Clip(-1, 2),)),
             fs.Slot("bucket", "x", (fs.Bucketize((-1, 0, 2)),))]
    values = np.array([np.nan, np.inf, -np.inf, -1, -2, -0.0, 1e-45, 2], np.float32)
    got = implementation.extractor(schema, slots, "item").gather(None, {"x": fs.Column(values, shape=(8,))})
    log = got["log"].values
    assert log.view(np.uint32)[[0, 2, 4]].tolist() == [0x7FC00000] * 3
    assert log[[1, 3]].tolist() == [np.inf, -np.inf]
    assert log[5:7].tobytes() == values[5:7].tobytes()
    clip = got["clip"].values
    assert np.isnan(clip[0]) and clip[1:5].tolist() == [2, -1, -1, -1] and np.signbit(clip[5])
    assert got["bucket"].values.tolist() == np.searchsorted([-1, 0, 2], values, side="right").tolist()
    assert got["bucket"].values.tolist() == [3, 3, 0, 1, 0, 2, 2, 3]


def test_a_column_of_the_request_overrides_all_rows(store, schema):
    columns = {"price": fs.Column.of(schema.feature("price"), np.array([3, 4], np.float32)),
               "words": fs.Column.of(schema.feature("words"), [[], ["two", "one"]]),
               "title": fs.Column.of(schema.feature("title"), [b"", b"\xff"])}
    got = store.gather(np.array([10, UNKNOWN]), columns)
    assert got["price"].values.tolist() == [3, 4]
    assert got["words"].offsets.tolist() == [0, 0, 2]
    assert got["count"].values.tolist() == [5, -7]
    assert got.stats.cells_present == 3 * 2 + (len(store.features) - 3)


def test_columns_of_training_and_rows_of_serving_give_the_same_bytes(implementation, store, schema, slots, table):
    columns = {feature.name: fs.Column.of(feature, table[feature.name]) for feature in schema.side("item")}
    trained = implementation.extractor(schema, slots, "item").gather(table["id"].to_numpy(), columns)
    for row, key in enumerate(table["id"].to_pylist()):
        served = store.gather(np.array([key]))
        for spec in store.slots:
            many, one = trained[spec.name], served[spec.name]
            if spec.layout == "ragged":
                cell = many.values[many.offsets[row] : many.offsets[row + 1]]
            else:
                cell = many.values[row : row + 1]
            assert cell.tobytes() == one.values.tobytes(), spec.name
            if spec.layout == "padded":
                assert many.lengths[row] == one.lengths[0]


def test_more_rows_than_a_tile(store, table):
    keys = np.resize(np.array([*table["id"].to_pylist(), UNKNOWN]), 1001)
    many, few = store.gather(keys), store.gather(keys[:5])
    assert many["tags"].offsets[-1] == 200 * few["tags"].offsets[-1] + few["tags"].offsets[1]
    for name in ("log_price", "count_x_title", "vector_bucket", "seen", "words_padded"):
        assert many[name].values[995:1000].tobytes() == few[name].values.tobytes()
    assert many["words"].values[-2:].tolist() == few["words"].values[:2].tolist()


def test_parquet_round_trip(implementation, store, schema, slots, table, tmp_path):
    pq.write_table(table.append_column("unrelated", pa.array(["x"] * 4)), tmp_path / "items.parquet", row_group_size=2)
    cache = implementation.cache.from_parquet(schema, "item", tmp_path / "items.parquet")
    assert len(cache) == 4 and cache.contains(np.array([10, 11])).tolist() == [True, False]
    keys = np.array([*table["id"].to_pylist(), UNKNOWN])
    ours, theirs = implementation.extractor(schema, slots, "item", cache).gather(keys), store.gather(keys)
    assert all(ours[name].values.tobytes() == theirs[name].values.tobytes() for name in theirs)


def test_a_side_compiles_its_own_slots_only(implementation, schema, slots):
    user = implementation.extractor(schema, slots, "user")
    assert [spec.name for spec in user.slots] == ["age"]
    assert [feature.name for feature in user.features] == ["age"]
    column = fs.Column.of(schema.feature("age"), [np.e - 1])
    assert user.gather(np.array([0]), {"age": column})["age"].values.tolist() == [1.0]


def test_an_unknown_column_names_the_nearest_feature(store, schema):
    column = fs.Column.of(schema.feature("price"), [1.0])
    with pytest.raises(fs.FeatureError, match="'prize'.*did you mean 'price'"):
        store.check("prize", column, 1)
    with pytest.raises(fs.FeatureError, match="'prize'"):
        store.gather(np.array([10]), {"prize": column})


def test_a_column_of_the_wrong_length_is_refused(store, schema):
    column = fs.Column.of(schema.feature("price"), [1.0] * 9)
    with pytest.raises(fs.FeatureError, match=r"'price': got shape \[9\], expected shape \[10\] for 10 rows"):
        store.gather(np.arange(10), {"price": column})


@pytest.mark.parametrize("keys", [np.array([1.0]), np.array([[1]]), np.array([1], np.int32)])
def test_keys_of_a_wrong_type_are_refused(store, keys):
    with pytest.raises(fs.CallerError, match="keys: got"):
        store.gather(keys)


def test_a_cache_of_another_side_is_refused(implementation, schema, slots, table):
    cache = implementation.cache.from_arrow(schema, "item", table)
    with pytest.raises(fs.SchemaError, match="holds side 'item', expected 'user'"):
        implementation.extractor(schema, slots, "user", cache)


def test_a_key_feature_is_the_row_id_itself(implementation):
    features = (fs.Feature("id", "item", "i64", "key"), fs.Feature("shelf", "item", "i64", default=4))
    schema = fs.Schema(features)
    crosses = [fs.Slot("shelf_x_id", "shelf", (fs.Cross("id"),)), fs.Slot("id_x_shelf", "id", (fs.Cross("shelf"),))]
    slots = [fs.Slot("id", "id"), *crosses]
    table = pa.table({"id": pa.array([3, -1], pa.int64()), "shelf": pa.array([8, None], pa.int64())})
    store = implementation.extractor(schema, slots, "item", implementation.cache.from_arrow(schema, "item", table))
    keys = np.array([3, UNKNOWN, -1, -(1 << 63)] * 150)
    got = store.gather(keys)
    np.testing.assert_array_equal(got["id"].values, keys)
    assert got.stats == fs.GatherStats(1200, 600 + 150)
    assert got.known[:4].tolist() == [True, False, True, False]
    shelves = {"shelf": fs.Column.of(schema.feature("shelf"), np.array([8, 4, 4, 4] * 150))}
    np.testing.assert_array_equal(got["id_x_shelf"].values, store.gather(keys, shelves)["id_x_shelf"].values)
    own = store.gather(keys, {"id": fs.Column.of(schema.feature("id"), keys + 1)})
    np.testing.assert_array_equal(own["id"].values, keys + 1)
    assert (own["shelf_x_id"].values != got["shelf_x_id"].values).all()


def test_a_key_feature_needs_no_cache(implementation):
    schema = fs.Schema((fs.Feature("id", "user", "i64", "key"),))
    got = implementation.extractor(schema, [fs.Slot("id", "id")], "user").gather(np.array([7]))
    assert got["id"].values.tolist() == [7] and got.stats == fs.GatherStats(1, 1)
