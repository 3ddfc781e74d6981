"""Golden requests of the MovieLens model: real test rows, and in every fourth request what real data lacks: unknown ids
and genres, no genres, no history, an unknown occupation.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from .errors import DatasetError
from .features import RatedRows
from .golden import golden_table
from .inputs import SCHEMA

__all__ = ["GOLDEN_ROWS_MIN", "golden_requests"]

GOLDEN_ROWS_MIN = 256
CANDIDATES = 12
UNKNOWN_IDS = (0, -7, 2**62 + 1, -(2**63))
UNKNOWN_GENRE = b"Telenovela"
UNKNOWN_OCCUPATION = b"lighthouse keeper"


def golden_requests(rows: RatedRows, test_rows: np.ndarray, seed: int = 0) -> pa.Table:
    """At least GOLDEN_ROWS_MIN rows of raw features, as models.golden describes them, without scores.

    Raises DatasetError when there are no test rows.
    """
    rng = np.random.default_rng(seed)
    groups = -(-GOLDEN_ROWS_MIN // CANDIDATES)
    if not len(test_rows):
        raise DatasetError("no test rows to record golden requests from")
    chosen = np.sort(rng.choice(test_rows, groups, replace=len(test_rows) < groups))
    records = [record for group, row in enumerate(chosen) for record in _request(rows, rng, group, row)]
    return golden_table(SCHEMA, records)


def _request(rows: RatedRows, rng: np.random.Generator, group: int, row: int) -> Iterator[dict]:
    """The records of one request: the user at a test row's moment, the row's item and others drawn beside it."""
    moment = rows.moments.of_row[row]
    user = _user(rows, rows.user_ids[row], moment)
    context = {name: float(v[0]) for name, v in rows.context_columns(rows.moments.timestamps[[moment]]).items()}
    others = rng.choice(rows.items["id"].to_numpy(), CANDIDATES - 1)
    items = _items(rows, np.concatenate([rows.item_ids[[row]], others]))
    if group % 4 == 0:
        kind = group // 4 % 3
        if kind == 0:
            user |= {"history_item": [], "history_rating": []}
        elif kind == 1:
            user |= {"occupation": UNKNOWN_OCCUPATION}
        else:
            user |= {"history_item": list(UNKNOWN_IDS), "history_rating": [5.0, 1.0, 3.0, 4.0]}
        for place, unknown in enumerate(UNKNOWN_IDS):
            items[place + 1]["movie_id"] = unknown
        items[5]["genres"] = [UNKNOWN_GENRE, *items[5]["genres"][:2]]
        items[6]["genres"] = [UNKNOWN_GENRE]
        items[7]["genres"] = []
        items[8] = {name: _default(name) for name in items[8]}
    for item in items:
        yield {
            "group": group,
            **{f"user:{name}": value for name, value in user.items()},
            **{f"context:{name}": value for name, value in context.items()},
            **{f"item:{name}": value for name, value in item.items()},
        }


def _user(rows: RatedRows, user_id: int, moment: int) -> dict:
    m = rows.moments
    place = int(np.searchsorted(rows.users["id"].to_numpy(), user_id))
    user = {name: rows.users[name][place].as_py() for name in ("age", "gender", "occupation")}
    history = slice(m.offsets[moment], m.offsets[moment + 1])
    return user | {"history_item": m.history_items[history].tolist(),
                   "history_rating": m.history_ratings[history].tolist()}


def _items(rows: RatedRows, ids: np.ndarray) -> list[dict]:
    places = np.searchsorted(rows.items["id"].to_numpy(), ids)
    records = rows.items.take(pa.array(places)).rename_columns({"id": "movie_id"}).to_pylist()
    return [{name: _default(name) if value is None else value for name, value in r.items()} for r in records]


def _default(name: str):
    feature = SCHEMA.feature(name)
    return [] if feature.is_ragged else feature.default_values[0]
