"""The full-screen feed: DIN's target attention over a long history, then experts shared by three heads (MMoE)."""

from dataclasses import dataclass

import tensorflow as tf

from .definition import Definition
from .din import DinConfig, din_fields
from .fields import Field
from .layers import Mmoe, TargetAttention
from .model import ZooModel

__all__ = ["DIN_LONG", "DinLong", "DinLongConfig"]


@dataclass(frozen=True)
class DinLongConfig(DinConfig):
    """Sizes: as DIN's; `units` are those of each expert. Raises ConfigError for sizes that make no model."""

    history_length: int = 1_000
    units: tuple[int, ...] = (512, 256)
    experts: int = 4
    tower_units: tuple[int, ...] = (128,)


class DinLong(ZooModel):
    """The model: [profile, moment, interest, candidate] through experts, a gate and a tower per head."""

    heads = ("finish", "like", "share")

    def __init__(self, config: DinLongConfig, fields: tuple[Field, ...]):
        super().__init__(fields, name="din_long")
        self.attention = TargetAttention(config.attention_units, name="attention")
        self.mmoe = Mmoe(config.experts, config.units, config.tower_units, self.heads, name="mmoe")

    def score(self, rows):
        """Logits per head."""
        interest = self.attention(rows["item"], rows["history"], rows["history_length"])
        flat = [rows[field.name] for field in self.fields if field.kind != "sequence"]
        return self.mmoe(tf.concat([*flat, interest], axis=-1))


DIN_LONG = Definition(
    name="din_long",
    scenario="inner_rank",
    candidates=120,
    sizes={
        "small": DinLongConfig(dim=8, profile_dim=4, item_rows=2_000, profile_rows=300, attribute_rows=100, profiles=3,
                               profile_length=6, attributes=3, history_length=40, attention_units=(16,), units=(32, 16),
                               experts=2, tower_units=(8,)),
        "base": DinLongConfig(),
        "large": DinLongConfig(dim=128, profile_dim=64, item_rows=1_000_000, profile_rows=200_000,
                               attribute_rows=50_000, attention_units=(128, 32), units=(1024, 512), experts=6,
                               tower_units=(256,)),
    },
    fields=din_fields,
    network=DinLong,
)
