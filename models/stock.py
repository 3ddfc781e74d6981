"""The client side of the uncut SavedModel: what a caller of the framework's own serving path has to do by himself.

The stock path knows neither raw ids nor tables beside the graph: its client keeps the vocabularies, maps ids to rows
and tiles user and context to the number of candidates. No tensorflow here.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from feature_store import Gathered

from .errors import DatasetError
from .inputs import INTERFACE
from .vocabulary import Vocabulary

__all__ = ["load_vocabularies", "save_vocabularies", "stock_inputs"]

VOCABULARIES_FILE = "assets.extra/vocabularies.json"


def save_vocabularies(directory: Path | str, vocabularies: Mapping[str, Vocabulary]) -> Path:
    """Writes the vocabularies beside a SavedModel, in the folder that it reserves for such files."""
    path = Path(directory) / VOCABULARIES_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({name: v.ids.tolist() for name, v in vocabularies.items()}, sort_keys=True))
    return path


def load_vocabularies(directory: Path | str) -> dict[str, Vocabulary]:
    """The vocabularies that export_saved_model left in `directory`. Raises DatasetError when they cannot be read."""
    path = Path(directory) / VOCABULARIES_FILE
    try:
        return {name: Vocabulary(np.array(ids, np.int64)) for name, ids in json.loads(path.read_text()).items()}
    except (OSError, ValueError, AttributeError) as error:
        raise DatasetError(f"{path} holds no vocabularies: {error}") from error


def stock_inputs(
    vocabularies: Mapping[str, Vocabulary], user: Gathered, context: Gathered, item: Gathered
) -> dict[str, np.ndarray]:
    """The SavedModel's inputs for one request: user and context slots of 1 row, item slots of n rows, as the feature
    store's extractors give them. User and context come back tiled to [n, ...]."""
    arrays = INTERFACE.arrays({**user, **context, **item}, vocabularies)
    n = len(arrays["item"])
    for entry in INTERFACE.inputs:
        if INTERFACE.side(entry) != "item":
            arrays[entry.name] = np.repeat(arrays[entry.name], n, axis=0)
    return arrays
