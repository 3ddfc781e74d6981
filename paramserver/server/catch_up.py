"""Fetches what this replica missed from the shard's other replicas.

A replica that was down while deltas were pushed finds an epoch that names deltas it lacks. The others have them in
their logs, as they were staged; fetched and staged here, they are as if they had been pushed.
"""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from paramserver.delta import Delta, delta_of
from paramserver.epoch import Epoch, newest_epoch
from paramserver.errors import DeltaError, OperatingError, ParamServerError, ShardMapError
from paramserver.server.complaints import complain
from paramserver.shard_map import ShardMap
from paramserver.store import ShardStore

__all__ = ["CatchUp", "Credentials"]

# A call may take so long, and longer for what there is to send: the other replica reads, writes and sends it.
_CALL_S = 60.0
_SENT_BYTES_PER_S = 16 << 20
_BETWEEN_TRIES_S = 1.0
_STOP_S = 10.0
# What one replica may answer with instead of a delta; another may have it whole.
_ONE_REPLICAS_FAULT = (pa.ArrowException, OSError, DeltaError, ValueError, KeyError, TypeError)


class Credentials:
    """How replicas know each other. token: a bearer token for control, None: none is asked for. tls: keyword arguments
    of pyarrow.flight.connect."""

    def __init__(self, token: str | None = None, **tls: Any) -> None:
        self._headers = [(b"authorization", b"Bearer " + token.encode())] if token else []
        self.tls = tls

    def options(self, bytes_max: int = 0) -> fl.FlightCallOptions:
        """Of a call that sends so many bytes at most."""
        return fl.FlightCallOptions(timeout=_CALL_S + bytes_max / _SENT_BYTES_PER_S, headers=self._headers)


class CatchUp:
    """Stages the deltas that the cluster's newest epoch names and `store` lacks, on a thread of its own. own_address is
    not asked. done: called after something was staged."""

    def __init__(self, store: ShardStore, cluster: Path, own_address: str, credentials: Credentials,
                 done: Callable[[], None]) -> None:
        self._store, self._cluster, self._own_address = store, cluster, own_address
        self._credentials, self._done = credentials, done
        self._wanted, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="catch-up", daemon=True)
        self._reader: fl.FlightStreamReader | None = None
        #: Why the last try fetched nothing; empty when it did, or nothing was missing.
        self.problem = ""

    def start(self) -> None:
        """Wait for work."""
        self._thread.start()

    def wake(self) -> None:
        """Look for what is missing soon; cheap, and calls while it works are one."""
        self._wanted.set()

    def stop(self) -> None:
        """End the thread, and the call in progress with it. A replica that does not even begin to answer is not waited
        for: what it sends later is refused by a store that is closed."""
        self._stop.set()
        self._wanted.set()
        reader = self._reader
        if reader is not None:
            reader.cancel()
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wanted.wait()
            self._wanted.clear()
            try:
                if self._stage_missing():
                    self._done()
                self.problem = ""
            except Exception as error:
                self.problem = f"{type(error).__name__}: {error}"
                if not isinstance(error, (ParamServerError, pa.ArrowException, OSError)):
                    complain(error)
            # Others that miss the same deltas would be asked again and again.
            self._stop.wait(_BETWEEN_TRIES_S)

    def _stage_missing(self) -> int:
        """Returns how many deltas were staged."""
        epoch, staged = newest_epoch(self._cluster), 0
        for table, after in missing(self._store, epoch):
            for delta in self._fetched(table, epoch.package_version, after, epoch.sequences[table]):
                if self._stop.is_set():
                    return staged
                self._store.stage(delta)
                staged += 1
        return staged

    def _fetched(self, table: str, version: int, after: int, last: int) -> Iterator[Delta]:
        """The deltas after one sequence up to another, from whichever replica has them."""
        found = ShardMap.read(self._cluster)
        if len(found.shards) != self._store.shards:
            raise ShardMapError(f"map version {found.version} has {len(found.shards)} shards, this server is one of "
                                f"{self._store.shards}: nobody is asked")
        problems = []
        for address in found.shards[self._store.shard]:
            if address == self._own_address or after >= last:
                continue
            try:
                with fl.connect(address, **self._credentials.tls) as connection:
                    options = self._credentials.options(self._log_bytes(connection, table, version))
                    while after < last and (delta := self._next(connection, options, table, version, after)):
                        yield delta
                        after = delta.sequence
            except _ONE_REPLICAS_FAULT as error:
                problems.append(f"{address}: {error}")
        if after < last:
            raise OperatingError(f"no replica of shard {self._store.shard} has delta {after + 1} of table {table!r}, "
                                 f"base version {version}; {'; '.join(problems) or 'all were asked'}")

    def _log_bytes(self, connection: fl.FlightClient, table: str, version: int) -> int:
        """What a delta of the other replica's has at most: all of its log."""
        (result,) = connection.do_action(fl.Action("status", b"{}"), self._credentials.options())
        tables = json.loads(result.body.to_pybytes())["versions"].get(str(version), {})
        return int(tables[table]["log_bytes"]) if table in tables else 0

    def _next(self, connection: fl.FlightClient, options: fl.FlightCallOptions, table: str, version: int,
              after: int) -> Delta | None:
        ticket = {"action": "next_delta", "package_version": version, "table": table, "after": after}
        self._reader = connection.do_get(fl.Ticket(json.dumps(ticket).encode()), options)
        try:
            came = self._reader.read_all()
        finally:
            self._reader = None
        return delta_of(came) if came.schema.names else None


def missing(store: ShardStore, epoch: Epoch | None) -> list[tuple[str, int]]:
    """(table, its newest sequence here) of every table that lacks deltas which `epoch` names. A version that does not
    serve here lacks its snapshot, which nobody can fetch: nothing is missing then."""
    if epoch is None or epoch.package_version not in store.versions():
        return []
    tables = store.tables(epoch.package_version)
    return [(name, tables[name].sequence) for name, sequence in epoch.sequences.items()
            if name in tables and tables[name].sequence < sequence]
