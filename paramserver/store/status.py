"""A shard's numbers, for people and for metrics."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paramserver.epoch import Epoch
from paramserver.store.history import ClusterHistory
from paramserver.store.layout import Layout
from paramserver.store.leases import Leases
from paramserver.store.line import Line
from paramserver.store.log import DeltaLog
from paramserver.store.recovery import Version
from paramserver.store.table_files import TableFiles

__all__ = ["status_of"]


def status_of(layout: Layout, log: DeltaLog, files: TableFiles, *, versions: Mapping[int, Version],
              epochs: Mapping[int, Epoch], retired: set[int], leases: Leases, wanted: Epoch | None,
              history: ClusterHistory) -> dict[str, Any]:
    """JSON-ready, versions as text:

    {"directory", "shard", "shards", "free_bytes", "log_bytes", "newest_epoch", "wanted_epoch" (seen but not yet
    possible here, 0: none), "epoch_problems": {number: why that epoch of the cluster is not shown here}, "diverged"
    (how the cluster's epochs differ from those shown here, so that nothing is served; empty: they do not),
    "epochs": [{"number", "package_version", "sequences", "leases": {holder: seconds left}}], "retired": [versions],
    "versions": {version: {table: {"rows", "dim", "dtype", "sequence" (newest staged), "base_sequence", "published"
    (newest epoch's sequence), "lag" (deltas that the newest known epoch names and this shard lacks),
    "waits_for_leases" (deltas are refused until a rolled-back epoch is let go), "damage" (why nothing can be built
    on its base; empty: it can), "checkpoints" (whether its log can be shortened: not with admit_after, since a base
    holds no counts), "disk_bytes" (its base), "log_bytes", "log_deltas"}}}, "held": {version: {table: {"first",
    "last", "deltas", "log_bytes"}}}}."""
    held = [v for v in log.versions() if v not in versions and v not in retired]
    newest = max(epochs, default=0)
    return {
        "directory": str(layout.root), "shard": files.shard, "shards": files.shards,
        "free_bytes": shutil.disk_usage(layout.root).free, "log_bytes": _folder_bytes(layout.log),
        "newest_epoch": newest, "wanted_epoch": wanted.number if wanted else 0,
        "epoch_problems": {str(number): why for number, why in sorted(history.problems.items())},
        "diverged": history.diverged,
        "epochs": [{"number": number, "package_version": epoch.package_version, "sequences": dict(epoch.sequences),
                    "leases": leases.live(number)} for number, epoch in sorted(epochs.items())],
        "retired": sorted(retired),
        "versions": {str(v): {name: _table(v, name, line, serving, log, _newest(epochs, v), wanted)
                              for name, line in serving.lines.items()} for v, serving in sorted(versions.items())},
        "held": {str(v): {table: _held(log, v, table) for table in log.tables(v)} for v in held},
    }


def _held(log: DeltaLog, version: int, table: str) -> dict[str, int]:
    sequences = list(log.entries(version, table))
    return {"first": min(sequences, default=0), "last": max(sequences, default=0), "deltas": len(sequences),
            "log_bytes": log.payload_bytes(version, table)}


def _newest(epochs: Mapping[int, Epoch], version: int) -> Epoch | None:
    numbers = [number for number, epoch in epochs.items() if epoch.package_version == version]
    return epochs[max(numbers)] if numbers else None


def _table(version: int, name: str, line: Line, serving: Version, log: DeltaLog, newest: Epoch | None,
           wanted: Epoch | None) -> dict[str, Any]:
    known = wanted if wanted is not None and wanted.package_version == version else newest
    asked = known.sequences.get(name, 0) if known else 0
    return {
        "rows": len(line.table), "dim": line.table.dim, "dtype": line.table.dtype, "sequence": line.sequence,
        "base_sequence": line.base, "published": newest.sequences[name] if newest else line.base,
        "lag": max(0, asked - line.sequence), "waits_for_leases": line.waits_for_leases(),
        "damage": line.damage, "checkpoints": serving.checkpoints,
        "disk_bytes": serving.base.tables[name].bytes, "log_bytes": log.payload_bytes(version, name),
        "log_deltas": len(log.entries(version, name)),
    }


def _folder_bytes(folder: Path) -> int:
    total = 0
    for entry in os.scandir(folder):
        try:
            total += entry.stat(follow_symlinks=False).st_size
        except FileNotFoundError:
            # RocksDB has just removed it.
            continue
    return total
