"""DIN with MMoE: target attention over a user's rated history, experts shared by two heads, `liked` and `engaged`.

The model has two halves: `lookup_*` turns row numbers into table rows, `score` turns rows into probabilities. Training
calls both on a batch of independent rows; the serving graph looks the user up once and tiles, see `serve`. The sources
are named in layers.py.
"""

from dataclasses import dataclass
from typing import NamedTuple

import keras
import tensorflow as tf

from ..errors import ConfigError
from ..inputs import AGE_BOUNDARIES, HOUR_BOUNDARIES, WEEKDAY_BOUNDARIES, YEAR_BOUNDARIES
from .layers import Mmoe, PooledEmbedding, TargetAttention, tiled

__all__ = ["HEADS", "DinMmoe", "DinMmoeConfig", "Rows"]

HEADS = ("liked", "engaged")
_RATING_CENTRE, _RATING_SCALE, _LIKED = 3.5, 1.5, 3.5
_MEAN_PRIOR = 5.0
_EPSILON = 1e-9
_UNITS = ("attention_units", "expert_units", "tower_units")


@dataclass(frozen=True)
class DinMmoeConfig:
    """Sizes: dims of table rows, units of each layer. Raises ConfigError for sizes that make no model."""

    item_dim: int = 16
    genre_dim: int = 8
    profile_dim: int = 4
    attention_units: tuple[int, ...] = (32, 16)
    experts: int = 3
    expert_units: tuple[int, ...] = (64, 32)
    tower_units: tuple[int, ...] = (16,)
    embedding_l2: float = 1e-4
    embedding_stddev: float = 0.02
    dropout: float = 0.2

    def __post_init__(self) -> None:
        """Refuse sizes that make no model, all problems at once."""
        sizes = {"item_dim": self.item_dim, "genre_dim": self.genre_dim, "profile_dim": self.profile_dim,
                 "experts": self.experts, **{f"{name}[{i}]": unit for name in _UNITS
                                             for i, unit in enumerate(getattr(self, name))}}
        problems = [f"{name} is {size}; expected 1 or more" for name, size in sizes.items() if size < 1]
        problems += [f"{name} is empty; expected at least one layer" for name in _UNITS if not getattr(self, name)]
        if not 0 <= self.dropout < 1:
            problems.append(f"dropout is {self.dropout}; expected 0 or more, and less than 1")
        if problems:
            raise ConfigError("; ".join(problems))


class Rows(NamedTuple):
    """What `score` takes; leading dimension b, one row per (user, candidate). float32 but for history_length.

    item [b, item_dim]; genres [b, genre_dim]; year [b, profile_dim]; history_items [b, length, item_dim];
    history_ratings [b, length], 1 to 5; history_length int32 [b]; occupation, gender_occupation, age, hour, weekday
    [b, profile_dim].
    """

    item: tf.Tensor
    genres: tf.Tensor
    year: tf.Tensor
    history_items: tf.Tensor
    history_ratings: tf.Tensor
    history_length: tf.Tensor
    occupation: tf.Tensor
    gender_occupation: tf.Tensor
    age: tf.Tensor
    hour: tf.Tensor
    weekday: tf.Tensor


class RatedAttention(TargetAttention):
    """Target attention over a history that carries ratings.

    call(query [b, d], keys [b, l, d], ratings [b, l], length int32 [b]) -> [b, 2 d + 2]: the weighted mean of keys, of
    ratings and of their products. Weights are a softmax over the first `length` cells; an empty history gives 0.
    """

    def call(self, query, keys, ratings, length):
        """The history as seen from the candidate."""
        marks = rating_marks(ratings)
        logits = tf.clip_by_value(self.logits(query, keys, marks), -15.0, 15.0)
        mask = tf.sequence_mask(length, maxlen=tf.shape(keys)[1], dtype=tf.float32)
        weights = tf.exp(logits) * mask
        weights /= tf.reduce_sum(weights, axis=1, keepdims=True) + _EPSILON
        values = tf.concat([keys, marks, keys * marks[:, :, :1]], axis=-1)
        return tf.matmul(weights[:, None, :], values)[:, 0, :]


