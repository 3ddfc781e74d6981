"""Search: every vector of query and user is crossed with every vector of the candidate, then an MLP.

The crosses are inner products of all pairs (factorisation machines; Rendle, ICDM 2010) and the query's elementwise
products with each of the candidate's vectors.
"""

from dataclasses import dataclass

import keras
import tensorflow as tf

from .definition import Definition, Sizes
from .fields import Field, fields_checked, numbered
from .layers import mlp
from .model import ZooModel

__all__ = ["CROSS", "Cross", "CrossConfig"]


@dataclass(frozen=True)
class CrossConfig(Sizes):
    """Sizes: rows of tables, the dim of all vectors, units of the MLP. Raises ConfigError for sizes that make no
    model."""

    dim: int = 64
    query_rows: int = 100_000
    term_rows: int = 100_000
    terms: int = 16
    item_rows: int = 200_000
    profile_rows: int = 50_000
    attribute_rows: int = 10_000
    profiles: int = 8
    profile_length: int = 80
    attributes: int = 9
    prices: int = 4
    units: tuple[int, ...] = (1024, 512, 256)


def cross_fields(c: CrossConfig) -> tuple[Field, ...]:
    """The query as an id and as terms, a profile of bags, the candidate's own id, its attributes, and its prices."""
    return fields_checked((
        Field("query", "context", "id", c.dim, c.query_rows),
        Field("terms", "context", "bag", c.dim, c.term_rows, c.terms),
        *numbered(Field("profile", "user", "bag", c.dim, c.profile_rows, c.profile_length), c.profiles),
        Field("item", "item", "key", c.dim, c.item_rows),
        *numbered(Field("attribute", "item", "id", c.dim, c.attribute_rows), c.attributes),
        Field("prices", "item", "numbers", c.prices),
    ))


class Cross(ZooModel):
    """The model: all vectors, their crosses and the prices through an MLP with batch norm, a logit per head."""

    heads = ("click", "order")

    def __init__(self, config: CrossConfig, fields: tuple[Field, ...]):
        super().__init__(fields, name="cross")
        self.trunk = mlp(config.units, "trunk", norm=True)
        self.logits = [keras.layers.Dense(1, name=f"logit_{head}") for head in self.heads]

    def score(self, rows):
        """Logits per head."""
        asking = [rows[f.name] for f in self.fields if f.side != "item"]
        offered = [rows[f.name] for f in self.fields if f.side == "item" and f.kind != "numbers"]
        pairs = tf.matmul(tf.stack(asking, axis=1), tf.stack(offered, axis=1), transpose_b=True)
        pairs = tf.reshape(pairs, [-1, len(asking) * len(offered)])
        products = [rows["query"] * vector for vector in offered]
        x = self.trunk(tf.concat([*asking, *offered, rows["prices"], pairs, *products], axis=-1))
        return [logit(x)[:, 0] for logit in self.logits]


CROSS = Definition(
    name="cross",
    scenario="search_rank",
    candidates=300,
    sizes={
        "small": CrossConfig(dim=8, query_rows=500, term_rows=500, terms=4, item_rows=2_000, profile_rows=300,
                             attribute_rows=100, profiles=3, profile_length=6, attributes=3, units=(32, 16)),
        "base": CrossConfig(),
        "large": CrossConfig(dim=128, query_rows=500_000, term_rows=500_000, item_rows=1_000_000, profile_rows=200_000,
                             attribute_rows=50_000, units=(4096, 2048, 512)),
    },
    fields=cross_fields,
    network=Cross,
)
