"""Resharding of snapshots, offline: the sets of N shards become the sets of M, row for row and byte for byte, and every
row is counted and fingerprinted before and after."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paramserver import _core, durable
from paramserver.arrays import DTYPES
from paramserver.convert import shard_folder
from paramserver.errors import OptionError, StoreDamaged, StoreError, TableSchemaError
from paramserver.shard_map import SHARDS_MAX, mix, shard_of
from paramserver.snapshot import Progress, Snapshot, steps

__all__ = ["Resharded", "reshard"]

_MUST_AGREE = ("dtype", "dim", "has_times", "base_sequence", "package_version")


@dataclass(frozen=True)
class Resharded:
    """What reshard made."""

    destination: Path  #: the folder, with one folder for each shard (convert.shard_folder)
    shards: int
    rows: dict[str, int]  #: rows of each table, the same as before
    fingerprints: dict[str, int]  #: of each table: the sum of a hash of each row, the same as before


def reshard(sources: Sequence[str | Path], destination: str | Path, shards: int, *,
            progress: Progress | None = None) -> Resharded:
    """Make the snapshots of `shards` shards of those of N.

    sources: the folders of shards 0 to N - 1, each with one `NAME.snap` for each table. destination: a folder that does
    not exist; it appears by rename, whole, when everything in it was read back and verified.

    Raises OptionError, TableSchemaError (the shards differ in tables, types, package version or sequence), StoreDamaged
    (a source is not what was written, or a row lies on a shard that is not its own), StoreError (destination exists,
    cannot be read or written), StoreFull.
    """
    if not 1 <= shards <= SHARDS_MAX or not sources:
        raise OptionError(f"{len(sources)} sources and shards {shards}, expected one source at least and 1 to "
                          f"{SHARDS_MAX} shards")
    destination = Path(destination)
    if destination.exists():
        raise StoreError(f"{destination}: is there already: give a folder that is not")
    tables = _tables([Path(source) for source in sources])
    total = 3 * sum(len(part) for parts in tables.values() for part in parts)
    told = _Told(progress, total)
    rows: dict[str, int] = {}
    fingerprints: dict[str, int] = {}
    temporary = durable.temporary_name(destination)
    with durable.disk_errors(str(destination)):
        try:
            for shard in range(shards):
                shard_folder(temporary, shard).mkdir(parents=True)
            for name, parts in tables.items():
                before = _dealt(parts, [shard_folder(temporary, k) / f"{name}.snap" for k in range(shards)], told)
                after = _read_back([shard_folder(temporary, k) / f"{name}.snap" for k in range(shards)], told)
                if before != after:
                    raise StoreDamaged(f"{destination}: table {name} has (rows, fingerprint) {after}, expected "
                                       f"{before}: the disk does not keep what is written")
                rows[name], fingerprints[name] = after
            durable.sync_tree(temporary)
            durable.move_into_place(temporary, destination)
        finally:
            if temporary.exists():
                durable.remove_tree(temporary)
    return Resharded(destination, shards, rows, fingerprints)


class _Told:
    """Progress over all tables and passes: three rows of work for each row."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def add(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None:
            self._progress(self._done // 3, self._total // 3)


def _tables(sources: list[Path]) -> dict[str, list[Snapshot]]:
    """The snapshots of each table, one for each shard, which are one state of one table."""
    names = [sorted(path.name for path in source.glob("*.snap")) for source in sources]
    if not names[0]:
        raise TableSchemaError(f"{sources[0]}: no NAME.snap there")
    for source, found in zip(sources, names, strict=True):
        if found != names[0]:
            raise TableSchemaError(f"{source}: has {', '.join(found)}, expected {', '.join(names[0])} as {sources[0]}")
    tables = {}
    for name in names[0]:
        parts = [Snapshot.open(source / name) for source in sources]
        for part in parts:
            for field in _MUST_AGREE:
                mine, first = getattr(part.header, field), getattr(parts[0].header, field)
                if mine != first:
                    raise TableSchemaError(f"{part.path}: {field} is {mine}, expected {first} as in {parts[0].path}: "
                                           "the shards are not of one state")
            if not np.array_equal(part.stored_default_row, parts[0].stored_default_row):
                raise TableSchemaError(f"{part.path}: the default row is not that of {parts[0].path}")
        tables[parts[0].name] = parts
    return tables


def _dealt(parts: list[Snapshot], paths: list[Path], told: _Told) -> tuple[int, int]:
    """Verify the sources and deal their rows out to the files at `paths`; returns rows and fingerprint."""
    counts = np.zeros(len(paths), np.int64)
    for shard, part in enumerate(parts):
        part.verify()
        for first, end in steps(len(part), part.dim):
            counts += np.bincount(_checked(part, shard, len(parts), first, end, len(paths)), minlength=len(paths))
            told.add(end - first)
    header = parts[0].header
    time_s = max(part.header.time_s for part in parts)
    writers = [_core.SnapshotWriter(os.fspath(path), DTYPES.index(header.dtype), header.dim, header.has_times, count,
                                    header.base_sequence, header.package_version, time_s,
                                    parts[0].stored_default_row[None])
               for path, count in zip(paths, counts.tolist(), strict=True)]
    try:
        return int(counts.sum()), _written(parts, writers, told)
    finally:
        for writer in writers:
            writer.abandon()


def _written(parts: list[Snapshot], writers: list[Any], told: _Told) -> int:
    """Deal all rows out to the writers, in the order of the mixing hash; returns their fingerprint."""
    fingerprint = 0
    at = [0] * len(parts)
    while any(start < len(part) for start, part in zip(at, parts, strict=True)):
        ends = _stretch(parts, at)
        ids, rows, times = _merged(parts, at, ends)
        fingerprint += _core.rows_fingerprint(ids, rows)
        places = shard_of(ids, len(writers))
        for place in np.unique(places).tolist():
            mine = places == place
            writers[place].append(ids[mine], rows[mine], None if times is None else times[mine])
        told.add(len(ids))
        at = ends
    for writer in writers:
        writer.finish()
    return fingerprint % 2**64


def _checked(part: Snapshot, shard: int, shards: int, first: int, end: int, destinations: int) -> np.ndarray:
    """Where rows [first, end) go, after a look at where they are."""
    ids = part.ids[first:end]
    wrong = shard_of(ids, shards) != shard
    if wrong.any():
        one = ids[int(np.argmax(wrong))]
        raise StoreDamaged(f"{part.path}: id {one} belongs to shard {int(shard_of([one], shards)[0])} of {shards}, not "
                           f"to {shard}: give the folders of all shards, in their order")
    return shard_of(ids, destinations)


def _stretch(parts: list[Snapshot], at: list[int]) -> list[int]:
    """The ends of the next stretches of all parts, which hold the same range of hashes."""
    step = max(1, next(steps(2**62, parts[0].dim))[1] // len(parts))
    ends = [min(len(part), start + step) for part, start in zip(parts, at, strict=True)]
    unfinished = [mix(part.ids[end - 1 : end])[0] for part, end in zip(parts, ends, strict=True) if end < len(part)]
    if not unfinished:
        return ends
    bound = min(unfinished)
    return [start + int(np.searchsorted(mix(part.ids[start:end]), bound, side="right"))
            for part, start, end in zip(parts, at, ends, strict=True)]


def _merged(parts: list[Snapshot], at: list[int], ends: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The rows of a stretch of all parts in the order of the mixing hash: ids, rows as stored, times."""
    places = list(zip(parts, at, ends, strict=True))
    ids = np.concatenate([part.ids[start:end] for part, start, end in places])
    rows = np.concatenate([part.stored_rows(start, end) for part, start, end in places])
    order = np.argsort(mix(ids))
    if not parts[0].header.has_times:
        return ids[order], rows[order], None
    return ids[order], rows[order], np.concatenate([part.times[start:end] for part, start, end in places])[order]


def _read_back(paths: list[Path], told: _Told) -> tuple[int, int]:
    """Rows and fingerprint of what was written, every id being on its shard."""
    rows, fingerprint = 0, 0
    for shard, path in enumerate(paths):
        part = Snapshot.open(path)
        part.verify()
        for first, end in steps(len(part), part.dim):
            _checked(part, shard, len(paths), first, end, 1)
            fingerprint += _core.rows_fingerprint(part.ids[first:end], part.stored_rows(first, end))
            told.add(end - first)
        rows += len(part)
    return rows, fingerprint % 2**64
