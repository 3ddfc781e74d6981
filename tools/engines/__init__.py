"""Dense graphs in the installed engines, measured: what `bench engines` and the export report have in common.

Importing this imports tensorflow.
"""

from .floor import Peaks, Probes, floor_ms
from .request import DenseRequest, Lane, lane_name, lanes
from .scores import Differences, differences

__all__ = ["DenseRequest", "Differences", "Lane", "Peaks", "Probes", "differences", "floor_ms",
           "lane_name", "lanes"]
