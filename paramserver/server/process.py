"""One shard's server as a whole: its store, the native server in front of it, and what keeps the two together."""

import os
import socket
import time
from pathlib import Path
from typing import Any

from paramserver.epoch import epoch_numbers
from paramserver.errors import OperatingError, ShardMapError
from paramserver.native_flight import native
from paramserver.server.catch_up import CatchUp, Credentials
from paramserver.server.complaints import complain
from paramserver.server.config import ServerConfig, tokens_of
from paramserver.server.control import Control
from paramserver.server.metrics import MetricsEndpoint, ShardCollector
from paramserver.server.serving import EpochServing
from paramserver.server.table_options import table_options
from paramserver.server.upkeep import Upkeep
from paramserver.server.watcher import ClusterWatcher
from paramserver.shard_map import MAP_FILE, ShardMap
from paramserver.store import DeltaWatch, ShardStore
from paramserver.store.recovery import Progress

__all__ = ["ShardProcess"]

# The map version of a server that has seen no map: no client can have it.
_NO_MAP = 2**64 - 1
_EXPIRE_S = 1.0


class ShardProcess:
    """Opens the shard's directory and serves it until `stop`.

    The native server listens once the tables are in memory, so a client finds either nobody or a shard that can answer.
    Raises ConfigError, StoreLocked when another process has the directory, StoreError, StoreDamaged, OperatingError
    when it cannot listen; nothing is left open then. progress: as of ShardStore.open."""

    def __init__(self, config: ServerConfig, progress: Progress | None = None) -> None:
        self.config = config
        self._started = time.monotonic()
        self._map_seen: tuple[int, int, int] | None = None
        self._map_version = _NO_MAP
        self._expired_at = 0.0
        self._server: Any = None
        self._serving: EpochServing | None = None
        self._address = ""
        self._watcher: ClusterWatcher | None = None
        self._catch_up: CatchUp | None = None
        self._upkeep: Upkeep | None = None
        # Before the native server listens: it may be asked for its status at once.
        self._deltas: DeltaWatch | None = None
        self._metrics: MetricsEndpoint | None = None
        limits = config.limits
        self._store = ShardStore.open(config.directory, shard=config.shard, shards=config.shards,
                                      durability=config.durability, options=table_options(config),
                                      hold_s=limits.hold_s, reserve_bytes=limits.reserve_bytes,
                                      held_bytes_max=limits.held_bytes_max, cluster=config.cluster,
                                      progress=progress)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    @property
    def address(self) -> str:
        """Where clients reach it: grpc://HOST:PORT, or grpc+tls://HOST:PORT."""
        return self._address

    @property
    def metrics_address(self) -> str | None:
        """Where metrics are served, HOST:PORT, None when they are not."""
        return self._metrics.address if self._metrics else None

    def about(self) -> dict[str, Any]:
        """The server's own part of its status."""
        newest = self._serving.newest() if self._serving else None
        return {"address": self.address, "metrics": self.metrics_address, "pid": os.getpid(),
                "replica": self.config.replica, "uptime_s": round(time.monotonic() - self._started, 3),
                "map_version": None if self._map_version == _NO_MAP else self._map_version,
                "serving_epoch": newest.number if newest else 0, "durability": self.config.durability,
                "catch_up_problem": self._catch_up.problem if self._catch_up else "",
                "deltas_refused": dict(self._deltas.refused) if self._deltas else {},
                "deltas_waiting": dict(self._deltas.waiting) if self._deltas else {}}

    def stop(self) -> None:
        """Refuse new lookups, answer those in flight within drain_ms, and let the directory go. A second call does
        nothing."""
        # The watcher first: it wakes the others.
        running = [part for part in (self._watcher, self._catch_up, self._upkeep) if part is not None]
        self._watcher = self._catch_up = self._upkeep = None
        for part in running:
            part.stop()
        if self._server is not None:
            self._server.stop(self.config.limits.drain_ms)
        metrics, self._metrics = self._metrics, None
        if metrics is not None:
            metrics.stop()
        # The native server holds the control function, which holds this: without the cut, both would stay.
        if self._serving is not None:
            self._serving.stop()
        self._server = self._serving = None
        self._store.close()

    def _start(self) -> None:
        config = self.config
        control = Control(self._store, changed=self._changed, about=self.about,
                          keys_per_get_max=config.limits.keys_per_get_max)
        self._server = _native_server(config, control, self._upload_folder())
        host, _, _ = config.listen.rpartition(":")
        self._address = f"grpc{'+tls' if config.tls else ''}://{host}:{self._server.port}"
        self._server.set_place(_NO_MAP, config.shard, config.shards)
        self._serving = EpochServing(self._store, self._server,
                                     lambda table: config.options_of(table).tier is not None)
        self._deltas = self._delta_watch()
        self._read_map()
        self._catch_up = CatchUp(self._store, config.cluster, self._address, _credentials(config), self._changed)
        self._catch_up.start()
        self._first_look()
        self._watcher = ClusterWatcher(config.cluster, self._look, self._server.epoch_missing_fd,
                                       config.limits.poll_ms)
        self._watcher.start()
        self._upkeep = Upkeep(self._store, config.limits.upkeep_s, config.limits.log_bytes_max)
        self._upkeep.start()
        if config.metrics is not None:
            self._metrics = MetricsEndpoint(config.metrics,
                                            ShardCollector(self._server, self._store.status, self._tables))

    def _delta_watch(self) -> DeltaWatch | None:
        config = self.config
        if config.watch_deltas is None:
            return None
        return DeltaWatch(config.watch_deltas, self._store.stage, shard=config.shard, shards=config.shards)

    def _changed(self) -> None:
        if self._watcher is not None:
            self._watcher.wake()

    def _first_look(self) -> None:
        """What the store holds is served before anybody is told; what cannot be taken yet does not keep it."""
        try:
            self._look()
        except Exception as error:
            complain(error)

    def _look(self) -> None:
        """Bring what is served up to date with the cluster's directory. Each part is tried whatever others meet."""
        problems: list[Exception] = []
        for part in (self._read_map, self._read_deltas, self._adopt, self._expire, self._serve,
                     self._fetch):
            try:
                part()
            except Exception as error:
                problems.append(error)
        if problems:
            raise problems[0]

    def _read_map(self) -> None:
        path = self.config.cluster / MAP_FILE
        try:
            stat = path.stat()
        except FileNotFoundError:
            return
        seen = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if seen == self._map_seen:
            return
        found = ShardMap.read(path)
        self._map_seen = seen
        if len(found.shards) != self.config.shards:
            raise ShardMapError(f"{path}: {len(found.shards)} shards in map version {found.version}, but this server "
                                f"is configured as one of {self.config.shards}: the map is not taken")
        self._map_version = found.version
        self._server.set_place(found.version, self.config.shard, self.config.shards)

    def _read_deltas(self) -> None:
        if self._deltas is not None:
            self._deltas.poll()

    def _adopt(self) -> None:
        self._store.adopt(self.config.cluster)

    def _serve(self) -> None:
        if self._serving is not None:
            self._serving.sync()

    def _fetch(self) -> None:
        """Have the deltas fetched that the newest epoch names and this replica lacks."""
        served = self._serving.newest() if self._serving else None
        numbers = epoch_numbers(self.config.cluster)
        if self._catch_up is not None and numbers and numbers[-1] > (served.number if served else 0):
            self._catch_up.wake()

    def _expire(self) -> None:
        if time.monotonic() - self._expired_at >= _EXPIRE_S:
            self._expired_at = time.monotonic()
            self._store.expire()

    def _tables(self) -> dict[int, dict[str, Any]]:
        return {version: self._store.tables(version) for version in self._store.versions()}

    def _upload_folder(self) -> Path:
        """Where pushed deltas are written first: emptied by the store at every start."""
        folder = self.config.directory / "incoming"
        folder.mkdir(exist_ok=True)
        return folder


