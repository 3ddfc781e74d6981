"""Frozen GraphDefs, with a SIGNATURES.json beside them: {file: {"inputs": {key: [tensor, dtype, shape]}, "outputs":
{key: [tensor, dtype]}}}."""

import json
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError

from ..errors import SavedModelError, SignatureError
from ..passes.graph import node_of
from .loaded import Loaded, Signature, TensorSpec

__all__ = ["SIGNATURES_FILE", "load_frozen"]

SIGNATURES_FILE = "SIGNATURES.json"
_NAME = "serving_default"


def load_frozen(path: Path | str, signatures: Path | str | None = None) -> Loaded:
    """The graph in the file `path`, with its one signature `serving_default`.

    `signatures` defaults to SIGNATURES.json in the same folder. Raises SavedModelError naming the file that is missing
    or damaged, SignatureError for a signature that does not fit the graph.
    """
    file = Path(path)
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise SavedModelError(file, f"expected a frozen graph, the file cannot be read: {error.strerror}") from error
    graph_def = tf.compat.v1.GraphDef()
    try:
        graph_def.ParseFromString(raw)
    except DecodeError as error:
        raise SavedModelError(file, f"{len(raw)} bytes came that are no whole GraphDef: {error}") from error
    if not graph_def.node:
        raise SavedModelError(file, "expected a frozen graph, came one without nodes")
    listing = Path(signatures) if signatures is not None else file.parent / SIGNATURES_FILE
    entry = _entry(listing, file.name)
    nodes = {node.name for node in graph_def.node}
    sides = (_side(listing, file.name, side, entry, nodes) for side in ("inputs", "outputs"))
    return Loaded(file, "frozen", {_NAME: Signature(_NAME, *sides)}, graph_def)


def _entry(listing: Path, name: str) -> dict[str, Any]:
    try:
        entries = json.loads(listing.read_bytes())
    except OSError as error:
        raise SavedModelError(listing, f"names a frozen graph's inputs and outputs; it cannot be read: {error.strerror}"
                              ) from error
    except ValueError as error:
        raise SavedModelError(listing, f"expected JSON, came something else: {error}") from error
    if not isinstance(entries, dict) or not isinstance(entries.get(name), dict):
        there = ", ".join(sorted(entries)) if isinstance(entries, dict) else type(entries).__name__
        raise SignatureError(f"{listing}: no object for {name!r}; it has {there or 'nothing'}")
    return entries[name]


def _side(listing: Path, name: str, side: str, entry: dict[str, Any], nodes: set[str]) -> dict[str, TensorSpec]:
    stored = entry.get(side)
    if not isinstance(stored, dict):
        raise SignatureError(f"{listing}: {name!r}, {side}: expected an object of tensors, came {stored!r}")
    found = {}
    for key, value in sorted(stored.items()):
        where = f"{listing}: {name!r}, {side}, {key!r}"
        if not isinstance(value, list) or not 2 <= len(value) <= 3 or not all(isinstance(v, str) for v in value[:2]):
            raise SignatureError(f"{where}: expected [tensor, dtype, shape], came {value!r}")
        tensor, dtype, shape = (*value, None)[:3]
        if shape is not None and (not isinstance(shape, list) or not all(type(d) is int and d >= -1 for d in shape)):
            raise SignatureError(f"{where}: expected a shape like [-1, 8], came {shape!r}")
        try:
            tf.as_dtype(dtype)
        except TypeError as error:
            raise SignatureError(f"{where}: expected a dtype like float32, came {dtype!r}") from error
        if node_of(tensor) not in nodes:
            raise SignatureError(f"{where}: {tensor!r} is not in the graph")
        full = tensor if ":" in tensor else f"{tensor}:0"
        found[key] = TensorSpec(full, dtype, None if shape is None else tuple(shape))
    if not found:
        raise SignatureError(f"{listing}: {name!r}: no {side}")
    return found
