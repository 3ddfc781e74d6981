"""Stage 1: the gRPC end. Rank, health and reflection; start-up from a config file; SIGTERM drains.

`main` is what `lambda-svc serve` runs. `RankingServer` is the same server inside a process of one's own (tests use it).
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from lambda_svc import config as config_file
from lambda_svc._core import Arena
from lambda_svc.config import ServiceConfig
from lambda_svc.errors import ConfigError, LambdaError, status_code_name
from lambda_svc.lifecycle import check_golden, load_model, take_in
from lambda_svc.plan import LoadedModel, ScenarioPlan, compile_plan
from lambda_svc.proto import ranking_pb2 as pb
from lambda_svc.proto import ranking_pb2_grpc as pb_grpc
from lambda_svc.ranking import Ranking

__all__ = ["RankingServer", "load_plans", "main"]

log = logging.getLogger("lambda_svc")
SERVICE = pb.DESCRIPTOR.services_by_name["Ranking"].full_name


class _Servicer(pb_grpc.RankingServicer):
    def __init__(self, ranking: Ranking) -> None:
        self._ranking = ranking

    def Rank(self, request: pb.RankRequest, context: grpc.ServicerContext) -> pb.RankResponse:
        try:
            return self._ranking.rank(request, context.time_remaining())
        except LambdaError as error:
            context.abort(grpc.StatusCode[status_code_name(error)], str(error))


class RankingServer:
    """A ranking server on `config.server.listen`; port 0 picks a free one, see `port`.

    Raises ConfigError when the address is taken. Use as a context manager, or call `stop`.
    """

    def __init__(self, config: ServiceConfig, plans: dict[str, ScenarioPlan]) -> None:
        self.ranking = Ranking(plans)
        self._drain_s = config.server.drain_s
        self._health = health.HealthServicer()
        limit = config.server.message_bytes_max
        self._server = grpc.server(
            ThreadPoolExecutor(config.server.rpc_threads, thread_name_prefix="rpc"),
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", limit),
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
                ("grpc.keepalive_permit_without_calls", 1),
            ],
        )
        pb_grpc.add_RankingServicer_to_server(_Servicer(self.ranking), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        try:
            self.port = self._server.add_insecure_port(config.server.listen)
        except RuntimeError:
            listen = config.server.listen
            raise ConfigError(f"server.listen: cannot listen on {listen}; is another server there?") from None

    def __enter__(self) -> RankingServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begins to answer and turns readiness on."""
        self._server.start()
        self._set_ready(True)

    def stop(self) -> None:
        """Readiness off first, then drains: accepted requests finish, within drain_s; new ones are refused."""
        self._set_ready(False)
        stopped = self._server.stop(self._drain_s)
        if not stopped.wait(self._drain_s):
            self.ranking.close()
        stopped.wait()

    def _set_ready(self, ready: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in ("", SERVICE):
            self._health.set(service, status)


def load_plans(config: ServiceConfig) -> dict[str, ScenarioPlan]:
    """Takes in, loads and golden-checks what every scenario serves. Raises a LambdaError naming what is wrong."""
    arena = Arena(bytes_max=config.arena_bytes_max)
    models: dict[Path, tuple[Path, LoadedModel]] = {}
    plans = {}
    for name, scenario in config.scenarios.items():
        source = config_file.package_dir(config, scenario)
        if source not in models:
            folder, manifest = take_in(source, config.work_dir)
            models[source] = folder, load_model(folder, manifest, config, arena)
        folder, model = models[source]
        plan = compile_plan(name, scenario, model)
        worst = check_golden(folder, plan)
        log.info("scenario %s: %s version %d, golden within %s", name, plan.wire.model, plan.wire.version, worst)
        plans[name] = plan
    return plans


def main(config_path: str | Path) -> int:
    """Serves until SIGTERM or SIGINT; returns the process's exit code (0 after a drain, 1 when it could not start)."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        config = config_file.load(config_path)
        sys.setswitchinterval(config.server.switch_interval_us / 1e6)
        server = RankingServer(config, load_plans(config))
    except LambdaError as error:
        log.error("cannot start: %s", error)
        return 1
    server.start()
    log.info("ready on port %d", server.port)
    stop.wait()
    log.info("draining, at most %.1f s", config.server.drain_s)
    server.stop()
    log.info("drained")
    return 0
