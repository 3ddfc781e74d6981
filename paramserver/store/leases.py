"""Which epochs are held, by whom, and until when."""

import threading
from collections.abc import Callable

from paramserver.errors import EpochError, OptionError

__all__ = ["LEASE_S_MAX", "Leases"]

#: The longest time to live of a lease, in seconds: whoever needs more renews it.
LEASE_S_MAX = 86_400.0


class Leases:
    """Leases of held epochs by holder. `clock()` gives seconds that only grow. Thread-safe, and never slow."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until: dict[int, dict[str, float]] = {}

    def hold(self, epoch: int, ttl_s: float, holder: str) -> None:
        """Hold a new epoch, with a first lease of `ttl_s` seconds."""
        with self._lock:
            self._until[epoch] = {holder: self._clock() + ttl_s}

    def take(self, epoch: int, ttl_s: float, holder: str) -> None:
        """Hold `epoch` for `ttl_s` seconds from now, or longer where `holder` does already. Raises OptionError, and
        EpochError when it is not held any more."""
        if isinstance(ttl_s, bool) or not isinstance(ttl_s, (int, float)) or not 0 <= ttl_s <= LEASE_S_MAX:
            raise OptionError(f"ttl_s is {ttl_s!r}, expected 0 to {LEASE_S_MAX:g} seconds")
        with self._lock:
            if epoch not in self._until:
                raise EpochError(f"epoch {epoch} is not held here, held are {sorted(self._until)}")
            holders = self._until[epoch]
            holders[holder] = max(holders.get(holder, 0.0), self._clock() + ttl_s)

    def drop(self, epoch: int, holder: str) -> None:
        """End a holder's lease now, if it has one."""
        with self._lock:
            self._until.get(epoch, {}).pop(holder, None)

    def live(self, epoch: int) -> dict[str, float]:
        """Seconds left of each lease on `epoch`."""
        with self._lock:
            now = self._clock()
            return {holder: until - now for holder, until in self._until.get(epoch, {}).items() if until > now}

    def expire(self, keep: int, now: float | None = None) -> list[int]:
        """Let go of every epoch but `keep` whose leases have all ended at `now` (the clock's time when None); they
        cannot be leased from then on. Returns them, ascending."""
        with self._lock:
            now = self._clock() if now is None else now
            gone = sorted(epoch for epoch, holders in self._until.items()
                          if epoch != keep and not any(until > now for until in holders.values()))
            for epoch in gone:
                del self._until[epoch]
            return gone

    def forget(self, epoch: int) -> None:
        """Let go of an epoch whatever its leases."""
        with self._lock:
            self._until.pop(epoch, None)
