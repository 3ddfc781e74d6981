"""Final ranking of the home feed: DIN's target attention over a history, then one MLP with four heads.

At size base: attention over 100 behaviours of dim 64 with 80 hidden units, and an MLP 1152-1024-512-256.
"""

from dataclasses import dataclass

import keras
import tensorflow as tf

from .definition import Definition, Sizes
from .fields import Field, fields_checked, numbered
from .layers import TargetAttention, mlp
from .model import ZooModel

__all__ = ["DIN", "Din", "DinConfig"]


@dataclass(frozen=True)
class DinConfig(Sizes):
    """Sizes: rows and dims of tables, lengths, units of each layer. Raises ConfigError for sizes that make no model."""

    dim: int = 64
    profile_dim: int = 32
    item_rows: int = 200_000
    profile_rows: int = 50_000
    attribute_rows: int = 10_000
    profiles: int = 8
    profile_length: int = 80
    attributes: int = 9
    history_length: int = 100
    attention_units: tuple[int, ...] = (80,)
    units: tuple[int, ...] = (1024, 512, 256)


def din_fields(c: DinConfig) -> tuple[Field, ...]:
    """A profile of bags and the history of the user, the moment, the candidate's own id and its attributes."""
    return fields_checked((
        *numbered(Field("profile", "user", "bag", c.profile_dim, c.profile_rows, c.profile_length), c.profiles),
        Field("history", "user", "sequence", c.dim, c.item_rows, c.history_length, table="item"),
        Field("hour", "context", "bucket", c.dim, 24),
        Field("weekday", "context", "bucket", c.dim, 7),
        Field("page", "context", "bucket", c.dim, 10),
        Field("item", "item", "key", c.dim, c.item_rows),
        *numbered(Field("attribute", "item", "id", c.dim, c.attribute_rows), c.attributes),
    ))


class Din(ZooModel):
    """The model: [profile, moment, interest, candidate] through an MLP, a logit per head."""

    heads = ("click", "like", "follow", "long_view")

    def __init__(self, config: DinConfig, fields: tuple[Field, ...]):
        super().__init__(fields, name="din")
        self.attention = TargetAttention(config.attention_units, name="attention")
        self.trunk = mlp(config.units, "trunk")
        self.logits = [keras.layers.Dense(1, name=f"logit_{head}") for head in self.heads]

    def score(self, rows):
        """Logits per head."""
        interest = self.attention(rows["item"], rows["history"], rows["history_length"])
        flat = [rows[field.name] for field in self.fields if field.kind != "sequence"]
        x = self.trunk(tf.concat([*flat, interest], axis=-1))
        return [logit(x)[:, 0] for logit in self.logits]


DIN = Definition(
    name="din",
    scenario="explore_rank",
    candidates=500,
    sizes={
        "small": DinConfig(dim=8, profile_dim=4, item_rows=2_000, profile_rows=300, attribute_rows=100, profiles=3,
                           profile_length=6, attributes=3, history_length=10, attention_units=(16,), units=(32, 16)),
        "base": DinConfig(),
        "large": DinConfig(dim=128, profile_dim=64, item_rows=1_000_000, profile_rows=200_000, attribute_rows=50_000,
                           attention_units=(128, 32), units=(2048, 1024, 512)),
    },
    fields=din_fields,
    network=Din,
)
