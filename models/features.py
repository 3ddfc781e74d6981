"""A dataset as the feature store holds it: user and item tables, and the requests that its test rows stand for."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from feature_store import Column, Extractor, FeatureCache, Gathered

from .inputs import SCHEMA, SLOTS
from .moments import Moments, Split, latest_histories, moments, split_by_time
from .movielens import Dataset

__all__ = ["ENGAGED_FROM", "LIKED_FROM", "FeatureSet", "RatedRows", "TestRequest", "features_for"]

LIKED_FROM = 4.0
ENGAGED_FROM = 3.0
USERS_FILE, ITEMS_FILE = "users.parquet", "items.parquet"
_DAY_S, _HOUR_S, _EPOCH_WEEKDAY = 86_400, 3_600, 4


@dataclass(frozen=True)
class TestRequest:
    """All test rows of one user at one second: one ranking request with known outcomes.

    Attributes:
        user_id: the key in the user table.
        timestamp: Unix seconds.
        user: raw values that override the stored ones: history_item int64 [h], history_rating float32 [h], those with
            strictly smaller timestamps, the most recent first.
        context: raw values: hour and weekday (0 is Sunday), UTC, as float.
        item_ids: int64 [n], the candidates.
        ratings: float32 [n].
        labels: {"liked": bool [n], "engaged": bool [n]}.
        rows: int64 [n], row numbers in the dataset's ratings.
    """

    __test__ = False

    user_id: int
    timestamp: int
    user: dict[str, np.ndarray]
    context: dict[str, float]
    item_ids: np.ndarray
    ratings: np.ndarray
    labels: dict[str, np.ndarray]
    rows: np.ndarray


@dataclass(frozen=True)
class FeatureSet:
    """What a demo needs to serve a dataset.

    Attributes:
        users: `id` int64 and the user features; each with his latest history.
        items: `id` int64 and the item features that are stored.
        titles: item id to title; kept aside, no model input.
        requests: the test rows grouped by (user, timestamp), ascending.
    """

    users: pa.Table
    items: pa.Table
    titles: dict[int, str]
    requests: list[TestRequest]

    def write(self, directory: Path | str) -> tuple[Path, Path]:
        """Writes users.parquet and items.parquet into `directory` and returns their paths."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(self.users, folder / USERS_FILE)
        pq.write_table(self.items, folder / ITEMS_FILE)
        return folder / USERS_FILE, folder / ITEMS_FILE


def features_for(dataset: Dataset, test_share: float = 0.2) -> FeatureSet:
    """Feature tables and test requests of `dataset`, split as training splits it."""
    rows = RatedRows(dataset)
    ids = dataset.items["item_id"].to_pylist()
    titles = dict(zip(ids, dataset.items["title"].to_pylist(), strict=True))
    return FeatureSet(rows.users, rows.items, titles, rows.requests(rows.split(test_share).test))


