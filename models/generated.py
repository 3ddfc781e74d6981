"""A seeded stand-in for MovieLens-100K, of the same shape and with something to learn in it.

A rating is an item's quality, a user's mildness, the match of a few latent tastes that genres hint at, and noise. Items
are picked by a skewed popularity, and a user rates most of his items in one burst of time, as people do on a new site.
"""

import numpy as np
import pyarrow as pa

GENRES = (b"Action", b"Adventure", b"Animation", b"Children's", b"Comedy", b"Crime", b"Documentary", b"Drama",
          b"Fantasy", b"Film-Noir", b"Horror", b"Musical", b"Mystery", b"Romance", b"Sci-Fi", b"Thriller", b"War",
          b"Western")
OCCUPATIONS = (b"student", b"other", b"educator", b"administrator", b"engineer", b"programmer", b"librarian", b"writer",
               b"executive", b"scientist", b"artist", b"technician", b"marketing", b"entertainment", b"healthcare",
               b"retired", b"lawyer", b"salesman", b"none", b"homemaker", b"doctor")
START_S = 874_724_710
PERIOD_S = 18_561_928
BURST_S = 3_600
_TASTES = 6


def generate(ratings: int, users: int, items: int, seed: int) -> tuple[pa.Table, pa.Table, pa.Table]:
    """The tables `ratings`, `users` and `items` of a Dataset. Equal arguments give equal tables."""
    rng = np.random.default_rng(seed)
    genre_tastes = rng.normal(size=(len(GENRES), _TASTES)).astype(np.float32)
    genre_sets = [np.sort(rng.choice(len(GENRES), size=rng.integers(1, 4), replace=False)) for _ in range(items)]
    item_tastes = np.stack([genre_tastes[g].mean(0) for g in genre_sets]) + 0.4 * rng.normal(size=(items, _TASTES))
    quality = rng.normal(0, 0.55, items)
    user_tastes, mildness = rng.normal(0, 0.32, (users, _TASTES)), rng.normal(0, 0.4, users)
    user_rows, item_rows = _who_rates_what(rng, ratings, users, quality)
    score = 3.55 + quality[item_rows] + mildness[user_rows] + (user_tastes[user_rows] * item_tastes[item_rows]).sum(1)
    stars = np.clip(np.rint(score + rng.normal(0, 0.75, ratings)), 1, 5).astype(np.float32)
    table = pa.table({
        "user_id": (user_rows + 1).astype(np.int64),
        "item_id": (item_rows + 1).astype(np.int64),
        "rating": stars,
        "timestamp": _when(rng, user_rows, users),
    }).sort_by([("timestamp", "ascending"), ("user_id", "ascending"), ("item_id", "ascending")])
    return table, _users(rng, users), _items(rng, genre_sets)


def _who_rates_what(rng, ratings: int, users: int, quality: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct (user, item) pairs as two int arrays [ratings]; the good are rated more often, a few by nearly
    everybody."""
    items = len(quality)
    popularity = np.exp(quality + rng.normal(0, 1.3, items))
    activity = np.exp(rng.normal(0, 0.9, users))
    weights = np.log(activity)[:, None] + np.log(popularity)[None, :] + rng.gumbel(size=(users, items))
    chosen = np.argpartition(-weights.ravel(), ratings - 1)[:ratings]
    return np.divmod(np.sort(chosen), items)


def _when(rng, user_rows: np.ndarray, users: int) -> np.ndarray:
    """int64 Unix seconds: nine ratings in ten fall into the user's first hour, several in one second."""
    first = rng.integers(0, PERIOD_S - BURST_S, users)[user_rows]
    burst = rng.integers(0, BURST_S // 60, len(user_rows)) * 60
    later = (rng.random(len(user_rows)) * (PERIOD_S - first)).astype(np.int64)
    return (START_S + first + np.where(rng.random(len(user_rows)) < 0.9, burst, later)).astype(np.int64)


def _users(rng, users: int) -> pa.Table:
    shares = 1 / np.arange(1, len(OCCUPATIONS) + 1)
    return pa.table({
        "user_id": np.arange(1, users + 1, dtype=np.int64),
        "age": np.clip(rng.normal(34, 12, users), 7, 73).astype(np.int64).astype(np.float32),
        "gender": pa.array([(b"F", b"M")[g] for g in (rng.random(users) < 0.71).astype(int)], pa.binary()),
        "occupation": pa.array([OCCUPATIONS[o] for o in rng.choice(len(OCCUPATIONS), users, p=shares / shares.sum())],
                               pa.binary()),
        "zip_code": pa.array([b"%05d" % z for z in rng.integers(1000, 99999, users)], pa.binary()),
    })


def _items(rng, genre_sets: list[np.ndarray]) -> pa.Table:
    years = 1998 - np.minimum(rng.exponential(9, len(genre_sets)).astype(int), 76)
    return pa.table({
        "item_id": np.arange(1, len(genre_sets) + 1, dtype=np.int64),
        "title": pa.array([f"Generated film {i}" for i in range(1, len(genre_sets) + 1)], pa.string()),
        "year": years.astype(np.float32),
        "genres": pa.array([[GENRES[g] for g in genres] for genres in genre_sets], pa.list_(pa.binary())),
    })
