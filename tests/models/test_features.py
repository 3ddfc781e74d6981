"""Feature tables, test requests and training inputs agree with the data and with each other."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from feature_store import FeatureCache
from models.examples import Examples, build_vocabularies
from models.errors import DatasetError
from models.features import RatedRows, features_for
from models.inputs import INPUTS, SCHEMA
from models.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def rows(tiny_dataset):
    return RatedRows(tiny_dataset)


def test_tables_go_through_parquet_into_the_feature_store(tiny_dataset, tmp_path):
    features = features_for(tiny_dataset)
    users, items = features.write(tmp_path)
    assert pq.read_table(users).equals(features.users)
    assert len(FeatureCache.from_parquet(SCHEMA, "user", users)) == len(tiny_dataset.users)
    assert len(FeatureCache.from_parquet(SCHEMA, "item", items)) == len(tiny_dataset.items)
    assert features.titles[1] == "Generated film 1"


def test_stored_history_is_the_latest(tiny_dataset, rows):
    user = int(rows.user_ids[-1])
    stored = rows.users["history_item"][rows.users["id"].to_pylist().index(user)].as_py()
    assert stored[0] in rows.item_ids[(rows.user_ids == user) & (rows.timestamps == rows.timestamps[-1])]


def test_requests_cover_the_test_rows_once_without_seeing_their_answers(tiny_dataset, rows):
    requests = features_for(tiny_dataset).requests
    test = rows.split().test
    assert sorted(np.concatenate([r.rows for r in requests])) == sorted(test)
    for request in requests:
        np.testing.assert_array_equal(rows.item_ids[request.rows], request.item_ids)
        np.testing.assert_array_equal(rows.ratings[request.rows] >= 4, request.labels["liked"])
        assert set(rows.user_ids[request.rows]) == {request.user_id}
        assert set(rows.timestamps[request.rows]) == {request.timestamp}
        own = rows.user_ids == request.user_id
        earlier = own & (rows.timestamps < request.timestamp)
        assert set(request.user["history_item"]) <= set(rows.item_ids[earlier])
        assert len(request.user["history_item"]) == min(int(earlier.sum()), 50)
        assert 0 <= request.context["hour"] < 24 and 0 <= request.context["weekday"] < 7


def test_context_is_utc(rows):
    raw = rows.context_columns(np.array([0, 1_000_000_000]))
    assert raw["hour"].tolist() == [0, 1] and raw["weekday"].tolist() == [4, 0]


def test_batches_hold_what_the_rows_say(rows):
    split = rows.split()
    vocabularies = build_vocabularies(rows, split.train)
    assert set(vocabularies["item"].ids) == set(rows.item_ids[split.train])
    examples = Examples(rows, vocabularies)
    chosen = np.array([5, 900, len(rows.item_ids) - 1, 5])
    batch = examples.batch(chosen)
    assert set(batch) == {entry.name for entry in INPUTS}
    np.testing.assert_array_equal(batch["item"], vocabularies["item"].rows(rows.item_ids[chosen]))
    genres = rows.items["genres"].to_pylist()
    counts = np.bincount(batch["genres_segments"], minlength=4)
    assert counts.tolist() == [len(genres[i - 1]) for i in rows.item_ids[chosen]]
    moment = rows.moments.of_row[900]
    span = slice(rows.moments.offsets[moment], rows.moments.offsets[moment + 1])
    length = batch["history_length"][1]
    np.testing.assert_array_equal(batch["history_item"][1, :length],
                                  vocabularies["item"].rows(rows.moments.history_items[span]))
    np.testing.assert_array_equal(batch["history_rating"][1, :length], rows.moments.history_ratings[span])
    assert not batch["history_rating"][1, length:].any()


def test_some_ids_are_replaced_to_train_the_unknown_row(rows):
    vocabularies = build_vocabularies(rows, rows.split().train)
    batch = Examples(rows, vocabularies).batch(np.arange(2_000), np.random.default_rng(0), 0.1)
    for entry in INPUTS:
        if entry.table:
            share = (batch[entry.name] == vocabularies[entry.table].oov_row).mean()
            assert share > 0.05, entry.name


def test_vocabulary_is_total_over_64_bits():
    vocabulary = Vocabulary.of(np.array([5, -1, 2**63 - 1, -(2**63), 5]))
    assert vocabulary.rows(np.array([-(2**63), -1, 5, 2**63 - 1, 0, 6])).tolist() == [0, 1, 2, 3, 4, 4]
    assert (vocabulary.table_rows, vocabulary.oov_row) == (5, 4)
    assert Vocabulary.of(np.array([], np.int64)).rows(np.array([3])).tolist() == [0]
    with pytest.raises(DatasetError):
        Vocabulary(np.array([2, 1]))
