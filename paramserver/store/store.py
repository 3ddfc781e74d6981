"""ShardStore: one shard's tables by package version, and what keeps them. Lookups go to its tables and never come here.

A delta is applied to its table first, where nobody sees it yet, and then written to the log; when the log refuses, the
table takes it back. So what is acknowledged is in the log, and what is in the log is what its table takes.
"""

import contextlib
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from paramserver import durable
from paramserver.delta import Delta
from paramserver.epoch import Epoch
from paramserver.errors import (
    ClosedError,
    EpochError,
    OptionError,
    RetiredVersion,
    SequenceGap,
    StoreDamaged,
    StoreError,
    StoreFull,
    UnknownTable,
)
from paramserver.store import layout as layout_
from paramserver.store.history import ClusterHistory, abandoned_in, unknown_ranges
from paramserver.store.intake import Intake, check_tables, check_version, expect_content
from paramserver.store.leases import LEASE_S_MAX, Leases
from paramserver.store.line import Line
from paramserver.store.lock import DirectoryLock
from paramserver.store.log import DeltaLog, Key
from paramserver.store.recovery import Progress, Version, load_again, load_version, oldest_state, recover
from paramserver.store.status import status_of
from paramserver.store.table_files import TableFiles, TableOptions
from paramserver.table import Table

__all__ = ["DURABILITIES", "ShardStore"]

#: What an acknowledged write outlives: the death of the process, or a power loss too.
DURABILITIES = ("process", "sync")


