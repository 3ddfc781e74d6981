"""Tables that live on the shards of a cluster: `Cluster(directory).table(name)` reads like a Table in this process.

    with Cluster("/srv/ps") as cluster:
        items = cluster.table("item")
        rows = items.lookup(ids, status=status, deadline_s=0.01)

Lookups are native and run without the GIL (csrc/flight/client_table.h): routed by the mixing hash, one message per
shard in parallel, each id once, failing over and hedging between the replicas of a shard within one epoch.
"""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from paramserver import arrays
from paramserver.cluster_watch import ClusterWatch
from paramserver.control import ControlClient, read_pem
from paramserver.errors import ClosedError, OptionError, ParamServerError, RemoteError, UnknownTable
from paramserver.hot_cache import HotRowCache
from paramserver.native_flight import native
from paramserver.reading import CancelFlag, Reader
from paramserver.shard_map import ShardMap
from paramserver.status import RowStatus

__all__ = ["CancelFlag", "Cluster", "LaneStats", "RemoteStats", "RemoteTable"]

_WIRES = ("f32", "f16", "bf16", "int8")
_STATES = ("opening", "up", "suspect", "down")
_REFUSALS = ("ok", "shard_map_mismatch", "unknown_table", "unknown_epoch", "bad_request", "overloaded", "closing",
             "expired")


@dataclass(frozen=True)
class LaneStats:
    """The stream to one replica."""

    address: str
    state: str  #: "opening", "up", "suspect" (silent for too long; others go first) or "down"
    in_flight: int  #: lookups
    sent: int  #: lookups, signs of life included
    late: int  #: messages that nobody waited for any more
    bad: int  #: messages that were no answers
    opened: int  #: streams
    broken: int  #: streams
    problem: str  #: of the last stream that broke or did not open


@dataclass(frozen=True)
class RemoteStats:
    """What was asked of a remote table, by this client."""

    lookups: int
    ids: int
    unique_ids: int  #: sent to shards, each once a lookup
    statuses: dict[str, int]  #: ids by status
    messages: int  #: to shards, those sent again included
    hedges: int  #: messages sent again after an unusual silence
    failovers: int  #: messages sent again because a replica failed, refused or stalled
    mismatches: int  #: lookups that were told of another shard map
    refusals: dict[str, int]  #: answers without rows, by reason


class RemoteTable(Reader):
    """A table of a Cluster, made by Cluster.table. An id whose shard cannot be asked is `unavailable`, one that was not
    answered in time `deadline`; both get the default row. Any number of threads may read. Raises ClosedError when the
    cluster is closed."""

    def __init__(self, cluster: "Cluster", name: str, core: Any, default_row: np.ndarray, wire: str) -> None:
        super().__init__(name, default_row.size, core)
        self._cluster = cluster  # watched for as long as a table of it is in use
        self._default_row = default_row
        self._wire = wire

    @property
    def default_row(self) -> np.ndarray:
        """The row of ids that could not be asked: float32[dim], a copy."""
        return self._default_row.copy()

    @property
    def wire(self) -> str:
        """What rows are on the wire: "f32", "f16", "bf16" or "int8"."""
        return self._wire

    def _expect_open(self) -> None:
        self._cluster._expect_open()

    def __repr__(self) -> str:
        return f"RemoteTable({self._name!r}, dim={self._dim}, wire={self._wire!r})"

    def stats(self) -> RemoteStats:
        """What was asked so far."""
        stats = dict(self._core.stats())
        by_status, refusals = stats.pop("by_status"), stats.pop("refusals")
        return RemoteStats(**stats, statuses={one.name.lower(): by_status[one] for one in RowStatus},
                           refusals=dict(zip(_REFUSALS, refusals, strict=True)))


