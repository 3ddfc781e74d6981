"""Entries of the log, and the rows of large deltas, a file each: ids int64[n], rows float32[n, dim], deletes int64[m].

Large deltas stay out of RocksDB because it would write them twice, and rocksdict holds the interpreter's lock for as
long as it writes: 2 to 4 s for a million rows of 128 B. A file is part of the store once an entry of the log names it;
the entry's checksum covers it. Files that no entry names are removed at the next start. All numbers are little-endian.
"""

import json
import os
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from paramserver import durable
from paramserver.delta import Delta
from paramserver.errors import CallerError, StoreDamaged

__all__ = ["Entry", "delta_of_payload", "entry_of", "payload_chunks", "payload_path", "sweep", "write_payload"]


@dataclass(frozen=True)
class Entry:
    """What the log says of one delta: n rows of dim numbers, m deletes. payload: "inline" behind the entry, "file", or
    "dropped" once a base holds them. synced: it outlasts a power loss."""

    table: str
    base_version: int
    sequence: int
    checksum: str
    dim: int
    n: int
    m: int
    time_s: int
    payload: str
    synced: bool

    @property
    def payload_bytes(self) -> int:
        """Bytes of its payload on disk."""
        return 0 if self.payload == "dropped" else 8 * (self.n + self.m) + 4 * self.n * self.dim

    def encoded(self) -> bytes:
        """One line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":")).encode() + b"\n"

    def __str__(self) -> str:
        return f"delta {self.sequence} of table {self.table!r}, base version {self.base_version}"


def entry_of(raw: bytes, where: str) -> Entry:
    """The entry whose line begins `raw`. Raises StoreDamaged."""
    try:
        return Entry(**json.loads(raw[: raw.index(b"\n")]))
    except (ValueError, TypeError) as error:
        raise StoreDamaged(f"{where}: {raw[:200]!r} is no entry of the log") from error


def payload_path(folder: Path, entry: Entry) -> Path:
    """Where a delta's rows lie below the folder of payloads."""
    return folder / f"{entry.base_version:020d}" / entry.table / f"{entry.sequence:020d}-{entry.checksum}.rows"


def payload_chunks(delta: Delta) -> list[memoryview]:
    """The bytes of a payload, in order, not copied."""
    parts = (delta.ids.astype("<i8", copy=False), delta.rows.astype("<f4", copy=False),
             delta.deletes.astype("<i8", copy=False))
    return [memoryview(part.reshape(-1).view(np.uint8)) for part in parts if part.size]


def write_payload(path: Path, delta: Delta, sync: bool) -> None:
    """Write the file; with `sync` it and its name are durable on return. Nothing is left of it when it fails. Raises
    OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(path, "wb") as file:
            for chunk in payload_chunks(delta):
                file.write(chunk)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if sync:
            for folder in path.parents[:3]:
                durable.sync_folder(folder)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def delta_of_payload(entry: Entry, raw: bytes, where: str) -> Delta:
    """The delta of an entry and its payload. Raises StoreDamaged when the bytes are not those that were logged."""
    n, dim, rows_at = entry.n, entry.dim, 8 * entry.n
    if len(raw) != entry.payload_bytes:
        raise StoreDamaged(f"{where} holds {len(raw)} bytes, expected {entry.payload_bytes}")
    deletes_at = rows_at + 4 * n * dim
    try:
        delta = Delta(entry.table, entry.base_version, entry.sequence, np.frombuffer(raw, "<i8", n),
                      np.frombuffer(raw, "<f4", n * dim, rows_at).reshape(n, dim),
                      np.frombuffer(raw, "<i8", entry.m, deletes_at), entry.time_s)
    except (CallerError, ValueError) as error:
        raise StoreDamaged(f"{where}: {error}") from error
    if delta.checksum != entry.checksum:
        raise StoreDamaged(f"{where}: its content has checksum {delta.checksum}, the log says {entry.checksum}")
    return delta


def sweep(folder: Path, named: Collection[Path]) -> None:
    """Remove the files that no entry names, and folders left empty. Raises OSError."""
    for version in folder.iterdir():
        for table in version.iterdir():
            for path in table.iterdir():
                if path not in named:
                    path.unlink()
            if not any(table.iterdir()):
                table.rmdir()
        if not any(version.iterdir()):
            version.rmdir()
