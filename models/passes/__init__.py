"""Graph passes for export: cut tables out, freeze what is left, make it cheap. Importing this imports tensorflow."""

from .chain import PASSES, apply
from .cost import Cost, cost
from .cut import Cut, CutGraph, cut
from .dense import DenseGraph, DenseInput, Head
from .freeze import freeze
from .variables import TensorflowVariable, Variable, captured_variables

__all__ = [
    "PASSES", "Cost", "Cut", "CutGraph", "DenseGraph", "DenseInput", "Head", "TensorflowVariable", "Variable", "apply",
    "captured_variables", "cost", "cut", "freeze",
]