class Cluster:
    """The shards named by the map in `directory`, which is watched: a new map or epoch is in use within about poll_ms.

    wire: what rows are sent as, "f32", "f16", "bf16" or "int8"; a type that does not hold the table's rows exactly
    rounds them. token, tls_ca, tls_name: as of ControlClient. deadline_ms: of lookups that bring none. hedge_ms:
    silence after which another replica is asked too; None learns it, 0 never does. stall_ms: silence after which a
    replica is passed over, less for short deadlines. lookups_max, bytes_max: in flight on each replica's
    stream. connect_ms: the longest that a connection may take. Raises OptionError, ShardMapError, ConfigError.
    """

    def __init__(self, directory: str | Path, *, wire: str = "f32", token: str | None = None,
                 tls_ca: str | Path | None = None, tls_name: str | None = None, deadline_ms: int = 1000,
                 hedge_ms: float | None = None, stall_ms: int = 100, poll_ms: int = 50, lookups_max: int = 1024,
                 bytes_max: int = 256 << 20, connect_ms: int = 1000) -> None:
        _check_wire(wire)
        for name, value, high in (("deadline_ms", deadline_ms, 3_600_000), ("stall_ms", stall_ms, 60_000),
                                  ("poll_ms", poll_ms, 60_000), ("lookups_max", lookups_max, 1 << 20),
                                  ("bytes_max", bytes_max, 1 << 40), ("connect_ms", connect_ms, 60_000)):
            _check_integer(name, value, high)
        if hedge_ms is not None and (isinstance(hedge_ms, bool) or not 0 <= hedge_ms <= 3_600_000):
            raise OptionError(f"hedge_ms is {hedge_ms!r}, expected 0 to 3600000, or None")
        self._wire = wire
        self._times = {"deadline_ms": deadline_ms, "hedge_ms": -1.0 if hedge_ms is None else float(hedge_ms),
                       "stall_ms": stall_ms, "map_wait_ms": 1000, "epoch_wait_ms": 500}
        self._access = {"token": token, "tls_ca": tls_ca, "tls_name": tls_name}
        self._core = native.Cluster(token=token or "", tls_root_certs=read_pem(tls_ca).decode() if tls_ca else "",
                                    tls_override_hostname=tls_name or "", lookups_max=lookups_max,
                                    bytes_max=bytes_max, connect_ms=connect_ms)
        try:
            self._watch = ClusterWatch(self._core, Path(directory), poll_ms)
        except BaseException:
            self._core.close()
            raise
        # Without the cluster, whoever got the capsule of a table still reads: it stays watched for as long.
        weakref.finalize(self, self._watch.let_go).atexit = False

    @property
    def map(self) -> ShardMap:
        """The shard map in use."""
        return self._watch.map

    @property
    def epoch(self) -> int:
        """The newest epoch known; 0 before the first."""
        return self._core.newest_epoch()

    @property
    def problem(self) -> str | None:
        """Why the newest files of the directory are not in use, None when they are."""
        return self._watch.problem

    def refresh(self) -> None:
        """Look at the directory now."""
        self._expect_open()
        self._watch.refresh(doubt=True)

    def table(self, name: str, dim: int | None = None, *, default_row: np.ndarray | Sequence[float] | None = None,
              wire: str | None = None, hot_cache_bytes_max: int = 0,
              row_age_max_s: float | None = None) -> "RemoteTable | HotRowCache":
        """The table of that name. dim and default_row are asked from a shard when dim is None, which raises RemoteError
        when none answers and UnknownTable; with dim, default_row is zeros when None. wire: as the cluster's when None.
        hot_cache_bytes_max: keep that many bytes of hot rows in front of it; 0: none. row_age_max_s: of those, as
        HotRowCache; None: a tenth of the table's TTL, by which an expired row may then outlive it, asked from a shard.
        """
        self._expect_open()
        wire = self._wire if wire is None else wire
        _check_wire(wire)
        ageless = row_age_max_s is None and hot_cache_bytes_max != 0
        described = self._described(name) if dim is None or ageless else {}
        if dim is None:
            dim = int(described["dim"])
            default_row = described["default_row"] if default_row is None else default_row
        if ageless:
            row_age_max_s = described["ttl_s"] / 10
        arrays.check_options(dim, "f32", 0)
        row = arrays.as_default_row(default_row, dim)
        row = np.zeros(dim, np.float32) if row is None else row
        core = native.RemoteTable(cluster=self._core, name=name, dim=dim, wire=_WIRES.index(wire), default_row=row,
                                  **self._times)
        table = RemoteTable(self, name, core, row, wire)
        if hot_cache_bytes_max == 0:
            return table
        return HotRowCache(table, hot_cache_bytes_max, kept=wire if wire in ("f16", "bf16") else "f32",
                           row_age_max_s=row_age_max_s or 0.0)

    def tables(self) -> dict[str, int]:
        """The dim of every table of the newest epoch, by name, as a shard tells it. Raises RemoteError."""
        return {name: described["dim"] for name, described in self._newest_tables().items()}

    def control(self, shard: int, replica: int = 0) -> ControlClient:
        """A control client of one server of the map."""
        return ControlClient(self.map.shards[shard][replica], **self._access)

    def lanes(self) -> list[LaneStats]:
        """The stream to every replica of the map."""
        return [LaneStats(**{**stats, "state": _STATES[stats["state"]]}) for stats in self._core.lanes()]

    def close(self) -> None:
        """End the streams and the threads. Tables of this cluster then raise ClosedError; to native code that holds a
        capsule of one, ids are `unavailable`. Again: nothing."""
        self._watch.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def _described(self, name: str) -> dict[str, Any]:
        tables = self._newest_tables()
        if name not in tables:
            raise UnknownTable(f"no table {name!r} in the newest epoch; there are "
                               f"{', '.join(sorted(tables)) or 'none'}")
        return tables[name]

    def _newest_tables(self) -> dict[str, Any]:
        """The tables of the first server of the map that shows the newest epoch: one that was just made, or lags, knows
        none or older ones. When none shows it, of the one that is least behind. Raises RemoteError."""
        problems: list[str] = []
        best: dict[str, Any] | None = None
        for address in (address for replicas in self.map.shards for address in replicas):
            try:
                with ControlClient(address, **self._access, timeout_s=5.0) as client:
                    said = client.action("tables")
            except ParamServerError as error:
                problems.append(str(error))
                continue
            if best is None or said["epoch"] > best["epoch"]:
                best = said
            if said["epoch"] >= max(1, self.epoch):
                break
        if best is None:
            raise RemoteError(f"no server of the map answers: {'; '.join(problems)}")
        return best["tables"]

    def _expect_open(self) -> None:
        if self._watch.ended:
            raise ClosedError("the cluster is closed: open another")


def _check_wire(wire: str) -> None:
    if wire not in _WIRES:
        raise OptionError(f"wire is {wire!r}, expected one of {', '.join(_WIRES)}")


def _check_integer(name: str, value: Any, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 1 <= value <= high:
        raise OptionError(f"{name} is {value!r}, expected an integer from 1 to {high}")
