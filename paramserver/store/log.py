"""The log: deltas, epochs and retired versions in RocksDB. Each change is one write batch, synced when the store is.

    s/<version, 20 digits>/<table>/<sequence, 20 digits>   the entry's line (payloads.py), and a small delta's payload
    e/<number, 20 digits>                                   an epoch adopted here and still held, JSON
    a/<version>/<table>/<first>/<last>                      a range of sequences that a rollback abandoned
    r/<version>                                             a retired package version

A record that a power loss or a crash cut off in the write-ahead log was never acknowledged: RocksDB drops it whole.
When a write fails, the database is closed and opened again before the next: RocksDB refuses writes after a failed one.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from paramserver import durable
from paramserver.delta import Delta
from paramserver.epoch import Epoch
from paramserver.errors import ClosedError, StoreDamaged, StoreError, StoreFull, StoreLocked
from paramserver.store.payloads import (
    Entry,
    delta_of_payload,
    entry_of,
    payload_chunks,
    payload_path,
    sweep,
    write_payload,
)
from paramserver.store.rocks import open_rocks, sync_option

__all__ = ["CHECKSUMS_KEPT", "INLINE_BYTES_MAX", "DeltaLog", "Key"]

#: Payloads up to this many bytes lie in RocksDB, larger ones in files.
INLINE_BYTES_MAX = 64 << 10
#: Entries of a table that stay after their rows were dropped.
CHECKSUMS_KEPT = 10_000
#: A (package version, table).
Key = tuple[int, str]


class DeltaLog:
    """The log of one shard. Callers take turns. folder: RocksDB's; payloads: the files' folder; sync: acknowledged
    means on disk; reserve_bytes: space that a write leaves free, since RocksDB needs some to live."""

    def __init__(self, folder: Path, payloads: Path, *, sync: bool, reserve_bytes: int) -> None:
        self._folder, self._payloads = folder, payloads
        self._sync, self._reserve_bytes = sync, reserve_bytes
        self._entries: dict[Key, dict[int, Entry]] = {}
        self._closed = False
        # Keys of a failed write, and their files: it may be on disk all the same, but it was not acknowledged.
        self._doubtful: dict[bytes, Path | None] = {}
        with _rocks_errors(folder):
            self._db: Any = open_rocks(folder)
            for key, value in self._scan(b"s/"):
                entry = entry_of(value, f"{folder}: {key.decode()}")
                self._entries.setdefault((entry.base_version, entry.table), {})[entry.sequence] = entry
        with durable.disk_errors(f"{payloads}"):
            sweep(payloads, {payload_path(payloads, e) for e in self._all() if e.payload == "file"})

    def entries(self, version: int, table: str) -> dict[int, Entry]:
        """The entries of a table by sequence; do not change it."""
        return self._entries.get((version, table), {})

    def tables(self, version: int) -> list[str]:
        """The tables of a version that have entries."""
        return sorted(table for v, table in list(self._entries) if v == version)

    def versions(self) -> list[int]:
        """The package versions that have entries, ascending."""
        return sorted({version for version, _ in list(self._entries)})

    def payload_bytes(self, version: int, table: str) -> int:
        """Payload bytes of a table's entries."""
        return sum(entry.payload_bytes for entry in list(self.entries(version, table).values()))

    def append(self, delta: Delta) -> None:
        """Take a delta: durable on return, whole or not at all. Raises StoreFull, StoreError."""
        self._expect_space(delta.bytes)
        inline = delta.bytes <= INLINE_BYTES_MAX
        entry = Entry(delta.table, delta.base_version, delta.sequence, delta.checksum, delta.dim, delta.ids.size,
                      delta.deletes.size, delta.time_s, "inline" if inline else "file", self._sync)
        value, path = entry.encoded(), None
        if inline:
            value += b"".join(payload_chunks(delta))
        else:
            path = payload_path(self._payloads, entry)
            with durable.disk_errors(str(delta)):
                write_payload(path, delta, self._sync)
        self._write([(_entry_key(entry), value)], path)
        self._entries.setdefault((delta.base_version, delta.table), {})[delta.sequence] = entry

    def delta(self, entry: Entry) -> Delta:
        """The delta of an entry whose payload is here. Raises StoreDamaged naming it, StoreError."""
        if entry.payload == "file":
            path = payload_path(self._payloads, entry)
            try:
                raw = path.read_bytes()
            except OSError as error:
                raise StoreDamaged(f"{path}: {error}; the log names it for {entry}") from error
            return delta_of_payload(entry, raw, f"{path} ({entry})")
        with _rocks_errors(self._folder):
            value = self._live().get(_entry_key(entry)) or b"\n"
        return delta_of_payload(entry, value[value.index(b"\n") + 1 :], f"{self._folder} ({entry})")

    def drop_payloads(self, through: dict[Key, int]) -> None:
        """Truncate: forget the rows of each table's deltas up to a sequence, in one commit. The newest checksums stay,
        so that a delta sent again is still told from another one."""
        dropped, forgotten = [], []
        for key, last in through.items():
            old = sorted(sequence for sequence in self.entries(*key) if sequence <= last)
            forgotten += [self._entries[key][sequence] for sequence in old[:-CHECKSUMS_KEPT]]
            dropped += [self._entries[key][sequence] for sequence in old[-CHECKSUMS_KEPT:]
                        if self._entries[key][sequence].payload != "dropped"]
        if dropped or forgotten:
            self._write([*((_entry_key(entry), replace(entry, payload="dropped").encoded()) for entry in dropped),
                         *((_entry_key(entry), None) for entry in forgotten)], rewritten=True)
        for entry in dropped:
            self._entries[entry.base_version, entry.table][entry.sequence] = replace(entry, payload="dropped")
        self._remove(forgotten)
        self._remove_files(dropped)

    def forget(self, entries: list[Entry]) -> None:
        """Remove entries that need not be here any more, in one commit."""
        if entries:
            self._write([(_entry_key(entry), None) for entry in entries])
        self._remove(entries)

    def epochs(self) -> list[Epoch]:
        """The epochs held here, ascending. Raises StoreDamaged."""
        with _rocks_errors(self._folder):
            return [Epoch.of(_json(value, self._folder)) for _, value in self._scan(b"e/")]

    def put_epoch(self, epoch: Epoch, abandoned: dict[Key, tuple[int, int]]) -> None:
        """Remember an epoch, and the ranges (first, last) of sequences that it abandons, in one commit."""
        self._expect_space(1 << 16)
        self._write([(b"e/%020d" % epoch.number, epoch.json().encode())]
                    + [(_range_key(key, span), b"") for key, span in abandoned.items()])

    def put_abandoned(self, abandoned: list[tuple[Key, tuple[int, int]]]) -> None:
        """Remember ranges (first, last) of sequences that are abandoned, in one commit."""
        if abandoned:
            self._write([(_range_key(key, span), b"") for key, span in abandoned])

    def drop_epochs(self, numbers: list[int]) -> None:
        """Forget epochs that are no longer held, in one commit."""
        self._write([(b"e/%020d" % number, None) for number in numbers])

    def abandoned(self) -> dict[Key, list[tuple[int, int]]]:
        """Every range of sequences that a rollback abandoned, by table, ascending."""
        ranges: dict[Key, list[tuple[int, int]]] = {}
        with _rocks_errors(self._folder):
            for key, _ in self._scan(b"a/"):
                _, version, table, first, last = key.decode().split("/")
                ranges.setdefault((int(version), table), []).append((int(first), int(last)))
        return ranges

    def retired(self) -> set[int]:
        """The package versions that were retired."""
        with _rocks_errors(self._folder):
            return {int(key[2:]) for key, _ in self._scan(b"r/")}

    def retire(self, version: int, epochs: list[int]) -> None:
        """Retire a version: its entries and epochs go, in one commit; its name stays."""
        gone = [entry for entry in self._all() if entry.base_version == version]
        ranges = [_range_key(key, span) for key, ranges in self.abandoned().items() if key[0] == version
                  for span in ranges]
        self._write([(b"r/%020d" % version, b""), *((_entry_key(entry), None) for entry in gone),
                     *((b"e/%020d" % number, None) for number in epochs), *((key, None) for key in ranges)])
        self._entries = {key: entries for key, entries in self._entries.items() if key[0] != version}
        shutil.rmtree(self._payloads / f"{version:020d}", ignore_errors=True)

    def close(self) -> None:
        """Close the database; calls after it raise ClosedError."""
        self._closed = True
        self._shut()

    def _remove(self, entries: list[Entry]) -> None:
        for entry in entries:
            del self._entries[entry.base_version, entry.table][entry.sequence]
        self._remove_files(entries)

    def _remove_files(self, entries: list[Entry]) -> None:
        # What stays because of an error is removed at the next start.
        for entry in entries:
            if entry.payload == "file":
                payload_path(self._payloads, entry).unlink(missing_ok=True)

    def _all(self) -> Iterator[Entry]:
        for entries in self._entries.values():
            yield from entries.values()

    def _scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key, value in self._live().items(from_key=prefix):
            if not key.startswith(prefix):
                break
            yield key, value

    def _live(self) -> Any:
        if self._closed:
            raise ClosedError(f"{self._folder} is closed")
        if self._db is None:
            self._db = open_rocks(self._folder)
        return self._db

    def _write(self, puts: list[tuple[bytes, bytes | None]], path: Path | None = None, *,
               rewritten: bool = False) -> None:
        """One batch: a key's new value, or None to delete it. path: the file that the first value names. rewritten: the
        keys are of records acknowledged before, which stay whatever becomes of this write."""
        with _rocks_errors(self._folder):
            db = self._live()
            try:
                # With the keys of a failed write gone first, a delta refused then is as if it had never been sent.
                _commit(db, [(key, None) for key in self._doubtful] + puts, self._sync)
            except BaseException:
                self._doubtful |= {key: path for key, value in puts if value is not None and not rewritten}
                self._shut()
                raise
        for doubtful in set(self._doubtful.values()) - {path, None}:
            doubtful.unlink(missing_ok=True)
        self._doubtful = {}

    def _shut(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with _rocks_errors(self._folder):
                db.close()

    def _expect_space(self, bytes_needed: int) -> None:
        with durable.disk_errors(f"{self._folder}"):
            free = shutil.disk_usage(self._folder).free
        if free < bytes_needed + self._reserve_bytes:
            raise StoreFull(f"{self._folder}: {free} bytes free, {bytes_needed} needed and {self._reserve_bytes} kept "
                            "in reserve; nothing was taken: free space and send it again")


def _commit(db: Any, puts: list[tuple[bytes, bytes | None]], sync: bool) -> None:
    from rocksdict import WriteBatch

    batch = WriteBatch(raw_mode=True)
    for key, value in puts:
        if value is None:
            batch.delete(key)
        else:
            batch.put(key, value)
    db.write(batch, sync_option(sync))


def _entry_key(entry: Entry) -> bytes:
    return f"s/{entry.base_version:020d}/{entry.table}/{entry.sequence:020d}".encode()


def _range_key(key: Key, span: tuple[int, int]) -> bytes:
    return f"a/{key[0]:020d}/{key[1]}/{span[0]:020d}/{span[1]:020d}".encode()


def _json(raw: bytes, folder: Path) -> Any:
    try:
        return json.loads(raw)
    except ValueError as error:
        raise StoreDamaged(f"{folder}: {raw[:200]!r} is no record of the log") from error


@contextmanager
def _rocks_errors(folder: Path) -> Iterator[None]:
    """rocksdict raises plain Exceptions with RocksDB's words."""
    try:
        yield
    except (StoreError, ClosedError):
        raise
    except Exception as error:
        text = str(error)
        if "No space left" in text or "NoSpace" in text:
            raise StoreFull(f"{folder}: {text}; nothing was taken: free space and try again") from error
        if "lock" in text.lower() and "unavailable" in text.lower():
            raise StoreLocked(f"{folder} is open already: {text}") from error
        if "Corruption" in text:
            raise StoreDamaged(f"{folder}: {text}; restore the shard from a snapshot or a replica") from error
        raise StoreError(f"{folder}: {text}") from error
