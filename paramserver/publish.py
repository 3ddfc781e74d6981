"""Publication over shards and replicas: push deltas to all, then make the epoch exist by one file.

Nothing here is seen by readers before the epoch's file is in its place: a publisher that dies before has published
nothing on any shard, and its deltas, staged already, are simply there when it comes back.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from paramserver.delta import Delta
from paramserver.epoch import Epoch, epoch_numbers, prune_epochs, read_epoch, read_epochs, write_epoch
from paramserver.errors import (
    EpochError,
    OperatingError,
    OptionError,
    ParamServerError,
    SequenceGap,
    ShardMapError,
    StoreError,
)
from paramserver.store import ShardStore

__all__ = ["REQUIREMENTS", "Member", "Publisher", "StoreMember", "catch_up", "previous_state", "rollback"]

#: How many replicas of a shard must have staged what an epoch names.
REQUIREMENTS = ("all", "one_per_shard")
_THREADS_MAX = 32
#: How long a rollback's target is held for, so that every replica can show it again.
_ROLLBACK_LEASE_S = 600.0
#: Epoch files that stay whether or not anybody holds them.
_EPOCHS_KEPT = 1000


class Member(Protocol):
    """One replica of one shard, near or far. Its errors are those of ShardStore, and RemoteError."""

    name: str  #: for messages: an address, a directory
    shard: int  #: from 0

    def stage(self, delta: Delta) -> str:
        """As ShardStore.stage, of this shard's part."""

    def status(self) -> dict[str, Any]:
        """As ShardStore.status."""

    def lease(self, epoch: int, ttl_s: float) -> None:
        """As ShardStore.lease."""

    def next_delta(self, version: int, table: str, after: int) -> Delta | None:
        """As ShardStore.next_delta."""


class StoreMember:
    """A ShardStore of this process as a member."""

    def __init__(self, store: ShardStore, name: str | None = None) -> None:
        self.store, self.shard = store, store.shard
        self.name = str(store.directory) if name is None else name

    def stage(self, delta: Delta) -> str:
        """As ShardStore.stage."""
        return self.store.stage(delta)

    def status(self) -> dict[str, Any]:
        """As ShardStore.status."""
        return self.store.status()

    def lease(self, epoch: int, ttl_s: float) -> None:
        """As ShardStore.lease."""
        self.store.lease(epoch, ttl_s, "publisher")

    def next_delta(self, version: int, table: str, after: int) -> Delta | None:
        """As ShardStore.next_delta."""
        return self.store.next_delta(version, table, after)


class Publisher:
    """Pushes deltas to every member and publishes epochs in a cluster's directory. shards: how many there are; each
    needs a member. require: "all" replicas, or "one_per_shard": replicas that are down are left behind, say
    `unavailable` for the new epoch, and catch up later. Raises OptionError, ShardMapError."""

    def __init__(self, cluster: str | Path, members: Sequence[Member], *, shards: int, require: str = "all") -> None:
        if require not in REQUIREMENTS:
            raise OptionError(f"require is {require!r}, expected one of {', '.join(REQUIREMENTS)}")
        absent = sorted(set(range(shards)) ^ {member.shard for member in members})
        if absent:
            raise ShardMapError(f"members are of shards {sorted({m.shard for m in members})}, expected each of 0 to "
                                f"{shards - 1}")
        self._cluster, self._members = Path(cluster), list(members)
        self._shards, self._require = shards, require

    def push_delta(self, delta: Delta) -> dict[str, str]:
        """Stage each shard's part on all of its replicas. Returns what each member said, by name: "applied", "already",
        "held", or, under one_per_shard, why it could not. Every member is tried before the first error is raised: push
        it again, staging is idempotent."""
        parts = delta.split(self._shards)
        return self._ask(lambda member: member.stage(parts[member.shard]))

    def publish(self, package_version: int, sequences: Mapping[str, int]) -> Epoch:
        """Publish the next epoch once every member, or one of each shard, has staged all that it names: sequences of
        every table of the package version. Its file is the one commit point. Returns the epoch.

        Raises SequenceGap naming who lacks what, EpochError for sequences below the newest epoch's (that is a
        rollback) or below a base, abandoned ones, or a table that is missing, what a member raised, StoreFull,
        StoreError."""
        epochs = read_epochs(self._cluster)
        for earlier in [e for e in epochs if e.package_version == package_version][-1:]:
            fallen = {t: s for t, s in sequences.items() if s < earlier.sequences.get(t, 0)}
            if fallen:
                raise EpochError(f"sequences {fallen} are below those of epoch {earlier.number}: roll back to an epoch "
                                 "instead")
        epoch = Epoch(epochs[-1].number + 1 if epochs else 1, package_version, sequences)
        _expect_kept(epoch, epochs)
        self._ask(lambda member: _expect_staged(member, epoch))
        write_epoch(self._cluster, epoch)
        self._prune()
        return epoch

    def rollback(self, to_epoch: int) -> Epoch:
        """As `rollback`, once every member, or one of each shard, holds `to_epoch` for long enough to show it again."""
        self._ask(lambda member: _hold(member, to_epoch))
        return rollback(self._cluster, to_epoch)

    def _prune(self) -> None:
        """Remove the files of epochs that no member holds; the epoch is published whether or not that succeeds."""
        with contextlib.suppress(ParamServerError):
            numbers = epoch_numbers(self._cluster)
            if len(numbers) > _EPOCHS_KEPT:
                held = [min((epoch["number"] for epoch in member.status()["epochs"]), default=0)
                        for member in self._members]
                prune_epochs(self._cluster, min(*held, numbers[-_EPOCHS_KEPT]))

    def _ask(self, question: Callable[[Member], str]) -> dict[str, str]:
        """Ask every member. Raises the first refusal that `require` does not allow."""
        with ThreadPoolExecutor(min(_THREADS_MAX, len(self._members))) as pool:
            futures = [pool.submit(question, member) for member in self._members]
        answers, answered, failures = {}, set(), []
        for member, future in zip(self._members, futures, strict=True):
            error = future.exception()
            if error is None:
                answers[member.name] = future.result()
                answered.add(member.shard)
            else:
                answers[member.name] = f"{type(error).__name__}: {error}"
                failures.append((member, error))
        for member, error in failures:
            tolerated = self._require == "one_per_shard" and isinstance(error, OperatingError)
            if not (tolerated and member.shard in answered):
                error.add_note(f"said by {member.name}, a replica of shard {member.shard}")
                raise error
        return answers


