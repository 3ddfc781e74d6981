"""A cluster as an operator sees it: its directory, and a control connection to every replica."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paramserver import ParamServerError
from paramserver.control import ControlClient, read_pem, read_token
from paramserver.delta import Delta
from paramserver.epoch import Epoch, newest_epoch, read_epochs
from paramserver.errors import EpochError, OperatingError
from paramserver.publish import Publisher
from paramserver.shard_map import MAP_FILE, ShardMap
from tools.ps.errors import PsError

__all__ = ["Access", "Answer", "Cluster", "Replica"]

_THREADS_MAX = 32


@dataclass(frozen=True)
class Access:
    """How to speak to the servers: a file with the token, a file with the CA's certificate, how long to wait."""

    token_file: Path | None = None
    tls_ca: Path | None = None
    timeout_s: float = 600.0

    def check(self) -> None:
        """Raises ConfigError when a file cannot be read, so that no server is blamed for it."""
        read_token(self.token_file)
        if self.tls_ca is not None:
            read_pem(self.tls_ca)

    def client(self, address: str) -> ControlClient:
        """A control client of one server. Raises ConfigError when a file cannot be read."""
        return ControlClient(address, read_token(self.token_file), tls_ca=self.tls_ca, timeout_s=self.timeout_s)


@dataclass(frozen=True)
class Replica:
    """One server: its shard and its place among the shard's replicas, from 0."""

    shard: int
    number: int
    address: str

    def __str__(self) -> str:
        return f"shard {self.shard} replica {self.number} ({self.address})"


@dataclass(frozen=True)
class Answer:
    """What one replica said, or why it could not."""

    replica: Replica
    value: Any = None
    error: ParamServerError | None = None


class Cluster:
    """The directory that holds shards.json and epochs/, and the servers that it names. Raises PsError, ShardMapError,
    and ConfigError for a file of `access` that cannot be read."""

    def __init__(self, directory: Path, access: Access | None = None) -> None:
        if not directory.is_dir():
            raise PsError(f"{directory}: no such cluster directory: make one with `lambda-svc ps init {directory}`")
        if not (directory / MAP_FILE).exists():
            raise PsError(f"{directory}: holds no {MAP_FILE}, so it is no cluster's directory: `lambda-svc ps init` "
                          "makes one")
        self.directory, self.access = directory, access or Access()
        self.access.check()
        self.map = ShardMap.read(directory)
        self.replicas = [Replica(shard, number, address) for shard, addresses in enumerate(self.map.shards)
                         for number, address in enumerate(addresses)]

    def newest(self) -> Epoch | None:
        """The newest epoch published, None before the first."""
        return newest_epoch(self.directory)

    def epochs(self) -> list[Epoch]:
        """Every epoch whose file is still there, oldest first."""
        return read_epochs(self.directory)

    def ask(self, question: Callable[[ControlClient, Replica], Any],
            replicas: list[Replica] | None = None) -> list[Answer]:
        """Asks the replicas (all when None) at once; an answer each, in their order, errors included."""
        chosen = self.replicas if replicas is None else replicas

        def one(replica: Replica) -> Answer:
            try:
                with self.access.client(replica.address) as client:
                    return Answer(replica, question(client, replica))
            except ParamServerError as error:
                return Answer(replica, error=error)

        with ThreadPoolExecutor(min(_THREADS_MAX, len(chosen))) as pool:
            return list(pool.map(one, chosen))

    def ask_one_per_shard(self, action: str, shards: list[int] | None = None, **options: Any) -> list[Answer]:
        """Does `action` on the first replica of each shard that can. Raises what the last of a shard's replicas said
        when none could."""
        answers = []
        for shard in range(len(self.map.shards)) if shards is None else shards:
            for replica in [one for one in self.replicas if one.shard == shard]:
                answer = self.ask(lambda client, _: client.action(action, **options), [replica])[0]
                # Another replica may hold an epoch that this one lacks.
                if not isinstance(answer.error, (OperatingError, EpochError)):
                    break
            if answer.error is not None:
                answer.error.add_note(f"said by {answer.replica}")
                raise answer.error
            answers.append(answer)
        return answers

    def publisher(self, require: str) -> Publisher:
        """What stages deltas on every replica and publishes epochs; `require` as in paramserver.publish."""
        members = [_Member(replica, self.access) for replica in self.replicas]
        return Publisher(self.directory, members, shards=len(self.map.shards), require=require)


class _Member:
    """A replica as paramserver.publish wants it."""

    def __init__(self, replica: Replica, access: Access) -> None:
        self.name, self.shard = str(replica), replica.shard
        self._address, self._access = replica.address, access

    def stage(self, delta: Delta) -> str:
        """Pushes a shard's part; "applied", "already" or "held"."""
        with self._access.client(self._address) as client:
            return client.push(delta)["state"]

    def lease(self, epoch: int, ttl_s: float) -> None:
        """Holds an epoch."""
        with self._access.client(self._address) as client:
            client.action("lease", epoch=epoch, ttl_s=ttl_s, holder="publisher")

    def status(self) -> dict[str, Any]:
        """The store's status."""
        with self._access.client(self._address) as client:
            return client.action("status")
