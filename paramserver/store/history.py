"""What a shard has read of its cluster's epochs, and whether they are the ones that it has shown."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from paramserver.epoch import EPOCH_MAX, Epoch, epoch_numbers, read_epoch
from paramserver.errors import EpochError, StoreDamaged, StoreError
from paramserver.store.log import DeltaLog, Key

__all__ = ["ClusterHistory", "abandoned_in", "unknown_ranges"]

#: (first, last) sequences of a table that a rollback abandoned.
_Ranges = list[tuple[Key, tuple[int, int]]]


class ClusterHistory:
    """Reads each epoch file once. Callers take turns.

    pending: epochs read and not shown yet, by number. problems: by number, why an epoch is not shown. diverged: how the
    cluster's epochs differ from those shown here; empty when they do not."""

    def __init__(self) -> None:
        self.pending: dict[int, Epoch] = {}
        self.problems: dict[int, str] = {}
        self.diverged = ""
        self._through = 0

    def unread(self, cluster: str | Path, shown: Mapping[int, Epoch]) -> Iterator[Epoch]:
        """The epochs that were not read before, ascending; each counts as read, and as pending, once the next is asked
        for. A damaged one at or below the newest of `shown` is passed over with a problem: what it said was noted when
        that one was shown. Raises StoreError for a directory without epochs, StoreDamaged for a damaged newer one, and
        when the epochs are not those that were shown here."""
        newest = max(shown, default=0)
        self._expect_same(cluster, epoch_numbers(cluster), shown)
        for epoch in self.readable(cluster, newest):
            self._compare(cluster, epoch, shown)
            yield epoch
            if epoch.number > newest:
                self.pending[epoch.number] = epoch
            self._through = epoch.number

    def readable(self, cluster: str | Path, newest: int) -> Iterator[Epoch]:
        """The epochs not read before, ascending, but damaged ones up to `newest`. Raises StoreError, StoreDamaged."""
        for number in epoch_numbers(cluster):
            epoch = self._read(cluster, number, newest) if number > self._through else None
            if epoch is not None:
                yield epoch

    def shown(self, newest: int) -> None:
        """Forget what waits at or below the newest epoch shown, and what kept it."""
        self.problems = {n: why for n, why in self.problems.items() if n > newest or n not in self.pending}
        self.pending = {n: epoch for n, epoch in self.pending.items() if n > newest}

    def _expect_same(self, cluster: str | Path, numbers: list[int], shown: Mapping[int, Epoch]) -> None:
        newest = max(shown, default=0)
        if not newest:
            return
        if not numbers:
            raise StoreError(f"{cluster} has no epochs, but this shard shows epoch {newest}: is it the right "
                             "directory?")
        if numbers[-1] < newest:
            self._diverge(f"{cluster} is at epoch {numbers[-1]}, but this shard shows epoch {newest}")
        epoch = self._read(cluster, newest, newest) if newest in numbers else None
        if epoch is not None:
            self._compare(cluster, epoch, shown)
        self.diverged = ""

    def _read(self, cluster: str | Path, number: int, newest: int) -> Epoch | None:
        try:
            return read_epoch(cluster, number)
        except StoreDamaged as error:
            if number > newest:
                raise
            self.problems[number] = str(error)
        except EpochError:
            # Removed since the folder was listed: it is below every epoch that anybody holds.
            pass
        return None

    def _compare(self, cluster: str | Path, epoch: Epoch, shown: Mapping[int, Epoch]) -> None:
        here = shown.get(epoch.number, epoch)
        if here != epoch:
            self._through = 0
            self._diverge(f"{cluster}: epoch {epoch.number} is {epoch.json().strip()}, but this shard shows "
                          f"{here.json().strip()}")

    def _diverge(self, how: str) -> None:
        self.diverged = (f"{how}: the directory was made anew or is another cluster's. Give the server its own "
                         "cluster, or empty the shard's directory and start it from a snapshot")
        raise StoreDamaged(self.diverged)


def abandoned_in(cluster: str | Path, log: DeltaLog) -> _Ranges:
    """The ranges (first, last) of sequences that a cluster's rollbacks abandoned and the log does not know. Damaged
    files do not keep a shard from starting: ClusterHistory.unread goes past none that matters. Raises StoreError."""
    return unknown_ranges(ClusterHistory().readable(cluster, EPOCH_MAX), log)


def unknown_ranges(epochs: Iterable[Epoch], log: DeltaLog) -> _Ranges:
    """The ranges that `epochs` abandon, of versions not retired, that no range of the log holds. Raises StoreError."""
    known, retired, ranges = log.abandoned(), log.retired(), []
    for epoch in epochs:
        for table, until in epoch.abandoned.items():
            key, first = (epoch.package_version, table), epoch.sequences[table] + 1
            if epoch.package_version not in retired and not any(
                    low <= first and until <= high for low, high in known.get(key, ())):
                ranges.append((key, (first, until)))
    return ranges
