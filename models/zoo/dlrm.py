"""Ads: DLRM with DCN V2's crosses over the 26 tables of Criteo, and calibrated probabilities.

Sources: Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems" (2019); the
shape of MLPerf's DLRM-DCNv2 (dim 128, three crosses of rank 512); Platt scaling for the calibration.
"""

from dataclasses import dataclass, field

import keras
import tensorflow as tf

from .definition import Definition, Sizes
from .fields import Field, fields_checked
from .layers import CrossNetwork, mlp
from .model import ZooModel

__all__ = ["CRITEO_ROWS", "DLRM", "Dlrm", "DlrmConfig"]

CRITEO_ROWS = (10_000_000, 29_428, 15_128, 7_296, 19_902, 4, 6_466, 1_311, 62, 10_000_000, 622_922, 219_557, 11, 2_210,
               9_780, 72, 5, 964, 15, 10_000_000, 4_384_511, 10_000_000, 290_589, 10_830, 96, 35)
"""Row counts of the tables C1 to C26, the largest capped at ten million (as in merlin-models' schema of Criteo)."""
_KEY, _USER, _CONTEXT = 20, range(1, 9), range(9, 11)
_ROWS_LEAST = 3


@dataclass(frozen=True)
class DlrmConfig(Sizes):
    """Sizes: the dim of all rows, units of each layer. Tables have Criteo's rows divided by `rows_divided`; crosses are
    of full rank when `cross_rank` is 0. Raises ConfigError for sizes that make no model."""

    dim: int = 128
    rows_divided: int = 100
    user_numbers: int = 5
    item_numbers: int = 8
    bottom_units: tuple[int, ...] = (512, 256)
    crosses: int = 3
    cross_rank: int = field(default=512, metadata={"least": 0})
    units: tuple[int, ...] = (1024, 1024, 512, 256)


def dlrm_fields(c: DlrmConfig) -> tuple[Field, ...]:
    """13 numbers and 26 ids: Criteo does not say whose they are, so 8 ids are taken for the user's, 2 for the moment's,
    16 for the ad's, C20 being its own."""
    def side(column: int) -> str:
        return "user" if column in _USER else "context" if column in _CONTEXT else "item"

    return fields_checked((
        Field("user_numbers", "user", "numbers", c.user_numbers),
        Field("item_numbers", "item", "numbers", c.item_numbers),
        *(Field(f"c{column}", side(column), "key" if column == _KEY else "id", c.dim,
                max(_ROWS_LEAST, rows // c.rows_divided)) for column, rows in enumerate(CRITEO_ROWS, 1)),
    ))


class Dlrm(ZooModel):
    """The model: numbers through the bottom MLP, crosses over it and all rows, the top MLP, a calibrated logit per
    head."""

    heads = ("ctr", "cvr")

    def __init__(self, config: DlrmConfig, fields: tuple[Field, ...]):
        super().__init__(fields, name="dlrm")
        ids = sum(entry.kind != "numbers" for entry in fields)
        self.bottom = mlp((*config.bottom_units, config.dim), "bottom")
        self.crosses = CrossNetwork((ids + 1) * config.dim, config.crosses, config.cross_rank, name="crosses")
        self.top = mlp(config.units, "top")
        self.logits = [keras.layers.Dense(1, name=f"logit_{head}") for head in self.heads]
        self.calibrations = [keras.layers.Dense(1, name=f"calibration_{head}") for head in self.heads]

    def score(self, rows):
        """Calibrated logits per head."""
        numbers = self.bottom(tf.concat([rows[f.name] for f in self.fields if f.kind == "numbers"], axis=-1))
        x0 = tf.concat([numbers, *(rows[f.name] for f in self.fields if f.kind != "numbers")], axis=-1)
        x = self.top(self.crosses(x0))
        return [calibration(logit(x))[:, 0]
                for logit, calibration in zip(self.logits, self.calibrations, strict=True)]


DLRM = Definition(
    name="dlrm",
    scenario="ads_rank",
    candidates=500,
    sizes={
        "small": DlrmConfig(dim=4, rows_divided=10_000, bottom_units=(16,), crosses=2, cross_rank=8, units=(32, 16)),
        "base": DlrmConfig(),
        "large": DlrmConfig(cross_rank=0, units=(2048, 1024, 512)),
    },
    fields=dlrm_fields,
    network=Dlrm,
)
