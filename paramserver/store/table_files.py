"""How tables come from files and go into files: the one place of the store that knows their formats.

A package version may come as Parquet files or as snapshots (paramserver/snapshot.py); what the store writes is always a
snapshot.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paramserver import parquet
from paramserver.errors import OptionError, StoreError, TableFileError
from paramserver.shard_map import shard_of
from paramserver.snapshot import Snapshot, load_table, steps, write_snapshot
from paramserver.table import Table

__all__ = ["SNAPSHOT_SUFFIX", "SUFFIXES", "TableFiles", "TableOptions", "base_of", "check_suffix"]

#: The ending of a snapshot's name.
SNAPSHOT_SUFFIX = ".snap"
#: Endings of the files that a package version may come as.
SUFFIXES = (".parquet", SNAPSHOT_SUFFIX)

#: The options of a table, for all tables, or by table and package version.
TableOptions = Mapping[str, Any] | Callable[[str, int], Mapping[str, Any]]


@dataclass(frozen=True)
class TableFiles:
    """table_class: Table or ReferenceTable. options: what it is made with; `dtype` is for Parquet files, a snapshot has
    its own."""

    table_class: type
    options: TableOptions
    shard: int
    shards: int

    def load(self, path: Path, name: str, version: int, base_sequence: int, time_s: int) -> Any:
        """The table in the file at `path`, whose rows are of `base_sequence` and `time_s`, checked by the checksums of
        a snapshot. Raises TableFileError, also for rows of other shards, StoreDamaged, OptionError."""
        options = self._options_of(name, version)
        dtype = options.pop("dtype", None)
        options |= {"base_sequence": base_sequence, "base_time_s": time_s}
        if path.suffix != SNAPSHOT_SUFFIX:
            table = parquet.load(_with_options(self.table_class, options), path, name, dtype)
        elif self.table_class is Table:
            table = load_table(path, name, **options)
        else:
            table = _filled(self.table_class, Snapshot.open(path), name, options)
        self._check_shard(path, table)
        return table

    def counts(self, name: str, version: int) -> bool:
        """Whether a table counts the deltas that contain an id before it takes the id's row: files hold no counts."""
        return self._options_of(name, version).get("admit_after", 1) > 1

    def write(self, path: Path, table: Any, epoch: int, *, sequence: int, version: int, time_s: int,
              progress: Callable[[int, int], None] | None = None) -> Path:
        """Write a table as of `epoch`, synced, to `path` and the suffix of snapshots. Returns the file's path. Raises
        TableFileError, StoreFull."""
        path = path.with_name(path.name + SNAPSHOT_SUFFIX)
        write_snapshot(path, table, epoch, base_sequence=sequence, package_version=version, time_s=time_s,
                       progress=progress)
        return path

    def _options_of(self, name: str, version: int) -> dict[str, Any]:
        return dict(self.options(name, version) if callable(self.options) else self.options)

    def _check_shard(self, path: Path, table: Any) -> None:
        if self.shards == 1:
            return
        ids = table.ids()
        places = shard_of(ids, self.shards)
        if (places != self.shard).any():
            i = int(np.argmax(places != self.shard))
            raise TableFileError(f"{path}: id {ids[i]} belongs to shard {places[i]} of {self.shards}, not to "
                                 f"{self.shard}: split the file by shards first")


def check_suffix(path: Path) -> str:
    """The suffix of a table's file. Raises OptionError for one that no table comes as."""
    if path.suffix not in SUFFIXES:
        raise OptionError(f"{path} ends in {path.suffix!r}, expected {' or '.join(SUFFIXES)}")
    return path.suffix


def base_of(path: Path, version: int) -> tuple[int, int]:
    """What the file of a table says of its rows: (sequence, time_s), 0 for what it does not say. Raises StoreError when
    it is of another package version, TableFileError, StoreDamaged."""
    if path.suffix != SNAPSHOT_SUFFIX:
        return 0, 0
    header = Snapshot.open(path).header
    if header.package_version not in (0, version):
        raise StoreError(f"{path} is of package version {header.package_version}, not of {version}")
    return header.base_sequence, header.time_s


def _with_options(table_class: type, options: Mapping[str, Any]) -> Any:
    return lambda name, dim, **more: table_class(name, dim, **{**more, **options})


def _filled(table_class: type, snapshot: Snapshot, name: str, options: Mapping[str, Any]) -> Any:
    snapshot.verify()
    table = table_class(name, snapshot.dim, dtype=snapshot.dtype, default_row=snapshot.default_row, **options)
    for first, end in steps(len(snapshot), snapshot.dim):
        table.upsert(snapshot.ids[first:end], snapshot.rows(first, end))
    return table