class ShardStore:
    """One shard's tables and their directory. Use `open`. Thread-safe: writers take turns, and nobody else waits.

    Every call raises ClosedError after `close`; those that write raise StoreFull when the disk is full, with nothing
    half done: reads go on, and writes do once there is space."""

    def __init__(self, layout: layout_.Layout, lock: DirectoryLock, log: DeltaLog, files: TableFiles, *,
                 hold_s: float, held_bytes_max: int, clock: Callable[[], float], progress: Progress | None) -> None:
        self._layout, self._directory_lock, self._log, self._files = layout, lock, log, files
        self._hold_s, self._held_bytes_max = hold_s, held_bytes_max
        self._lock, self._intake_lock = threading.RLock(), threading.Lock()
        self._intake = Intake(layout, log, files)
        self._leases = Leases(clock)
        self._closed = False
        state = recover(layout, log, files, progress)
        # Replaced, never changed, so that readers need no lock.
        self._versions: dict[int, Version] = state.versions
        self._epochs: dict[int, Epoch] = state.epochs
        self._retired, self.lost = state.retired, state.lost
        self._wanted: Epoch | None = None
        self._dropped: set[int] = set()
        self._history = ClusterHistory()
        #: Told the numbers of epochs that are not held any more, before their tables let them go.
        self.before_retiring: Callable[[list[int]], None] = lambda _numbers: None
        for number in self._epochs:
            self._leases.hold(number, hold_s, "published")

    @classmethod
    def open(cls, directory: str | Path, *, shard: int = 0, shards: int = 1, durability: str = "process",
             options: TableOptions | None = None, table_class: type = Table, hold_s: float = 600.0,
             reserve_bytes: int = 64 << 20, held_bytes_max: int = 4 << 30,
             cluster: str | Path | None = None, clock: Callable[[], float] = time.monotonic,
             progress: Progress | None = None) -> Self:
        """Open a shard's directory for writing, made when it is not there, and bring its tables back.

        durability: what an acknowledged write outlives, "process" (kill -9) or "sync" (a power loss too). options: what
        tables are made with (dtype, tier, ttl_s, ...), or a function of table and version that gives it. table_class:
        Table or ReferenceTable. hold_s: seconds that every epoch is held after it was published or found again.
        reserve_bytes: disk space that writes leave free. held_bytes_max: bytes of deltas kept for versions that do not
        serve yet. cluster: the directory whose epochs `adopt` will be given: what they abandoned while this shard was
        away is passed over from the start. clock: seconds that only grow, for leases. progress: called as (what, bytes
        done, bytes in all).

        Raises OptionError, StoreLocked naming who has it open, StoreError for another shard's directory, StoreDamaged
        when what was acknowledged is not there, TableFileError, StoreFull."""
        layout_.check_shard(shard, shards)
        if durability not in DURABILITIES:
            raise OptionError(f"durability is {durability!r}, expected one of {', '.join(DURABILITIES)}")
        layout = layout_.Layout(Path(directory))
        files = TableFiles(table_class, {} if options is None else options, shard, shards)
        lock = DirectoryLock(layout.lock)
        log = None
        try:
            layout_.create(layout, shard, shards)
            log = DeltaLog(layout.log, layout.payloads, sync=durability == "sync", reserve_bytes=reserve_bytes)
            if cluster is not None:
                log.put_abandoned(abandoned_in(cluster, log))
            return cls(layout, lock, log, files, hold_s=hold_s, held_bytes_max=held_bytes_max, clock=clock,
                       progress=progress)
        except BaseException:
            if log is not None:
                log.close()
            lock.release()
            raise

    @property
    def directory(self) -> Path:
        """The shard's directory."""
        return self._layout.root

    @property
    def shard(self) -> int:
        """Which shard this is, from 0."""
        return self._files.shard

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return self._files.shards

    def close(self) -> None:
        """Let the directory go. Tables handed out live on as long as someone holds them. A second call does nothing."""
        with self._intake_lock, self._lock:
            if not self._closed:
                self._closed = True
                self._log.close()
                self._directory_lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def tables(self, version: int) -> dict[str, Any]:
        """The tables of a package version by name. Raises EpochError when it does not serve here."""
        return {name: line.table for name, line in self._serving(version).lines.items()}

    def versions(self) -> list[int]:
        """The package versions that serve here, ascending."""
        self._expect_open()
        return sorted(self._versions)

    @property
    def diverged(self) -> str:
        """How the cluster's epochs differ from those shown here, so that none of these may be served; empty when they
        are the same."""
        return self._history.diverged

    def epochs(self) -> list[Epoch]:
        """The epochs held here, ascending; the last is the newest."""
        self._expect_open()
        return [epoch for _, epoch in sorted(self._epochs.items())]

    def stage(self, delta: Delta) -> str:
        """Take a delta, whole or not at all, seen by nobody until an epoch names it. Returns "applied", "already" (the
        same delta is here), or "held": its base version does not serve yet, and the delta is kept for it.

        Raises RetiredVersion, UnknownTable, SequenceConflict (another delta had this number), SequenceGap with what is
        missing, DeltaError (dim, ids of other shards), RowValueError, StoreFull, StoreError (after a rollback, while
        what it took back is still leased; too much held)."""
        with self._lock:
            self._expect_open()
            if delta.base_version in self._retired:
                raise RetiredVersion(f"{delta}: package version {delta.base_version} is retired; serving are "
                                     f"{sorted(self._versions)}")
            if delta.base_version not in self._versions:
                return self._intake.hold(delta, self._versions, self._held_bytes_max)
            return self._line(delta.base_version, delta.table).stage(delta)

    def following(self, version: int, table: str) -> int:
        """The sequence of the delta that comes next: one more than the newest, or than those abandoned after it. Raises
        EpochError, UnknownTable."""
        self._serving(version)
        return self._line(version, table).following

    def next_delta(self, version: int, table: str, after: int) -> Delta | None:
        """The first delta after a sequence, as it was staged, to be sent to a replica that lacks it; None when there is
        none. Raises SequenceGap when its rows are only in the base, StoreDamaged."""
        with self._lock:
            self._serving(version)
            line = self._line(version, table)
            if after < line.base:
                raise SequenceGap(f"deltas {after + 1} to {line.base} of table {table!r}, base version {version}, are "
                                  "in this shard's base, not in its log: start the replica from a snapshot",
                                  (after + 1, line.base))
            entries = self._log.entries(version, table)
            later = [sequence for sequence in entries if sequence > after and not line.is_abandoned(sequence)]
            return self._log.delta(entries[min(later)]) if later else None

    def publish(self, epoch: Epoch) -> None:
        """Show a state: every delta that it names is staged here. The same epoch again changes nothing. An epoch with
        sequences below the newest of its version is a rollback, and abandons the deltas above them.

        Raises SequenceGap when a delta is not staged yet (`missing` is the first table's), EpochError for an epoch that
        can never be shown here: an old number, an unknown version, other tables, abandoned or forgotten sequences.
        StoreError while deltas that a rollback abandoned are still leased below it."""
        with self._lock:
            self._expect_open()
            self._show(epoch)
            self.expire()

    def adopt(self, cluster: str | Path) -> list[int]:
        """Publish here what a cluster's directory has and this shard has not; call it when its epochs change. Returns
        the numbers published; what cannot be yet is tried again by the next call, and `status` tells how far behind
        this shard is, and what keeps it. What a rollback abandoned and no epoch can take back here is taken back by
        loading the version again from its base and the log, once its leases have ended: writers wait that long.

        Raises StoreError for a directory without epochs, StoreDamaged for an epoch file that is none, or when the
        directory's epochs are not those shown here (see `diverged`)."""
        with self._lock:
            self._expect_open()
            for epoch in self._history.unread(cluster, self._epochs):
                self._note_abandoned(epoch)
            adopted = []
            for number, epoch in sorted(self._history.pending.items()):
                try:
                    self._show_or_reload(epoch)
                    adopted.append(number)
                except StoreFull:
                    raise
                except (SequenceGap, EpochError, StoreError) as error:
                    self._history.problems[number] = f"{type(error).__name__}: {error}"
            self._history.shown(max(self._epochs, default=0))
            self.expire()
            return adopted

    def lease(self, epoch: int, ttl_s: float, holder: str = "caller") -> None:
        """Hold an epoch for `ttl_s` more seconds, at most a day. Raises EpochError when it is not held any more."""
        self._expect_open()
        self._leases.take(epoch, ttl_s, holder)

    def expire(self, now: float | None = None) -> list[int]:
        """Retire the epochs whose leases have ended at `now` (the clock's time when None), never the newest, and take
        back the abandoned deltas that only they showed. Call it now and then. Returns their numbers, ascending."""
        with self._lock:
            self._expect_open()
            gone = self._leases.expire(max(self._epochs, default=0), now)
            self._epochs = {n: epoch for n, epoch in self._epochs.items() if n not in gone}
            self._dropped |= set(gone)
            self.before_retiring(gone)
            lines = [line for serving in self._versions.values() for line in serving.lines.values()]
            for line in lines:
                line.retire_all_but(self._epochs)
            # On a full disk records stay: a restart would hold these epochs again for a while, and tidy up.
            with contextlib.suppress(StoreFull):
                if self._dropped:
                    self._log.drop_epochs(sorted(self._dropped))
                self._dropped = set()
            for line in lines:
                with contextlib.suppress(StoreFull):
                    line.settle()
            return gone

    def add_snapshot(self, package_version: int, tables: Mapping[str, str | Path], *,
                     base_sequences: Mapping[str, int] | None = None, time_s: int = 0) -> dict[str, Any]:
        """Serve a package version from the files of all its tables: copied, loaded, then renamed into place as one. The
        deltas held for it are applied. base_sequences: what each file's rows are of, 0 when not said.
        time_s: when rows were written whose files do not say it, seconds since 1970; 0: when their file was. Replicas
        must be told the same, or their rows expire at different times.

        Returns {"state": "added" | "already", "refused": [what was held but does not fit]}. Raises OptionError,
        RetiredVersion, TableFileError, StoreError when the version is here with other content, or when the files hold
        what a rollback abandoned, StoreFull. A version that such a rollback made useless here is replaced."""
        check_version(package_version)
        check_tables(tables, base_sequences or {})
        with self._intake_lock, self._intake.folder() as folder:
            self._expect_serves_not(package_version)
            base = self._intake.copy(folder, package_version, tables, base_sequences or {}, time_s)
            here = self._versions.get(package_version)
            if here is not None and not here.damage:
                expect_content(here.base, base)
                return {"state": "already", "refused": []}
            if here is not None:
                base = replace(base, generation=here.base.generation + 1)
            version = load_version(base, self._log, self._files)
            if version.damage:
                raise StoreError(version.damage)
            with self._lock:
                self._expect_open()
                refused = self._intake.take_held(version)
                version = replace(version, base=self._intake.commit(base))
                self._replace(version, {})
                self._intake.remove_others(self._versions)
            return {"state": "added", "refused": refused}

    def checkpoint(self, version: int, progress: Callable[[int, int], None] | None = None) -> int | None:
        """Write a new base of a version, its oldest held epoch's state, and drop the deltas that it holds from the log.
        Lookups and deltas go on meanwhile. Returns the epoch, None when nothing would be gained, or while deltas that
        a rollback abandoned are still applied, or for a version whose status says `checkpoints` is false: with
        admit_after, a base would forget how often an id that waits has come. progress: called now and then with
        rows done and rows in all, of each table; what it raises ends the work. Raises EpochError, TableFileError,
        StoreFull, with nothing changed."""
        with self._intake_lock:
            serving = self._serving(version)
            with self._lock:
                oldest = oldest_state(serving, self.epochs())
            if oldest is None:
                return None
            with self._holding(oldest, "checkpoint"), self._intake.folder() as folder:
                base = self._intake.write(folder, serving, oldest, serving.base.generation + 1, progress)
                with self._lock:
                    self._expect_open()
                    # A rollback may have come, or the version may have been loaded again.
                    if self._versions.get(version) is not serving or not serving.settled:
                        return None
                    serving = replace(serving, base=self._intake.commit(base))
                    self._versions = {**self._versions, version: serving}
                    for name, line in serving.lines.items():
                        line.base = base.tables[name].base_sequence
                    self._log.drop_payloads({line.key: line.base for line in serving.lines.values()})
                    self._intake.remove_others(self._versions)
            return oldest.number

    def snapshot(self, directory: str | Path, epoch: int = 0) -> Epoch:
        """Write an epoch's state (0: the newest) to a new folder, which appears whole, for `restore` and for other
        tools: a file a table and a manifest (`read_manifest`). Returns the epoch. Raises EpochError when it is not
        held, StoreError when the folder is there, TableFileError, StoreFull."""
        target = Path(directory)
        epochs = self.epochs()
        chosen = next((e for e in reversed(epochs) if epoch in (0, e.number)), None)
        if chosen is None:
            raise EpochError(f"epoch {epoch or 'newest'} is not held here, held are {[e.number for e in epochs]}")
        if target.exists():
            raise StoreError(f"{target} is there already: a snapshot takes a folder of its own")
        folder = durable.temporary_name(target)
        try:
            with self._holding(chosen, "snapshot"), durable.disk_errors(f"{target}"):
                folder.mkdir(parents=True)
                self._intake.write(folder, self._serving(chosen.package_version), chosen, 0)
                durable.move_into_place(folder, target)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return chosen

    def retire(self, version: int) -> None:
        """Forget a package version for good: its tables, deltas and epochs; deltas for it are refused from then on.
        Retired ones stay as they are. Raises EpochError for one that was never here, while it is the newest epoch's, or
        while someone leases an epoch of it."""
        with self._intake_lock, self._lock:
            self._expect_open()
            check_version(version)
            if version in self._retired:
                return
            if version not in {*self._versions, *self._log.versions()}:
                raise EpochError(f"package version {version} was never here, serving are {sorted(self._versions)}")
            numbers = [n for n, epoch in sorted(self._epochs.items()) if epoch.package_version == version]
            if numbers and numbers[-1] == max(self._epochs):
                raise EpochError(f"package version {version} is what epoch {numbers[-1]}, the newest, shows: publish "
                                 "another version first")
            for number in numbers:
                holders = sorted(set(self._leases.live(number)) - {"published"})
                if holders:
                    raise EpochError(f"epoch {number} of package version {version} is leased by {', '.join(holders)}: "
                                     "wait until they have moved on")
            self._log.retire(version, numbers)
            self._retired = self._retired | {version}
            for number in numbers:
                self._leases.forget(number)
            self._epochs = {n: epoch for n, epoch in self._epochs.items() if n not in numbers}
            self._versions = {v: serving for v, serving in self._versions.items() if v != version}
            self._intake.remove_others(self._versions)

    def status(self) -> dict[str, Any]:
        """Numbers for people and metrics, JSON-ready: see `status_of`. Waits for no writer."""
        self._expect_open()
        return status_of(self._layout, self._log, self._files, versions=self._versions, epochs=self._epochs,
                         retired=self._retired, leases=self._leases, wanted=self._wanted, history=self._history)

    def _expect_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the store of {self._layout.root} is closed")

    def _serving(self, version: int) -> Version:
        self._expect_open()
        serving = self._versions.get(version)
        if serving is None:
            raise EpochError(f"package version {version} does not serve here, serving are {sorted(self._versions)}")
        return serving

    def _line(self, version: int, table: str) -> Line:
        lines = self._versions[version].lines
        if table not in lines:
            raise UnknownTable(f"table {table!r} is not in package version {version}, its tables are {sorted(lines)}")
        return lines[table]

    def _show(self, epoch: Epoch) -> None:
        if self._epochs.get(epoch.number) == epoch:
            return
        if self._epochs and epoch.number <= max(self._epochs):
            raise EpochError(f"epoch {epoch.number} cannot be published: this shard is at {max(self._epochs)}")
        lines = self._publishable(epoch)
        ranges = self._abandoned_by(epoch, lines)
        self._log.put_epoch(epoch, ranges)
        for name, line in lines.items():
            line.table.publish(epoch.number, epoch.sequences[name])
        for (_, name), (first, last) in ranges.items():
            lines[name].abandon(first, last)
        self._wanted = None
        self._leases.hold(epoch.number, self._hold_s, "published")
        self._epochs = {**self._epochs, epoch.number: epoch}

    def _show_or_reload(self, epoch: Epoch) -> None:
        try:
            self._show(epoch)
        except EpochError:
            serving = self._versions.get(epoch.package_version)
            if serving is None or not serving.is_stuck(self._leases):
                raise
            self._replace(*load_again(serving.base, self._log, self._files, self._epochs.values()))
            self._show(epoch)

    def _replace(self, version: Version, shown: Mapping[int, Epoch]) -> None:
        """Serve a version from other tables, which show only some of its epochs."""
        number = version.base.package_version
        gone = {n for n, epoch in self._epochs.items() if epoch.package_version == number and n not in shown}
        for epoch in gone:
            self._leases.forget(epoch)
        self._dropped |= gone
        self._epochs = {n: epoch for n, epoch in self._epochs.items() if n not in gone}
        self._versions = {**self._versions, number: version}

    def _publishable(self, epoch: Epoch) -> Mapping[str, Line]:
        lines = self._serving(epoch.package_version).lines
        if set(epoch.sequences) != set(lines):
            raise EpochError(f"epoch {epoch.number} names tables {sorted(epoch.sequences)}, package version "
                             f"{epoch.package_version} has {sorted(lines)}: name every one")
        missing = {}
        for name, line in lines.items():
            sequence = epoch.sequences[name]
            if line.damage:
                raise StoreDamaged(f"epoch {epoch.number}: {line.damage}")
            if sequence < line.base or line.is_abandoned(sequence):
                raise EpochError(f"epoch {epoch.number}: sequence {sequence} of table {name!r} is not held any more; "
                                 f"its base is {line.base}, abandoned are {line.abandoned}")
            shown = [held for _, held in line.table.epochs()]
            if shown and sequence < shown[-1] and sequence not in shown:
                raise EpochError(f"epoch {epoch.number}: sequence {sequence} of table {name!r} is before {shown[-1]}, "
                                 f"the newest, and no epoch holds it any more; held are {sorted(set(shown))}")
            if line.waits_for_leases(sequence):
                self._wanted = epoch
                raise StoreError(f"epoch {epoch.number} must wait: table {name!r} still has deltas that were "
                                 "abandoned, because an epoch that shows them is held; try again when its leases have "
                                 "ended")
            if sequence > line.sequence:
                missing[name] = (line.sequence + 1, sequence)
        if missing:
            self._wanted = epoch
            what = ", ".join(f"{first} to {last} of table {name!r}" for name, (first, last) in missing.items())
            raise SequenceGap(f"epoch {epoch.number} cannot be shown yet: this shard lacks deltas {what}",
                              next(iter(missing.values())))
        return lines

    def _abandoned_by(self, epoch: Epoch, lines: Mapping[str, Line]) -> dict[Key, tuple[int, int]]:
        ranges = {}
        for name, line in lines.items():
            newest = max((e.sequences[name] for e in self._epochs.values()
                          if e.package_version == epoch.package_version), default=0)
            last = max(newest, epoch.abandoned.get(name, 0))
            if last > epoch.sequences[name] and not line.covers(epoch.sequences[name] + 1, last):
                ranges[line.key] = (epoch.sequences[name] + 1, last)
        return ranges

    def _note_abandoned(self, epoch: Epoch) -> None:
        """What a rollback abandoned is passed over here too, whether or not this shard ever showed it, or serves the
        version yet."""
        if not epoch.abandoned or epoch.package_version in self._retired:
            return
        spans = unknown_ranges([epoch], self._log)
        self._log.put_abandoned(spans)
        serving = self._versions.get(epoch.package_version)
        for (_, name), span in spans:
            if serving is not None and name in serving.lines:
                serving.lines[name].abandon(*span)
                serving.lines[name].settle()

    def _expect_serves_not(self, version: int) -> None:
        self._expect_open()
        if version in self._retired:
            raise RetiredVersion(f"package version {version} is retired here: take a new number")

    @contextlib.contextmanager
    def _holding(self, epoch: Epoch, why: str) -> Iterator[None]:
        holder = f"{why} {secrets.token_hex(4)}"
        self._leases.take(epoch.number, LEASE_S_MAX, holder)
        try:
            yield
        finally:
            self._leases.drop(epoch.number, holder)
