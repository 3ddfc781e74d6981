"""Epochs: which state of which package version readers may see, as files that appear whole.

`<cluster>/epochs/<number, 20 digits>.json` holds {"number", "package_version", "sequences": {table: sequence},
"abandoned": {table: sequence}}. The file is written and synced beside its place and then linked into it: of two
publishers that want one number, one gets EpochError, and a publisher that dies has published nothing.
"""

import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from paramserver import durable
from paramserver.delta import check_table_name
from paramserver.errors import DeltaError, EpochError, StoreDamaged, StoreError

__all__ = ["EPOCHS_FOLDER", "EPOCH_MAX", "Epoch", "epoch_numbers", "newest_epoch", "prune_epochs", "read_epoch",
           "read_epochs", "write_epoch"]

#: The folder of a cluster's directory that holds its epochs.
EPOCHS_FOLDER = "epochs"
TABLES_MAX = 4096
#: The highest number of an epoch, and of a sequence.
EPOCH_MAX = 2**63 - 1
_NAME = re.compile(r"[0-9]{20}\.json")
_FILE_BYTES_MAX = 4 << 20


@dataclass(frozen=True)
class Epoch:
    """One published state: package_version (0 to 2**63 - 1) and the sequence of each of its tables. number: 1 to
    2**63 - 1, ascending with publication. abandoned: for a rollback, the highest sequence of each table that it gives
    up: those above `sequences` and up to there never come back. Raises EpochError."""

    number: int
    package_version: int
    sequences: Mapping[str, int]
    abandoned: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _expect_integer("number", self.number, 1)
        _expect_integer("package_version", self.package_version, 0)
        for name in ("sequences", "abandoned"):
            value = getattr(self, name)
            if not isinstance(value, Mapping) or len(value) > TABLES_MAX:
                raise EpochError(f"{name} is {value!r:.100}, expected a sequence for each table, at most {TABLES_MAX}")
            for table, sequence in value.items():
                _expect_table(table)
                _expect_integer(f"{name}[{table!r}]", sequence, 0)
            object.__setattr__(self, name, MappingProxyType({t: int(s) for t, s in sorted(value.items())}))
        if not self.sequences:
            raise EpochError("sequences is empty, expected a sequence for each table of the package version")
        for table, last in self.abandoned.items():
            if last <= self.sequences.get(table, last):
                raise EpochError(f"abandoned[{table!r}] is {last}, expected above its sequence, "
                                 f"{self.sequences.get(table)}")

    @classmethod
    def of(cls, value: Any) -> Self:
        """The epoch that a parsed JSON value describes. Raises EpochError naming the field."""
        fields = {"number", "package_version", "sequences"}
        if not isinstance(value, Mapping) or set(value) - {"abandoned"} != fields:
            came = sorted(value) if isinstance(value, Mapping) else repr(value)[:100]
            raise EpochError(f"an epoch has {came}, expected the fields {sorted(fields)} and perhaps 'abandoned'")
        return cls(**value)

    def abandons(self, package_version: int, sequences: Mapping[str, int]) -> list[str]:
        """The tables of which a state holds deltas that this epoch, a rollback, gave up."""
        if package_version != self.package_version:
            return []
        return [table for table, last in self.abandoned.items()
                if self.sequences[table] < sequences.get(table, 0) <= last]

    def json(self) -> str:
        """The file's text."""
        return json.dumps({"number": self.number, "package_version": self.package_version,
                           "sequences": dict(self.sequences), "abandoned": dict(self.abandoned)}) + "\n"