def rollback(cluster: str | Path, to_epoch: int) -> Epoch:
    """Publish a new epoch that shows what `to_epoch` shows. The later deltas of its package version that any epoch
    named are abandoned: their numbers never come back. Shards that no longer hold `to_epoch` refuse it, so ask them
    first (Publisher.rollback does). Returns the epoch. Raises EpochError, also for a target that was itself rolled
    back, StoreError, StoreDamaged."""
    target, epochs = read_epoch(cluster, to_epoch), read_epochs(cluster)
    if epochs[-1].number == to_epoch:
        raise EpochError(f"epoch {to_epoch} is the newest: there is nothing to roll back")
    _expect_kept(target, epochs)
    abandoned = {}
    for epoch in epochs:
        if epoch.package_version == target.package_version:
            for table, sequence in [*epoch.sequences.items(), *epoch.abandoned.items()]:
                abandoned[table] = max(sequence, abandoned.get(table, 0))
    abandoned = {table: last for table, last in abandoned.items() if last > target.sequences.get(table, last)}
    epoch = Epoch(epochs[-1].number + 1, target.package_version, target.sequences, abandoned)
    write_epoch(cluster, epoch)
    return epoch


def previous_state(epochs: Sequence[Epoch]) -> Epoch | None:
    """The newest epoch that shows another state than the newest of `epochs`, ascending, and was not rolled back itself;
    None when there is none to go back to."""
    def state(epoch: Epoch) -> tuple[int, dict[str, int]]:
        return epoch.package_version, dict(epoch.sequences)

    return next((epoch for epoch in reversed(epochs) if state(epoch) != state(epochs[-1])
                 and not any(later.abandons(*state(epoch)) for later in epochs)), None)


def catch_up(member: Member, from_member: Member) -> int:
    """Send `member` every delta that `from_member`, a replica of the same shard, has in its log and it lacks. Returns
    how many were sent. Raises ShardMapError for different shards, SequenceGap when the log of `from_member` no longer
    reaches back far enough (start the member from a snapshot), StoreError when `member` lacks a package version."""
    if member.shard != from_member.shard:
        raise ShardMapError(f"{member.name} is of shard {member.shard}, {from_member.name} of {from_member.shard}")
    sent = 0
    here, there = member.status()["versions"], from_member.status()["versions"]
    for version, tables in there.items():
        if version not in here:
            raise StoreError(f"{member.name} lacks package version {version}: add its snapshot first")
        for table in tables:
            after = here[version][table]["sequence"]
            while (delta := from_member.next_delta(int(version), table, after)) is not None:
                member.stage(delta)
                after, sent = delta.sequence, sent + 1
    return sent


def _expect_kept(epoch: Epoch, epochs: Sequence[Epoch]) -> None:
    for rolled_back in epochs:
        for table in rolled_back.abandons(epoch.package_version, epoch.sequences):
            raise EpochError(f"sequence {epoch.sequences[table]} of table {table!r} cannot be shown: epoch "
                             f"{rolled_back.number}, a rollback, abandoned {rolled_back.sequences[table] + 1} to "
                             f"{rolled_back.abandoned[table]}")


def _expect_staged(member: Member, epoch: Epoch) -> str:
    tables = member.status()["versions"].get(str(epoch.package_version))
    if tables is None:
        raise StoreError(f"{member.name} lacks package version {epoch.package_version}: add its snapshot first")
    if set(tables) != set(epoch.sequences):
        raise EpochError(f"sequences name tables {sorted(epoch.sequences)}, but package version "
                         f"{epoch.package_version} has {sorted(tables)}: name every one")
    for table, sequence in epoch.sequences.items():
        has, base = tables[table]["sequence"], tables[table]["base_sequence"]
        if tables[table]["damage"]:
            raise StoreError(f"{member.name}: {tables[table]['damage']}")
        if sequence < base:
            raise EpochError(f"sequence {sequence} of table {table!r} is below {base}, the base of {member.name}: it "
                             "cannot be shown there")
        if sequence > has:
            raise SequenceGap(f"{member.name} lacks deltas {has + 1} to {sequence} of table {table!r}, base version "
                              f"{epoch.package_version}: push them first", (has + 1, sequence))
    return "staged"


def _hold(member: Member, number: int) -> str:
    held = [epoch["number"] for epoch in member.status()["epochs"]]
    if number not in held:
        raise EpochError(f"{member.name} holds epochs {held}, not {number} any more: roll back to one that all hold")
    member.lease(number, _ROLLBACK_LEASE_S)
    return "held"
