"""Models as teams have them, taken apart for export. Importing this imports tensorflow."""

from .admit import admit
from .framework import FrameworkModel
from .frozen import load_frozen
from .loaded import FrozenModel, KeptTable, Loaded, Signature, TableInitializer, TensorSpec
from .saved_model import load_saved_model

__all__ = ["FrameworkModel", "FrozenModel", "KeptTable", "Loaded", "Signature", "TableInitializer", "TensorSpec",
           "admit", "load_frozen", "load_saved_model"]
