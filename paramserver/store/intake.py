"""How bases come into a shard's directory: copied or written aside, checked by loading, renamed into place as one."""

import contextlib
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paramserver import durable
from paramserver.delta import Delta, check_table_name
from paramserver.epoch import Epoch
from paramserver.errors import OptionError, SequenceGap, StoreError
from paramserver.store import bases as bases_
from paramserver.store.bases import Base, TableFile, origin_of
from paramserver.store.layout import Layout
from paramserver.store.line import Refused, check_places, expect_same
from paramserver.store.log import DeltaLog
from paramserver.store.recovery import Version
from paramserver.store.table_files import TableFiles, base_of, check_suffix

__all__ = ["Intake", "check_tables", "check_version", "expect_content"]

_VERSION_MAX = 2**63 - 1


class Intake:
    """Writes bases of one shard. Callers take turns."""

    def __init__(self, layout: Layout, log: DeltaLog, files: TableFiles) -> None:
        self._layout, self._log, self._files = layout, log, files

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder for unfinished work, gone at the end unless it was renamed. Raises StoreFull, StoreError."""
        folder = self._layout.incoming / secrets.token_hex(8)
        with durable.disk_errors(f"{folder}"):
            folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def copy(self, folder: Path, version: int, tables: Mapping[str, str | Path], sequences: Mapping[str, int],
             time_s: int) -> Base:
        """Copy the files of a version's tables. time_s: of rows whose file does not say it, 0: that of the file. Raises
        StoreFull, StoreError."""
        copied: dict[str, TableFile] = {}
        with durable.disk_errors(f"package version {version}"):
            for name, path in tables.items():
                file = bases_.copy_file(Path(path), folder / f"{name}{Path(path).suffix}")
                sequence, written_s = base_of(folder / file.file, version)
                copied[name] = replace(file, base_sequence=int(sequences.get(name, sequence)),
                                       time_s=written_s or time_s or int(Path(path).stat().st_mtime))
        return Base(folder, version, 0, self._files.shard, self._files.shards, copied, origin=origin_of(copied))

    def write(self, folder: Path, serving: Version, epoch: Epoch, generation: int,
              progress: Callable[[int, int], None] | None = None) -> Base:
        """Write the tables of a version as of an epoch, and the manifest. Raises TableFileError, StoreFull."""
        tables = {}
        for name, line in serving.lines.items():
            sequence, number = epoch.sequences[name], epoch.package_version
            entry = self._log.entries(number, name).get(sequence)
            time_s = entry.time_s if entry else serving.base.tables[name].time_s
            path = self._files.write(folder / name, line.table, epoch.number, sequence=sequence, version=number,
                                     time_s=time_s, progress=progress)
            with durable.disk_errors(f"{path}"):
                tables[name] = bases_.table_file(path, sequence, time_s)
        base = Base(folder, epoch.package_version, generation, self._files.shard, self._files.shards, tables, epoch,
                    serving.base.origin)
        with durable.disk_errors(f"{folder}"):
            bases_.write_manifest(base)
            durable.sync_tree(folder)
        return base

    def commit(self, base: Base) -> Base:
        """Rename a base's folder into its place: from now on it is what a start finds. Raises StoreFull, StoreError."""
        placed = replace(base, folder=bases_.base_folder(self._layout.bases, base.package_version, base.generation))
        with durable.disk_errors(f"{placed.folder}"):
            if not (base.folder / bases_.MANIFEST).exists():
                bases_.write_manifest(base)
                durable.sync_tree(base.folder)
            durable.move_into_place(base.folder, placed.folder)
        return placed

    def hold(self, delta: Delta, versions: Mapping[int, Version], held_bytes_max: int) -> str:
        """Keep a delta for a version that is to come: "held", or "already". Raises what ShardStore.stage does."""
        entries = self._log.entries(delta.base_version, delta.table)
        if delta.sequence in entries:
            expect_same(delta, entries[delta.sequence])
            return "already"
        check_places(delta, self._files.shard, self._files.shards)
        if entries and delta.sequence != max(entries) + 1:
            missing = (max(entries) + 1, delta.sequence - 1)
            raise SequenceGap(f"{delta}: this shard holds {min(entries)} to {max(entries)} for that version, send "
                              f"{missing[0]} next", missing)
        held = sum(self._log.payload_bytes(v, table) for v in self._log.versions() if v not in versions
                   for table in self._log.tables(v))
        if held + delta.bytes > held_bytes_max:
            raise StoreError(f"{delta} cannot be held: deltas for versions that do not serve yet take {held} bytes, at "
                             f"most {held_bytes_max}; add the snapshot of that version first")
        self._log.append(delta)
        return "held"

    def take_held(self, version: Version) -> list[str]:
        """Apply the deltas that were held for a new version. Returns, in words, what was held in vain: it is dropped
        from the log before the version's base is in its place, so that no start meets it."""
        number, refused = version.base.package_version, []
        for table in self._log.tables(number):
            entries = self._log.entries(number, table)
            line, bad, why = version.lines.get(table), [], ""
            if line is not None:
                # Rows that went into a base which this one replaces come again from another replica.
                self._log.forget([e for s, e in entries.items() if s > line.base and e.payload == "dropped"])
            if line is None:
                bad, why = list(entries.values()), f"package version {number} has no table {table!r}"
            else:
                try:
                    line.replay()
                except Refused as error:
                    bad, why = [e for s, e in entries.items() if s >= error.entry.sequence], str(error)
            if bad:
                self._log.forget(bad)
                refused.append(f"{len(bad)} held deltas, the first {bad[0]}: {why}")
        return refused

    def remove_others(self, versions: Mapping[int, Version]) -> None:
        """Remove the bases that no version stands on any more. Raises StoreError."""
        bases_.remove_bases(self._layout.bases, {version: serving.base for version, serving in versions.items()})


def check_tables(tables: Mapping[str, str | Path], sequences: Mapping[str, int]) -> None:
    """Raise OptionError, DeltaError unless there is at least one table, each has a fit name and kind of file, and
    `sequences` are of some of them."""
    if unknown := sorted(set(sequences) - set(tables)):
        raise OptionError(f"base_sequences names {', '.join(map(repr, unknown))}, the tables are {sorted(tables)}")
    if not tables:
        raise OptionError("tables is empty, expected a file for each table of the package version")
    for name, path in tables.items():
        check_table_name(name)
        check_suffix(Path(path))


def check_version(version: Any) -> None:
    """Raise OptionError for what is no package version."""
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version <= _VERSION_MAX:
        raise OptionError(f"package_version is {version!r}, expected an integer from 0 to 2**63 - 1")


def expect_content(here: Base, given: Base) -> None:
    """Raise StoreError when a version that is here came as other files than those given."""
    if here.origin and here.origin != origin_of(given.tables):
        raise StoreError(f"package version {given.package_version} serves here with other files: what a version holds "
                         "never changes, take a new number")
