"""What lies where in a shard's directory.

    LOCK                             held while a process has the directory open for writing
    store.json                       {"format", "shard", "shards"}
    bases/<version>.<generation>/    a package version's tables at one sequence each (bases.py); by rename
    log/                             RocksDB: one entry a delta, epochs, retired versions (log.py)
    payloads/<version>/<table>/      rows of large deltas; exist once an entry of the log names them (payloads.py)
    incoming/                        unfinished work, emptied at every start
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from paramserver import durable
from paramserver.errors import OptionError, StoreDamaged, StoreError
from paramserver.shard_map import SHARDS_MAX

__all__ = ["Layout", "check_shard", "create"]

_FORMAT = 1


@dataclass(frozen=True)
class Layout:
    """The paths below a shard's directory."""

    root: Path

    @property
    def lock(self) -> Path:
        """The file that the writing process holds a lock on."""
        return self.root / "LOCK"

    @property
    def identity(self) -> Path:
        """Which shard this is."""
        return self.root / "store.json"

    @property
    def bases(self) -> Path:
        """Snapshots of package versions."""
        return self.root / "bases"

    @property
    def log(self) -> Path:
        """RocksDB's folder."""
        return self.root / "log"

    @property
    def payloads(self) -> Path:
        """Rows of large deltas."""
        return self.root / "payloads"

    @property
    def incoming(self) -> Path:
        """Unfinished work."""
        return self.root / "incoming"


def check_shard(shard: int, shards: int) -> None:
    """Raise OptionError unless 0 <= shard < shards <= 4096."""
    for name, value in (("shard", shard), ("shards", shards)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise OptionError(f"{name} is {value!r}, expected an integer")
    if not 0 <= shard < shards <= SHARDS_MAX:
        raise OptionError(f"shard is {shard} of {shards}, expected 0 <= shard < shards <= {SHARDS_MAX}")


def create(layout: Layout, shard: int, shards: int) -> None:
    """Make what is missing of the directory, empty `incoming`, and check that it is this shard's. Call under the lock.
    Raises StoreError for another shard's directory, StoreDamaged, StoreFull."""
    with durable.disk_errors(f"{layout.root}"):
        for folder in (layout.bases, layout.payloads):
            folder.mkdir(exist_ok=True)
        if layout.incoming.exists():
            shutil.rmtree(layout.incoming)
        layout.incoming.mkdir()
        if not layout.identity.exists():
            said = {"format": _FORMAT, "shard": shard, "shards": shards}
            durable.write_file(layout.identity, json.dumps(said).encode() + b"\n")
        durable.sync_folder(layout.root)
        raw = layout.identity.read_bytes()
    try:
        said = json.loads(raw)
        found = (said["format"], said["shard"], said["shards"])
    except (ValueError, TypeError, KeyError) as error:
        raise StoreDamaged(f"{layout.identity}: {raw[:100]!r} is not what was written; expected "
                           f'{{"format": {_FORMAT}, "shard": {shard}, "shards": {shards}}}') from error
    if found != (_FORMAT, shard, shards):
        raise StoreError(f"{layout.root} is format {found[0]}, shard {found[1]} of {found[2]}; it was opened as format "
                         f"{_FORMAT}, shard {shard} of {shards}: open it as what it is, or reshard a snapshot")