def epoch_numbers(cluster: str | Path) -> list[int]:
    """The numbers of the epochs in a cluster's directory, ascending; none when it has no folder for them. Cheap: reads
    names only. Raises StoreError."""
    folder = Path(cluster) / EPOCHS_FOLDER
    try:
        return sorted(int(name[:20]) for name in os.listdir(folder) if _NAME.fullmatch(name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{folder}: {error}") from error


def read_epoch(cluster: str | Path, number: int) -> Epoch:
    """The epoch of that number. Raises EpochError when there is none, StoreDamaged when its file is no epoch."""
    path = _path(cluster, number)
    try:
        with path.open("rb") as file:
            raw = file.read(_FILE_BYTES_MAX)
    except FileNotFoundError as error:
        raise EpochError(f"{path}: no such epoch") from error
    except OSError as error:
        raise StoreError(f"{path}: {error}") from error
    try:
        epoch = Epoch.of(json.loads(raw))
    except (EpochError, ValueError, RecursionError) as error:
        raise StoreDamaged(f"{path}: {error}; bring the file back from a copy. Only where no server shows the epoch "
                           "may it be removed and published again") from error
    if epoch.number != number:
        raise StoreDamaged(f"{path}: number is {epoch.number}, expected {number} as in the file's name")
    return epoch


def read_epochs(cluster: str | Path, after: int = 0) -> list[Epoch]:
    """The epochs of a cluster's directory with numbers above `after`, ascending. Raises StoreError, StoreDamaged."""
    epochs = []
    for number in epoch_numbers(cluster):
        if number > after:
            # One that was removed since the folder was listed is old.
            with contextlib.suppress(EpochError):
                epochs.append(read_epoch(cluster, number))
    return epochs


def newest_epoch(cluster: str | Path) -> Epoch | None:
    """The epoch with the highest number, None before the first. Raises StoreError, StoreDamaged."""
    numbers = epoch_numbers(cluster)
    return read_epoch(cluster, numbers[-1]) if numbers else None


def prune_epochs(cluster: str | Path, below: int) -> list[int]:
    """Remove the files of epochs below a number that nobody holds any more, and return their numbers. Rollbacks stay,
    since a shard that was away learns from them what was abandoned, and so does the newest epoch of each package
    version. Raises StoreError, StoreDamaged."""
    epochs = read_epochs(cluster)
    newest = {epoch.package_version: epoch.number for epoch in epochs}
    gone = [epoch.number for epoch in epochs if epoch.number < below and not epoch.abandoned
            and epoch.number != newest[epoch.package_version]]
    with durable.disk_errors(f"{cluster}"):
        for number in gone:
            _path(cluster, number).unlink(missing_ok=True)
    return gone


def write_epoch(cluster: str | Path, epoch: Epoch) -> Path:
    """Publish `epoch`: its file appears whole and synced, or not at all. Returns its path. Raises EpochError when the
    number is taken or not above every other, StoreFull, StoreError; one that begins with "published" when only the
    folder's sync failed, so that a power loss might still take the epoch back."""
    numbers = epoch_numbers(cluster)
    if numbers and epoch.number <= numbers[-1]:
        raise EpochError(f"epoch {epoch.number} cannot be published: {cluster} is at epoch {numbers[-1]} already; take "
                         f"{numbers[-1] + 1}")
    path = _path(cluster, epoch.number)
    temporary = durable.temporary_name(path)
    with durable.disk_errors(f"{path}: the epoch is not published"):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            durable.write_synced(temporary, epoch.json().encode())
            durable.link_into_place(temporary, path)
        except FileExistsError as error:
            raise EpochError(f"epoch {epoch.number} was published by another at the same time: read the epochs again "
                             "and decide anew") from error
        finally:
            temporary.unlink(missing_ok=True)
    with durable.disk_errors(f"published, but {path.parent} could not be synced"):
        durable.sync_folder(path.parent)
    return path


def _path(cluster: str | Path, number: int) -> Path:
    return Path(cluster) / EPOCHS_FOLDER / f"{number:020d}.json"


def _expect_integer(name: str, value: Any, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= EPOCH_MAX:
        raise EpochError(f"{name} is {value!r}, expected an integer from {low} to 2**63 - 1")


def _expect_table(name: Any) -> None:
    try:
        check_table_name(name)
    except DeltaError as error:
        raise EpochError(str(error)) from error
