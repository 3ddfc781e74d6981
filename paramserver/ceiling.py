"""The fastest that rows can be gathered from memory: what `lambda-svc bench lookup` holds Table.lookup against."""

from paramserver._core import ArrayGather

__all__ = ["ArrayGather"]
