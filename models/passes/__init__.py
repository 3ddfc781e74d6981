"""Graph passes for export: cut tables out, then freeze what is left. Importing this imports tensorflow."""

from .cut import Cut, CutGraph, cut
from .freeze import freeze
from .variables import TensorflowVariable, Variable, captured_variables

__all__ = ["Cut", "CutGraph", "TensorflowVariable", "Variable", "captured_variables", "cut", "freeze"]
