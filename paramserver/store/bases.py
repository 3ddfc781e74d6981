"""Bases: a package version's tables at one sequence each, in a folder that appears whole, by rename.

    <version>.<generation>/manifest.json   {"format", "package_version", "generation", "shard", "shards", "epoch",
                                            "origin": {table: [checksum, base_sequence]},
                                            "tables": {name: {"file", "bytes", "checksum", "base_sequence", "time_s"}}}
    <version>.<generation>/<table><suffix>

Generation 0 is the intake's copy of what was given; later ones are written from memory, so that the log can be cut. The
newest generation counts. A snapshot for other places is the same folder, its epoch named.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from paramserver import durable
from paramserver.delta import check_table_name
from paramserver.epoch import Epoch
from paramserver.errors import CallerError, StoreDamaged

__all__ = ["Base", "TableFile", "base_folder", "copy_file", "find_bases", "origin_of", "read_manifest", "remove_bases",
           "table_file", "verify_file", "write_manifest"]

MANIFEST = "manifest.json"
_FORMAT = 1
_FOLDER = re.compile(r"[0-9]{20}\.[0-9]{10}")
_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class TableFile:
    """One table of a base: its file's name, bytes and blake2b checksum (32 hexadecimal digits), and the sequence
    and time, in seconds since 1970, that its rows are of."""

    file: str
    bytes: int
    checksum: str
    base_sequence: int
    time_s: int


@dataclass(frozen=True)
class Base:
    """A base and the folder that it lies in. epoch: of a snapshot, the epoch whose state it is. origin: of the files
    that the version came as, [checksum, base_sequence] by table; empty where that is not known."""

    folder: Path
    package_version: int
    generation: int
    shard: int
    shards: int
    tables: Mapping[str, TableFile]
    epoch: Epoch | None = None
    origin: Mapping[str, list[Any]] = field(default_factory=dict)

    def path(self, table: str) -> Path:
        """The file of a table."""
        return self.folder / self.tables[table].file

    @property
    def bytes(self) -> int:
        """Bytes of its files."""
        return sum(table.bytes for table in self.tables.values())


def origin_of(tables: Mapping[str, TableFile]) -> dict[str, list[Any]]:
    """What tells the files that a version comes as from others, as `Base.origin` holds it."""
    return {name: [table.checksum, table.base_sequence] for name, table in tables.items()}


def base_folder(bases: Path, version: int, generation: int) -> Path:
    """Where a base lies."""
    return bases / f"{version:020d}.{generation:010d}"


def copy_file(source: Path, target: Path) -> TableFile:
    """Copy a table's file, synced. Raises OSError."""
    digest, size = hashlib.blake2b(digest_size=16), 0
    with open(source, "rb") as reader, open(target, "xb") as writer:
        while chunk := reader.read(_CHUNK_BYTES):
            digest.update(chunk)
            writer.write(chunk)
            size += len(chunk)
        writer.flush()
        os.fsync(writer.fileno())
    return TableFile(target.name, size, digest.hexdigest(), 0, 0)


def table_file(path: Path, base_sequence: int, time_s: int) -> TableFile:
    """What a manifest says of a file that was just written. Raises OSError."""
    size, checksum = _measure(path)
    return TableFile(path.name, size, checksum, base_sequence, time_s)


def verify_file(path: Path, expected: TableFile) -> None:
    """Raise StoreDamaged unless the file has the bytes that the manifest says."""
    try:
        found = _measure(path)
    except OSError as error:
        raise StoreDamaged(f"{path}: {error}; its manifest names it") from error
    if found != (expected.bytes, expected.checksum):
        raise StoreDamaged(f"{path}: {found[0]} bytes with checksum {found[1]}, expected {expected.bytes} with "
                           f"{expected.checksum}: restore it from a snapshot or a replica")


def _measure(path: Path) -> tuple[int, str]:
    digest, size = hashlib.blake2b(digest_size=16), 0
    with open(path, "rb") as reader:
        while chunk := reader.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def write_manifest(base: Base) -> None:
    """Write and sync the manifest in the base's folder. Raises OSError."""
    said = {"format": _FORMAT, "package_version": base.package_version, "generation": base.generation,
            "shard": base.shard, "shards": base.shards,
            "epoch": None if base.epoch is None else json.loads(base.epoch.json()), "origin": dict(base.origin),
            "tables": {name: asdict(table) for name, table in sorted(base.tables.items())}}
    durable.write_synced(base.folder / MANIFEST, json.dumps(said, indent=1).encode() + b"\n")


def read_manifest(folder: Path) -> Base:
    """The base or snapshot in `folder`. Raises StoreDamaged naming the file and what is wrong with it."""
    path = folder / MANIFEST
    try:
        said = json.loads(path.read_bytes())
        if said["format"] != _FORMAT:
            raise StoreDamaged(f"{path}: format is {said['format']}, expected {_FORMAT}")
        tables = {name: _table_file(name, value) for name, value in said["tables"].items()}
        epoch = None if said["epoch"] is None else Epoch.of(said["epoch"])
        origin = dict(said.get("origin", {}))
        numbers = [_number(said[name]) for name in ("package_version", "generation", "shard", "shards")]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, CallerError) as error:
        raise StoreDamaged(f"{path}: {type(error).__name__}: {error}; the folder is no base or snapshot") from error
    return Base(folder, *numbers, tables, epoch, origin)


def find_bases(bases: Path) -> dict[int, Base]:
    """The newest base of each package version. Raises StoreDamaged, StoreError."""
    newest: dict[int, str] = {}
    with durable.disk_errors(f"{bases}"):
        for name in sorted(os.listdir(bases)):
            if _FOLDER.fullmatch(name):
                newest[int(name[:20])] = name
    found = {version: read_manifest(bases / name) for version, name in newest.items()}
    for version, base in found.items():
        if base_folder(bases, base.package_version, base.generation) != base.folder or not base.tables:
            raise StoreDamaged(f"{base.folder}: its manifest says version {base.package_version}, generation "
                               f"{base.generation}, with {len(base.tables)} tables; expected version {version}")
    return found


def remove_bases(bases: Path, keep: Mapping[int, Base]) -> None:
    """Remove every folder but the bases of `keep`: older generations, retired versions, unfinished removals. Raises
    StoreError."""
    kept = {base.folder.name for base in keep.values()}
    with durable.disk_errors(f"{bases}"):
        for name in os.listdir(bases):
            if name not in kept:
                path = bases / name
                durable.remove_tree(path) if _FOLDER.fullmatch(name) else shutil.rmtree(path)


def _table_file(name: str, value: Any) -> TableFile:
    check_table_name(name)
    table = TableFile(**value)
    if not isinstance(table.file, str) or Path(table.file).name != table.file or not isinstance(table.checksum, str):
        raise ValueError(f"table {name!r} is {value}")
    for number in (table.bytes, table.base_sequence, table.time_s):
        _number(number)
    return table


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is no number from 0 to 2**63 - 1")
    return value