class RatedRows:
    """A dataset's ratings with everything that features are made of. Built once; immutable.

    Attributes:
        user_ids, item_ids, timestamps: int64 [n]; ratings: float32 [n].
        moments: the (user, timestamp) pairs with their histories.
        users, items: the tables of FeatureSet.
    """

    def __init__(self, dataset: Dataset):
        """Groups the ratings and builds the tables."""
        self.dataset = dataset
        self.user_ids, self.item_ids = dataset.column("user_id"), dataset.column("item_id")
        self.ratings, self.timestamps = dataset.column("rating"), dataset.column("timestamp")
        columns = (self.user_ids, self.item_ids, self.ratings, self.timestamps)
        self.moments = moments(*columns)
        self.users = _user_table(dataset, latest_histories(*columns))
        self.items = pa.table({
            "id": dataset.items["item_id"],
            "year": dataset.items["year"],
            "genres": dataset.items["genres"],
        })

    def split(self, test_share: float = 0.2) -> Split:
        """Training and test rows by time."""
        return split_by_time(self.timestamps, test_share)

    @cached_property
    def labels(self) -> dict[str, np.ndarray]:
        """{"liked": bool [n], "engaged": bool [n]}."""
        return {"liked": self.ratings >= LIKED_FROM, "engaged": self.ratings >= ENGAGED_FROM}

    def context_columns(self, timestamps: np.ndarray) -> dict[str, np.ndarray]:
        """Raw context features, float32 [m], of Unix seconds int64 [m], UTC; weekday 0 is Sunday."""
        hours = timestamps // _HOUR_S % 24
        weekdays = (timestamps // _DAY_S + _EPOCH_WEEKDAY) % 7
        return {"hour": hours.astype(np.float32), "weekday": weekdays.astype(np.float32)}

    def gather_users(self, chosen: Moments) -> Gathered:
        """User slots of `chosen` moments, by the native extractor: profile from the table, history of the moment."""
        cache = FeatureCache.from_arrow(SCHEMA, "user", self.users)
        history = {"history_item": chosen.history_items, "history_rating": chosen.history_ratings}
        columns = {name: Column(values, row_offsets=chosen.offsets) for name, values in history.items()}
        return Extractor(SCHEMA, SLOTS, "user", cache).gather(chosen.user_ids, columns)

    def gather_context(self, chosen: Moments) -> Gathered:
        """Context slots of `chosen` moments."""
        raw = self.context_columns(chosen.timestamps)
        columns = {name: Column.of(SCHEMA.feature(name), values) for name, values in raw.items()}
        return Extractor(SCHEMA, SLOTS, "context").gather(None, columns)

    def gather_items(self, item_ids: np.ndarray) -> Gathered:
        """Item slots of these ids, int64 [n]."""
        cache = FeatureCache.from_arrow(SCHEMA, "item", self.items)
        return Extractor(SCHEMA, SLOTS, "item", cache).gather(item_ids)

    def requests(self, rows: np.ndarray) -> list[TestRequest]:
        """The requests that rating rows stand for, ascending by user, then time."""
        rows = rows[np.argsort(self.moments.of_row[rows], kind="stable")]
        numbers, starts = np.unique(self.moments.of_row[rows], return_index=True)
        return [self._request(m, group) for m, group in zip(numbers, np.split(rows, starts[1:]), strict=True)]

    def _request(self, number: int, rows: np.ndarray) -> TestRequest:
        m = self.moments
        history = slice(m.offsets[number], m.offsets[number + 1])
        context = self.context_columns(m.timestamps[number:number + 1])
        return TestRequest(
            user_id=int(m.user_ids[number]),
            timestamp=int(m.timestamps[number]),
            user={"history_item": m.history_items[history], "history_rating": m.history_ratings[history]},
            context={name: float(values[0]) for name, values in context.items()},
            item_ids=self.item_ids[rows],
            ratings=self.ratings[rows],
            labels={head: values[rows] for head, values in self.labels.items()},
            rows=rows,
        )


def _user_table(dataset: Dataset, latest: Moments) -> pa.Table:
    """One row per user; who never rated has an empty history."""
    ids = dataset.users["user_id"].to_numpy()
    at = np.searchsorted(latest.user_ids, ids)
    rated = (at < len(latest.user_ids)) & (latest.user_ids[np.minimum(at, len(latest.user_ids) - 1)] == ids)
    lengths = np.zeros(len(ids), np.int32)
    lengths[rated] = np.diff(latest.offsets)[at[rated]]
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    chosen = latest.take(at[rated])
    return pa.table({
        "id": dataset.users["user_id"],
        "age": dataset.users["age"],
        "gender": dataset.users["gender"],
        "occupation": dataset.users["occupation"],
        "history_item": pa.ListArray.from_arrays(offsets, pa.array(chosen.history_items)),
        "history_rating": pa.ListArray.from_arrays(offsets, pa.array(chosen.history_ratings)),
    })
