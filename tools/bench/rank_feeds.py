"""Ready-made feeds of the bare executable: what gather and lookup would have written for one request."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lambda_svc.lifecycle import signature_of
from lambda_svc.session import LoadedGraph, TensorFlowEngine
from models.package import Manifest, list_versions, version_dir
from paramserver import Table
from tools.bench.rank_setup import gather_sides, read_model

__all__ = ["in_slices", "load_bare", "package_of", "ready_feeds"]

NUMPY = {"f32": np.float32, "i64": np.int64, "i32": np.int32}
ALIGNMENT = 64


def package_of(folder: Path) -> Path:
    """The package that `rank_setup` pushed."""
    repository = folder / "repository"
    model = read_model(repository)
    return version_dir(repository, model, list_versions(repository, model)[-1])


def in_slices(manifest: Manifest, feeds: list[np.ndarray], count: int, slice_rows: int):
    """[(feeds, rows)] of each slice of a plan; views of the feeds, so they stay aligned."""
    is_item = [entry.side == "item" for entry in manifest.graph.inputs]
    parts = []
    for start in range(0, count, slice_rows):
        end = min(start + slice_rows, count)
        parts.append(([feed[start:end] if item else feed for feed, item in zip(feeds, is_item)], end - start))
    return parts


def load_bare(package: Path, manifest: Manifest) -> LoadedGraph:
    """The package's graph in the engine, as the server loads it."""
    return TensorFlowEngine().load((package / manifest.graph.file).read_bytes(), signature_of(manifest))


def ready_feeds(
    package: Path, manifest: Manifest, folder: Path, user_id: int, item_ids: np.ndarray
) -> list[np.ndarray]:
    """One array per input of the graph, each at a 64-byte boundary, for one user and all `item_ids`."""
    sides = gather_sides(manifest.schema, manifest.slots, folder, user_id, item_ids)
    tables = {entry.name: Table.load(package / entry.file, name=entry.name) for entry in manifest.tables}
    feeds = []
    for entry in manifest.graph.inputs:
        slot, source = sides[entry.side][entry.source.slot], entry.source
        if source.kind == "lengths":
            values = slot.lengths
        elif source.kind == "pooled":
            values = tables[source.table].lookup_pooled(slot.values, slot.offsets, mode=source.mode)
        elif source.kind == "rows":
            values = _rows(tables[source.table], slot)
        else:
            values = slot.values
        rows = len(item_ids) if entry.side == "item" else 1
        feeds.append(_aligned(np.asarray(values, NUMPY[entry.dtype]).reshape(rows, *entry.shape[1:])))
    return feeds


def _rows(table: Table, slot) -> np.ndarray:
    """Table rows of every id of a dense or padded slot; zero past a padded slot's length."""
    rows = table.lookup(slot.values.reshape(-1)).reshape(*slot.values.shape, table.dim)
    if slot.lengths is not None:
        rows[np.arange(slot.values.shape[1]) >= slot.lengths[:, None]] = 0
    return rows


def _aligned(values: np.ndarray) -> np.ndarray:
    buffer = np.empty(values.nbytes + ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % ALIGNMENT
    aligned = buffer[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    aligned[...] = values
    return aligned
