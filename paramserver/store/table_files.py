"""How tables come from files and go into files: the one place that knows their formats."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paramserver import durable, parquet
from paramserver.errors import OptionError, TableFileError
from paramserver.shard_map import shard_of

__all__ = ["SUFFIXES", "TableFiles", "TableOptions", "check_suffix"]

#: Endings of the files that a package version may come as.
SUFFIXES = (".parquet",)

#: The options of a table, for all tables, or by table and package version.
TableOptions = Mapping[str, Any] | Callable[[str, int], Mapping[str, Any]]


@dataclass(frozen=True)
class TableFiles:
    """table_class: Table or ReferenceTable. options: what it is made with."""

    table_class: type
    options: TableOptions
    shard: int
    shards: int

    def load(self, path: Path, name: str, version: int, base_sequence: int) -> Any:
        """The table in the file at `path`, at `base_sequence`. Raises TableFileError, also for rows of other shards."""
        options = dict(self.options(name, version) if callable(self.options) else self.options)
        dtype = options.pop("dtype", None)
        made = _with_options(self.table_class, {**options, "base_sequence": base_sequence})
        table = parquet.load(made, path, name, dtype)
        self._check_shard(path, table)
        return table

    def write(self, path: Path, table: Any, epoch: int) -> Path:
        """Write a table as of `epoch`, synced, to `path` and a suffix of its own. Returns the file's path. Raises
        TableFileError, StoreFull, StoreError."""
        path = path.with_name(path.name + SUFFIXES[0])
        try:
            parquet.save(_AtEpoch(table, epoch), path)
        except TableFileError as error:
            if isinstance(error.__cause__, OSError):
                with durable.disk_errors(f"{path}"):
                    raise error.__cause__ from error
            raise
        return path

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


def _with_options(table_class: type, options: Mapping[str, Any]) -> Any:
    return lambda name, dim, **more: table_class(name, dim, **{**more, **options})


class _AtEpoch:
    """A table as of one epoch, as parquet.save reads it."""

    def __init__(self, table: Any, epoch: int) -> None:
        self._table, self._epoch = table, epoch
        self.dim, self.dtype, self.default_row = table.dim, table.dtype, table.default_row

    def ids(self) -> np.ndarray:
        return self._table.ids(epoch=self._epoch)

    def lookup(self, ids: np.ndarray, out: np.ndarray, status: np.ndarray) -> None:
        self._table.lookup(ids, out=out, status=status, epoch=self._epoch)
