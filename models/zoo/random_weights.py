"""Random weights for load tests: as large as trained ones, drawn from a seed, the same in every process.

Each variable's values depend on the seed and on its path alone, so that a model with smaller tables has the same dense
weights.
"""

import zlib

import keras
import numpy as np

from ..errors import ProgrammerError

__all__ = ["ROW_STDDEV", "randomise"]

ROW_STDDEV = 0.5
"""Of table rows."""
_BIAS_STDDEV = 0.1


def randomise(model: keras.Model, seed: int) -> None:
    """Gives every variable of a built model its values, in place.

    Kernels keep the variance of what passes a ReLU (He et al., "Delving Deep into Rectifiers", 2015); batch
    normalisation has moments as after training. Raises ProgrammerError when two variables share a path.
    """
    paths = [variable.path for variable in model.variables]
    if len(set(paths)) != len(paths):
        raise ProgrammerError(f"variables share a path: {sorted({p for p in paths if paths.count(p) > 1})}")
    for variable in model.variables:
        rng = np.random.default_rng([seed, zlib.crc32(variable.path.encode())])
        variable.assign(_values(variable.name, tuple(variable.shape), rng))


def _values(role: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    drawn = rng.standard_normal(shape, np.float32)
    if role == "kernel":
        drawn *= np.float32(np.sqrt(2.0 / shape[0]))
    elif role == "embeddings":
        drawn *= np.float32(ROW_STDDEV)
    elif role in ("bias", "beta", "moving_mean"):
        drawn *= np.float32(_BIAS_STDDEV)
    elif role in ("gamma", "moving_variance"):
        drawn = np.exp(np.float32(_BIAS_STDDEV) * drawn)
    else:
        raise ProgrammerError(f"no distribution for a variable called {role!r}")
    return drawn
