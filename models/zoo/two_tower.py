"""First ranking of the home feed: a tower for the user, one for the item, and a small MLP over both vectors.

Source: Covington et al., "Deep Neural Networks for YouTube Recommendations" (RecSys 2016), for the two stages; batch
normalisation in the towers as teams train them.
"""

from dataclasses import dataclass

import keras
import tensorflow as tf

from .definition import Definition, Sizes
from .fields import Field, fields_checked, numbered
from .layers import mlp
from .model import ZooModel

__all__ = ["TWO_TOWER", "TwoTower", "TwoTowerConfig"]


@dataclass(frozen=True)
class TwoTowerConfig(Sizes):
    """Sizes: rows and dims of tables, lengths, units of each layer. Raises ConfigError for sizes that make no model."""

    dim: int = 64
    item_rows: int = 200_000
    profile_rows: int = 50_000
    attribute_rows: int = 10_000
    profiles: int = 8
    profile_length: int = 80
    attributes: int = 9
    user_units: tuple[int, ...] = (256, 64)
    item_units: tuple[int, ...] = (128, 64)
    units: tuple[int, ...] = (64,)


def two_tower_fields(c: TwoTowerConfig) -> tuple[Field, ...]:
    """A profile of bags, the candidate's own id and its attributes."""
    return fields_checked((
        *numbered(Field("profile", "user", "bag", c.dim, c.profile_rows, c.profile_length), c.profiles),
        Field("item", "item", "key", c.dim, c.item_rows),
        *numbered(Field("attribute", "item", "id", c.dim, c.attribute_rows), c.attributes),
    ))


class TwoTower(ZooModel):
    """The model: vectors u and v of the two sides, [u, v, u * v] through an MLP. Both towers end in as many units."""

    heads = ("click",)

    def __init__(self, config: TwoTowerConfig, fields: tuple[Field, ...]):
        super().__init__(fields, name="two_tower")
        self.user_tower = mlp(config.user_units, "user_tower", norm=True)
        self.item_tower = mlp(config.item_units, "item_tower", norm=True)
        self.trunk = mlp(config.units, "trunk")
        self.logit = keras.layers.Dense(1, name="logit_click")

    def score(self, rows):
        """The logit of a click."""
        sides = {side: [rows[f.name] for f in self.fields if f.side == side] for side in ("user", "item")}
        user = self.user_tower(tf.concat(sides["user"], axis=-1))
        item = self.item_tower(tf.concat(sides["item"], axis=-1))
        return [self.logit(self.trunk(tf.concat([user, item, user * item], axis=-1)))[:, 0]]


TWO_TOWER = Definition(
    name="two_tower",
    scenario="explore_prerank",
    candidates=5_000,
    sizes={
        "small": TwoTowerConfig(dim=8, item_rows=2_000, profile_rows=300, attribute_rows=100, profiles=3,
                                profile_length=6, attributes=3, user_units=(24, 8), item_units=(16, 8), units=(8,)),
        "base": TwoTowerConfig(),
        "large": TwoTowerConfig(dim=128, item_rows=1_000_000, profile_rows=200_000, attribute_rows=50_000,
                                user_units=(1024, 256, 128), item_units=(512, 256, 128), units=(256, 64)),
    },
    fields=two_tower_fields,
    network=TwoTower,
)