def _credentials(config: ServerConfig) -> Credentials:
    """What this server shows its shard's other replicas, which are configured like it."""
    tokens = tokens_of(config.control_token_file) or tokens_of(config.token_file)
    tls: dict[str, Any] = {}
    if config.tls is not None:
        if config.tls.peer_ca is not None:
            tls["tls_root_certs"] = config.tls.peer_ca.read_text()
        if config.tls.client_ca is not None:
            tls |= {"cert_chain": config.tls.certificate.read_text(), "private_key": config.tls.key.read_text()}
    return Credentials(tokens[0] if tokens else None, **tls)


def _expect_free(listen: str) -> None:
    """Raise OperatingError when the address cannot be had: the native server cannot say why, and gRPC would print."""
    host, _, port = listen.rpartition(":")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise OperatingError(f"cannot listen on {listen}: {error.strerror}; give another address of this machine and "
                             "free port as `listen`") from error


def _native_server(config: ServerConfig, control: Control, uploads: Path) -> Any:
    limits, tls = config.limits, config.tls
    _expect_free(config.listen)
    host, _, port = config.listen.rpartition(":")
    return native.ShardServer(
        host=host, port=int(port),
        certificate=tls.certificate.read_text() if tls else "", key=tls.key.read_text() if tls else "",
        client_ca=tls.client_ca.read_text() if tls and tls.client_ca else "",
        tokens=tokens_of(config.token_file), control_tokens=tokens_of(config.control_token_file),
        bounds=(limits.lookups_max, limits.ids_in_flight_max, limits.stream_threads_max, limits.inline_ids_max),
        streams_max=limits.streams_max, epoch_wait_ms=limits.epoch_wait_ms, transfers_max=limits.transfers_max,
        reserve_bytes=limits.reserve_bytes, upload_bytes_max=limits.upload_bytes_max,
        upload_directory=str(uploads), control=control)
