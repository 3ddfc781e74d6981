"""A shard's state from its directory: the bases, then the log on top of them, then the epochs that are held."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paramserver.epoch import Epoch
from paramserver.errors import StoreDamaged, StoreFull
from paramserver.store import bases as bases_
from paramserver.store.bases import Base
from paramserver.store.layout import Layout
from paramserver.store.leases import Leases
from paramserver.store.line import Line
from paramserver.store.log import DeltaLog
from paramserver.store.payloads import Entry
from paramserver.store.table_files import SNAPSHOT_SUFFIX, TableFiles

__all__ = ["DELTAS_A_RUNG", "Progress", "Recovered", "Version", "load_again", "load_version", "oldest_state", "recover"]

#: Deltas replayed between two rungs (see _Ladder).
DELTAS_A_RUNG = 32
#: Called as (what, bytes done, bytes in all) while a store opens.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Version:
    """A package version that serves here: where it came from, and its tables. checkpoints: whether a new base may be
    written of them."""

    base: Base
    lines: Mapping[str, Line]
    checkpoints: bool = True

    @property
    def damage(self) -> str:
        """Why no epoch can be shown on this base; empty when one can."""
        return next((line.damage for line in self.lines.values() if line.damage), "")

    @property
    def settled(self) -> bool:
        """Whether nothing that a rollback abandoned is in its tables."""
        return not any(line.damage or line.waits_for_leases() for line in self.lines.values())

    def is_stuck(self, leases: Leases) -> bool:
        """Whether nothing but `load_again` takes back what was abandoned: a table shows it as its newest state, and
        nobody leases that."""
        for line in self.lines.values():
            shown = line.table.epochs()
            if not line.damage and line.waits_for_leases() and line.is_abandoned(shown[-1][1]):
                return not any(leases.live(number) for number, sequence in shown if line.is_abandoned(sequence))
        return False


@dataclass(frozen=True)
class Recovered:
    """What a directory holds. lost: entries that were not synced and that a power loss damaged, and what came after."""

    versions: dict[int, Version]
    epochs: dict[int, Epoch]
    retired: set[int]
    lost: list[Entry]


def recover(layout: Layout, log: DeltaLog, files: TableFiles, progress: Progress | None = None) -> Recovered:
    """Load the bases, replay the log, and publish the epochs that are held to the tables. Raises StoreDamaged when
    something that was acknowledged is not there, naming it; TableFileError, StoreError."""
    retired = log.retired()
    found = {v: base for v, base in bases_.find_bases(layout.bases).items() if v not in retired}
    bases_.remove_bases(layout.bases, found)
    meter = _Meter(progress, log, found)
    versions = {}
    for version, base in sorted(found.items()):
        for name, table in base.tables.items():
            # A snapshot's own checksums are looked at while it is loaded.
            if base.path(name).suffix != SNAPSHOT_SUFFIX:
                bases_.verify_file(base.path(name), table)
        versions[version] = load_version(base, log, files, meter)
    epochs, lost = _servable(log.epochs(), versions, retired), []
    for version, serving in versions.items():
        own = [epoch for epoch in epochs.values() if epoch.package_version == version]
        lost += _replay_all(layout.root, serving, own, log, meter)
    _tidy(log, versions, lost)
    return Recovered(versions, epochs, retired, lost)


def load_again(base: Base, log: DeltaLog, files: TableFiles,
               epochs: Iterable[Epoch]) -> tuple[Version, dict[int, Epoch]]:
    """A version as a start would find it, without what was abandoned, and those of `epochs` that it shows. Raises
    StoreDamaged, TableFileError, StoreError."""
    number = base.package_version
    version = load_version(base, log, files)
    shown = _servable([epoch for epoch in epochs if epoch.package_version == number], {number: version}, set())
    lost = _replay_all(base.folder, version, list(shown.values()), log, _Meter(None, log, {}))
    if lost:
        raise StoreDamaged(f"{lost[0]} is damaged: restore the shard from a snapshot or a replica")
    _tidy(log, {number: version}, [])
    return version, shown


def oldest_state(version: Version, epochs: Iterable[Epoch]) -> Epoch | None:
    """Of the held epochs, the one whose state can be a version's next base: every other builds on it. None when there
    is none, or nothing would be gained."""
    held = [epoch for epoch in epochs if epoch.package_version == version.base.package_version]
    if not held or not version.checkpoints or not version.settled:
        return None
    for name, line in version.lines.items():
        sequence = held[0].sequences[name]
        if line.is_abandoned(sequence) or any(epoch.sequences[name] < sequence for epoch in held):
            return None
    gained = any(held[0].sequences[name] > line.base for name, line in version.lines.items())
    return held[0] if gained else None


def load_version(base: Base, log: DeltaLog, files: TableFiles, meter: "_Meter | None" = None) -> Version:
    """The tables of a base, without what the log has on top. Raises TableFileError."""
    ranges = log.abandoned()
    lines = {}
    for name, table in base.tables.items():
        key = (base.package_version, name)
        loaded = files.load(base.path(name), name, base.package_version, table.base_sequence,
                            table.time_s)
        lines[name] = Line(loaded, key, table.base_sequence, log, files.shard, files.shards, ranges.get(key, ()))
        if meter is not None:
            meter.add(f"table {name!r}, version {base.package_version}", table.bytes)
    return Version(base, lines, not any(files.counts(name, base.package_version) for name in base.tables))


class _Meter:
    def __init__(self, progress: Progress | None, log: DeltaLog, found: Mapping[int, Base]) -> None:
        self._progress, self._done = progress, 0
        self._total = sum(base.bytes for base in found.values()) + sum(
            entry.payload_bytes for version, base in found.items() for name, table in base.tables.items()
            for entry in log.entries(version, name).values() if entry.sequence > table.base_sequence)

    def add(self, what: str, bytes_done: int) -> None:
        self._done += bytes_done
        if self._progress is not None:
            self._progress(what, self._done, self._total)


def _replay_all(root: Path, version: Version, epochs: list[Epoch], log: DeltaLog, meter: _Meter) -> list[Entry]:
    lost = []
    for name, line in version.lines.items():
        lost += _replay(line, [(epoch.number, epoch.sequences[name]) for epoch in epochs], log, meter)
    for epoch in epochs:
        _expect_staged(root, epoch, version, lost)
    return lost


def _replay(line: Line, shown: list[tuple[int, int]], log: DeltaLog, meter: _Meter) -> list[Entry]:
    """Apply the log, and publish each (epoch, sequence) on the way, so that the table need not keep what only older
    states would show. Returns the entries that are lost: without syncs, a power loss may take the newest."""
    ladder = _Ladder(line.table, shown)
    ladder.climb(line.sequence)

    def applied(entry: Entry) -> None:
        meter.add(str(entry), entry.payload_bytes)
        ladder.climb(entry.sequence)

    try:
        line.replay(applied)
    except StoreDamaged:
        rest = [entry for sequence, entry in sorted(log.entries(*line.key).items()) if sequence > line.sequence]
        if rest[0].synced:
            raise
        return rest
    return []


class _Ladder:
    """Publishes the epochs of a table, (number, sequence) ascending, while it climbs. Before the first it publishes
    rungs, with numbers below, that nobody asked for: a table without an epoch keeps every state since its base."""

    def __init__(self, table: Any, shown: list[tuple[int, int]]) -> None:
        self._table, self._shown = table, shown
        self._rungs = shown[0][0] - 1 if shown else 0
        self._rung = self._applied = 0

    def climb(self, sequence: int) -> None:
        """Publish what `sequence` makes possible."""
        while self._shown and self._shown[0][1] <= sequence:
            self._publish(*self._shown.pop(0))
            self._rungs = self._rung = 0
        self._applied += 1
        if self._applied % DELTAS_A_RUNG == 0 and self._rung < self._rungs:
            self._publish(self._rung + 1, sequence)
            self._rung += 1

    def _publish(self, number: int, sequence: int) -> None:
        self._table.publish(number, sequence)
        if self._rung:
            self._table.retire(self._rung)


def _servable(epochs: list[Epoch], versions: Mapping[int, Version], retired: set[int]) -> dict[int, Epoch]:
    """The held epochs, but those that the bases have passed or whose sequences were abandoned: nobody holds a lease on
    them since the restart, and a newer epoch is there."""
    servable = {}
    for epoch in epochs:
        version = versions.get(epoch.package_version)
        if version is None and epoch.package_version not in retired:
            raise StoreDamaged(f"epoch {epoch.number} was published here, but the base of its package version "
                               f"{epoch.package_version} is missing: restore the shard from a snapshot or a replica")
        if version is not None and set(epoch.sequences) == set(version.lines) and all(
                _shows(line, epoch.sequences[name]) for name, line in version.lines.items()):
            servable[epoch.number] = epoch
    return servable


def _shows(line: Line, sequence: int) -> bool:
    return sequence >= line.base and not line.damage and not line.is_abandoned(sequence)


def _expect_staged(root: Path, epoch: Epoch, version: Version, lost: list[Entry]) -> None:
    missing = [f"{name!r}: {line.sequence + 1} to {epoch.sequences[name]}" for name, line in version.lines.items()
               if epoch.sequences[name] > line.sequence]
    if missing:
        what = f" ({lost[0]} is damaged)" if lost else ""
        raise StoreDamaged(f"{root}: epoch {epoch.number} was published here, but the log lacks deltas of table "
                           f"{', of table '.join(missing)}, base version {epoch.package_version}{what}: restore the "
                           "shard from a snapshot, or empty the directory and let it catch up from a replica")


def _tidy(log: DeltaLog, versions: Mapping[int, Version], lost: list[Entry]) -> None:
    lines = [line for version in versions.values() for line in version.lines.values()]
    abandoned = [entry for line in lines for sequence, entry in log.entries(*line.key).items()
                 if line.is_abandoned(sequence)]
    try:
        log.forget([*lost, *abandoned])
        log.drop_payloads({line.key: line.base for line in lines})
    except StoreFull:
        # On a full disk reads go on; the next start finds the same and tries again.
        return
