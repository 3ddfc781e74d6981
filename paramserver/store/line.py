"""One table of one package version: which deltas it has, which comes next, and what a rollback takes back."""

from collections.abc import Callable, Container, Iterable
from typing import Any

import numpy as np

from paramserver.delta import Delta
from paramserver.errors import CallerError, DeltaError, SequenceConflict, SequenceGap, StoreDamaged, StoreError
from paramserver.shard_map import shard_of
from paramserver.store.log import DeltaLog, Key
from paramserver.store.payloads import Entry

__all__ = ["Line", "Refused", "check_places", "expect_same"]


class Refused(StoreDamaged):
    """A delta of the log that its table does not take; `entry` is the log's."""

    def __init__(self, entry: Entry, message: str) -> None:
        super().__init__(message)
        self.entry = entry


class Line:
    """A table in memory and its deltas in the log. Callers take turns. base: the sequence of the snapshot that it came
    from; abandoned: ranges (first, last) that rollbacks gave up."""

    def __init__(self, table: Any, key: Key, base: int, log: DeltaLog, shard: int, shards: int,
                 abandoned: Iterable[tuple[int, int]] = ()) -> None:
        self.table, self.key, self.base = table, key, base
        self._log, self._shard, self._shards = log, shard, shards
        self.abandoned = sorted(abandoned)
        # Told to others without asking the table, which would wait for a delta that is just being applied.
        self._sequence: int = table.sequence
        # Ranges still applied, because an epoch that shows them is held.
        self._standing: list[tuple[int, int]] = []

    @property
    def sequence(self) -> int:
        """The newest delta that is applied and in the log. Waits for nobody."""
        return self._sequence

    @property
    def following(self) -> int:
        """The sequence that comes next: abandoned ones are passed over."""
        sequence = self.sequence + 1
        while passed := [last for first, last in self.abandoned if first <= sequence <= last]:
            sequence = max(passed) + 1
        return sequence

    @property
    def damage(self) -> str:
        """Why nothing can be built on the base: it holds deltas that a rollback abandoned. Empty when it does not."""
        for first, last in self.abandoned:
            if first <= self.base <= last:
                version, table = self.key
                return (f"table {table!r} of package version {version} cannot serve here: its base holds deltas up to "
                        f"{self.base}, and a rollback abandoned {first} to {last}; add its snapshot again, one of "
                        f"before {first} or after {last}")
        return ""

    def stage(self, delta: Delta) -> str:
        """Take a delta: "applied", or "already" when it is here. Raises SequenceConflict, SequenceGap, DeltaError,
        StoreDamaged for a base that was rolled back, StoreError while abandoned deltas are still held, and what the log
        raises, with nothing changed."""
        if self.damage:
            raise StoreDamaged(f"{delta}: {self.damage}")
        entry = self._log.entries(*self.key).get(delta.sequence)
        if self.is_abandoned(delta.sequence):
            raise DeltaError(f"{delta} was abandoned by a rollback: numbers are not used twice, the next is "
                             f"{self.following}")
        if entry is not None:
            expect_same(delta, entry)
            return "already"
        if delta.sequence <= self.base:
            return "already"
        self._check(delta)
        if self._standing:
            first, last = self._standing[0]
            raise StoreError(f"{delta} must wait: {first} to {last} were abandoned by a rollback, but an epoch that "
                             "shows them is still held; send it again when its leases have ended")
        if delta.sequence != self.following:
            missing = (self.following, delta.sequence - 1)
            raise SequenceGap(f"{delta} came too early: this shard lacks {missing[0]} to {missing[1]}; send them first",
                              missing)
        before = self.sequence
        self._apply(delta)
        try:
            self._log.append(delta)
        except BaseException:
            self.table.revert(before)
            raise
        self._sequence = delta.sequence
        self.replay()
        return "applied"

    def replay(self, progress: Callable[[Entry], None] | None = None) -> None:
        """Apply what the log has next, up to the first sequence that it lacks. Raises StoreDamaged, and Refused when
        the table does not take a delta of the log."""
        entries = {} if self.damage else self._log.entries(*self.key)
        while (entry := entries.get(self.following)) is not None:
            delta = self._log.delta(entry)
            try:
                self._check(delta)
                self._apply(delta)
            except CallerError as error:
                raise Refused(entry, f"{entry} does not fit its table: {error}") from error
            self._sequence = delta.sequence
            if progress is not None:
                progress(entry)

    def abandon(self, first: int, last: int) -> None:
        """Give up sequences, once `settle` finds that nothing shows them."""
        self.abandoned = sorted({*self.abandoned, (first, last)})
        # A base beyond them was made without them.
        if last <= self.base:
            return
        self._standing = sorted({*self._standing, (first, last)})

    def retire_all_but(self, held: Container[int]) -> None:
        """Let the table go of epochs that are not held any more. It keeps its newest, which is an old one while another
        package version is the newest epoch's."""
        for number, _ in self.table.epochs()[:-1]:
            if number not in held:
                self.table.retire(number)

    def settle(self) -> None:
        """Take back the abandoned deltas that no epoch of the table shows. What was staged after them is applied again
        without them."""
        shown = {sequence for _, sequence in self.table.epochs()}
        for first, last in list(self._standing):
            # The ranges after it lie on top of it.
            if first <= self.base or any(first <= sequence <= last for sequence in shown):
                return
            if self.sequence >= first:
                self.table.revert(first - 1)
                self._sequence = self.table.sequence
            self._standing.remove((first, last))
            self.replay()
            self._log.forget([entry for sequence, entry in self._log.entries(*self.key).items()
                              if first <= sequence <= last])

    def is_abandoned(self, sequence: int) -> bool:
        """Whether a rollback gave it up."""
        return any(first <= sequence <= last for first, last in self.abandoned)

    def covers(self, first: int, last: int) -> bool:
        """Whether one known range of abandoned sequences holds all of these."""
        return any(known <= first and last <= until for known, until in self.abandoned)

    def waits_for_leases(self, sequence: int | None = None) -> bool:
        """Whether abandoned deltas are still applied, below `sequence` if one is given."""
        return bool(self._standing) and (sequence is None or sequence >= self._standing[0][0])

    def _check(self, delta: Delta) -> None:
        if delta.dim != self.table.dim:
            raise DeltaError(f"{delta}: dim is {delta.dim}, expected {self.table.dim}")
        check_places(delta, self._shard, self._shards)

    def _apply(self, delta: Delta) -> None:
        self.table.apply(delta.sequence, delta.ids, delta.rows, delta.deletes, delta.time_s, self.sequence)


def check_places(delta: Delta, shard: int, shards: int) -> None:
    """Raise DeltaError for ids that do not hash to `shard`."""
    for name in ("ids", "deletes"):
        ids = getattr(delta, name)
        places = shard_of(ids, shards)
        if (places != shard).any():
            i = int(np.argmax(places != shard))
            raise DeltaError(f"{delta}: {name}[{i}] is {ids[i]}, which belongs to shard {places[i]} of {shards}, not "
                             f"to {shard}: split it as Delta.split does")


def expect_same(delta: Delta, entry: Entry) -> None:
    """Raise SequenceConflict unless `delta` is the one that the log has."""
    if delta.checksum != entry.checksum:
        raise SequenceConflict(f"{delta} has checksum {delta.checksum}, but this shard took another one of this "
                               f"number, with {entry.checksum}: give it the next free number")
