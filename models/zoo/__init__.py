"""Model definitions: DIN with MMoE for MovieLens, and a zoo of one model per scenario, for load tests and benchmarks.

Importing this imports tensorflow.
"""

from .din_mmoe import HEADS, DinMmoe, DinMmoeConfig, Rows
from .registry import NAMES, SIZES, Feeds, ZooEntry, dense, get
from .size import ModelSize, measure

__all__ = ["HEADS", "NAMES", "SIZES", "DinMmoe", "DinMmoeConfig", "Feeds", "ModelSize", "Rows", "ZooEntry", "dense",
           "get", "measure"]
