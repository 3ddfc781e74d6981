"""Plain SavedModels in a repository, `<repository>/<model>/<version>/saved_model.pb` as TensorFlow Serving has them.

One that was never exported, or cannot be, is served as it came: the configuration says which inputs are the user's or
the moment's, every other input is an item feature. A folder that is also a package is served as the package.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from feature_store import Schema, Slot
from lambda_svc.session.saved_graph import SAVED_MODEL_FILE, SavedGraph, read_saved_graph
from models.package import MANIFEST_FILE, Graph, GraphInput, GraphOutput, Manifest, PackageError, Source, version_dir

if TYPE_CHECKING:
    from lambda_svc.config import SavedModelConfig

__all__ = ["is_saved_model", "read_saved_model", "saved_manifest", "saved_versions"]


def is_saved_model(folder: Path) -> bool:
    """Whether a version's folder holds a SavedModel and no package."""
    return (folder / SAVED_MODEL_FILE).is_file() and not os.path.lexists(folder / MANIFEST_FILE)


def saved_versions(repository: Path, model: str) -> list[int]:
    """The versions of `model` that are SavedModels, ascending."""
    try:
        folders = list(version_dir(repository, model, 1).parent.iterdir())
    except (OSError, PackageError):
        return []
    numbers = [folder for folder in folders if folder.name.isascii() and folder.name.isdigit()
               and folder.name[0] != "0" and len(folder.name) <= 18]
    return sorted(int(folder.name) for folder in numbers if is_saved_model(folder))


def read_saved_model(folder: Path, settings: SavedModelConfig, told_as: Path | None = None) -> SavedGraph:
    """What is served of the SavedModel in `folder`. Raises PackageRejected, which names `told_as`, or the folder."""
    return read_saved_graph(folder, settings.signature, settings.user, settings.context, settings.heads,
                            told_as=told_as)


def saved_manifest(saved: SavedGraph, model: str, version: int) -> Manifest:
    """What a package's manifest would say: features and slots called as the inputs, no tables, no golden rows."""
    entries = [entry for _, entry in saved.inputs]
    inputs = tuple(GraphInput(name=name, dtype=entry.fed, shape=entry.shape, side=entry.side,
                              source=Source(kind="values", slot=entry.key)) for name, entry in saved.inputs)
    outputs = tuple(GraphOutput(head=head, name=name) for head, name in saved.heads)
    return Manifest(model, version, Schema(tuple(entry.feature for entry in entries)),
                    tuple(Slot(entry.key, entry.key) for entry in entries),
                    Graph(file=SAVED_MODEL_FILE, inputs=inputs, outputs=outputs), tables=(), golden=None, files={})