class DinMmoe(keras.Model):
    """The model. `rows` gives each table's row count: item, genre, occupation, gender_occupation, the last row of each
    being out-of-vocabulary."""

    def __init__(self, rows: dict[str, int], config: DinMmoeConfig):
        super().__init__(name="din_mmoe")
        self.config = c = config
        self.table_rows = dict(rows)

        def embedding(name, count, dim):
            initializer = keras.initializers.RandomNormal(stddev=c.embedding_stddev)
            return keras.layers.Embedding(count, dim, embeddings_initializer=initializer, name=name)

        self.item = embedding("item", rows["item"], c.item_dim)
        initializer = keras.initializers.RandomNormal(stddev=c.embedding_stddev)
        self.genre = PooledEmbedding(rows["genre"], c.genre_dim, initializer, name="genre")
        self.occupation = embedding("occupation", rows["occupation"], c.profile_dim)
        self.gender_occupation = embedding("gender_occupation", rows["gender_occupation"], c.profile_dim)
        self.age = embedding("age", len(AGE_BOUNDARIES) + 1, c.profile_dim)
        self.year = embedding("year", len(YEAR_BOUNDARIES) + 1, c.profile_dim)
        self.hour = embedding("hour", len(HOUR_BOUNDARIES) + 1, c.profile_dim)
        self.weekday = embedding("weekday", len(WEEKDAY_BOUNDARIES) + 1, c.profile_dim)
        self.attention = RatedAttention(c.attention_units, name="attention")
        self.dropout = keras.layers.Dropout(c.dropout, name="dropout")
        self.mmoe = Mmoe(c.experts, c.expert_units, c.tower_units, HEADS, name="mmoe")

    def lookup_item(self, inputs: dict) -> dict:
        """Rows of item-side inputs: row numbers item [n], genres [v] with genres_segments int32 [v], year [n]."""
        item = self.item(inputs["item"])
        bags = tf.shape(item)[0]
        return {
            "item": item,
            "genres": self.genre(inputs["genres"], inputs["genres_segments"], bags),
            "year": self.year(inputs["year"]),
        }

    def lookup_user(self, inputs: dict) -> dict:
        """Rows of user- and context-side inputs: row numbers history_item [n, l], occupation, gender_occupation, age,
        hour, weekday [n]; values history_rating [n, l], history_length int32 [n]."""
        return {
            "history_items": self.item(inputs["history_item"]),
            "history_ratings": inputs["history_rating"],
            "history_length": inputs["history_length"],
            "occupation": self.occupation(inputs["occupation"]),
            "gender_occupation": self.gender_occupation(inputs["gender_occupation"]),
            "age": self.age(inputs["age"]),
            "hour": self.hour(inputs["hour"]),
            "weekday": self.weekday(inputs["weekday"]),
        }

    def score_logits(self, rows: Rows, training: bool = False) -> list:
        """Logits [b] per head, in the order of HEADS."""
        item = tf.concat([rows.item, rows.genres, rows.year], axis=-1)
        seen = self.attention(rows.item, rows.history_items, rows.history_ratings, rows.history_length)
        count = tf.cast(rows.history_length, tf.float32)[:, None]
        mask = tf.sequence_mask(rows.history_length, maxlen=tf.shape(rows.history_ratings)[1], dtype=tf.float32)
        mood = tf.reduce_sum(rating_marks(rows.history_ratings) * mask[:, :, None], axis=1) / (count + _MEAN_PRIOR)
        profile = [rows.occupation, rows.gender_occupation, rows.age, rows.hour, rows.weekday]
        x = tf.concat([item, seen, 3.0 * mood, tf.math.log1p(count) * 0.25, *profile], axis=-1)
        return self.mmoe(self.dropout(x, training=training))

    def call(self, inputs: dict, training: bool = False) -> list:
        """Logits per head of a batch of independent rows: user, context and item inputs all of leading dimension b."""
        return self.score_logits(Rows(**self.lookup_item(inputs), **self.lookup_user(inputs)), training)

    def serve(self, inputs: dict) -> dict:
        """Probabilities {head: [n]} of n candidates for one user: user and context inputs have leading dimension 1, and
        their rows are tiled to n here, in the graph, as training frameworks write it."""
        item, user = self.lookup_item(inputs), self.lookup_user(inputs)
        n = tf.shape(item["item"])[0]
        logits = self.score_logits(Rows(**item, **tiled(user, n)))
        return {head: tf.sigmoid(logit) for head, logit in zip(HEADS, logits, strict=True)}


def rating_marks(ratings):
    """Two marks per rating, [b, l, 2]: how far from the middle, and liked or not, both centred."""
    centred = (ratings - _RATING_CENTRE) / _RATING_SCALE
    liked = tf.cast(ratings > _LIKED, tf.float32) - 0.5
    return tf.stack([centred, liked], axis=-1)
