"""Model definitions. Importing this imports tensorflow."""

from .din_mmoe import HEADS, DinMmoe, DinMmoeConfig, Rows

__all__ = ["HEADS", "DinMmoe", "DinMmoeConfig", "Rows"]
