"""Stage 1: the gRPC end. Rank, health and reflection; start-up from a config file; SIGTERM drains.

`main` is what `lambda-svc serve` runs. `RankingServer` is the same server inside a process of one's own (tests use it).
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from feature_store import FeatureStoreError
from lambda_svc import config as config_file
from lambda_svc._core import CancelFlag
from lambda_svc.config import ServiceConfig
from lambda_svc.errors import ConfigError, LambdaError, status_code_name
from lambda_svc.lifecycle import Keeper
from lambda_svc.observe import Observation, Observer, set_up_logs
from lambda_svc.plan import ScenarioPlan
from lambda_svc.proto import ranking_pb2 as pb
from lambda_svc.proto import ranking_pb2_grpc as pb_grpc
from lambda_svc.ranking import Ranking
from lambda_svc.request_log import RequestLog
from lambda_svc.rollout import Rollouts
from lambda_svc.routes import Routes
from lambda_svc.session.streams import DRAINING
from lambda_svc.user_states import UserStates
from models.package import PackageError
from paramserver import ParamServerError

__all__ = ["RankingServer", "load_plans", "main"]

log = logging.getLogger("lambda_svc")
SERVICE = pb.DESCRIPTOR.services_by_name["Ranking"].full_name
METHODS = f"/{SERVICE}/"
DETAILS_BYTES_MAX = 2_000  # of a status; percent-encoded it must fit the 8 KiB that gRPC allows for trailers
QUIET_S = 0.1  # for how long nobody may ask before a draining server closes its connections
STREAMS_S = 0.5  # what health watches and other streams still get then


class _Servicer(pb_grpc.RankingServicer):
    def __init__(self, ranking: Ranking, observer: Observer) -> None:
        self._ranking, self._observer = ranking, observer

    def Rank(self, request: pb.RankRequest, context: grpc.ServicerContext) -> pb.RankResponse:
        call = self._observer.begin(request)
        cancel = _cancel_of(context)
        try:
            answer = self._ranking.rank(request, context.time_remaining(), cancel)
        except Exception as error:
            call.failed(error, status_code_name(error))
            _abort(context, error)
        call.answered(answer, _lost(context) if cancel.is_set else "OK")
        return answer

    def PrecomputeUser(self, request: pb.PrecomputeUserRequest,
                       context: grpc.ServicerContext) -> pb.PrecomputeUserResponse:
        try:
            return self._ranking.precompute_user(request, context.time_remaining(), _cancel_of(context))
        except Exception as error:
            if status_code_name(error) == "INTERNAL":
                log.exception("scenario %s: a user side failed", request.scenario)
            _abort(context, error)


def _cancel_of(context: grpc.ServicerContext) -> CancelFlag:
    """Set when nobody waits for the call any more."""
    cancel = CancelFlag()
    if not context.add_callback(cancel.set):
        cancel.set()
    return cancel


def _abort(context: grpc.ServicerContext, error: Exception) -> NoReturn:
    details = str(error) if isinstance(error, LambdaError) else f"{type(error).__name__}: {error}"
    code = grpc.StatusCode[status_code_name(error)]
    context.abort(code, details.encode()[:DETAILS_BYTES_MAX].decode(errors="ignore"))


def _lost(context: grpc.ServicerContext) -> str:
    """Why nobody waits any more for a call."""
    left_s = context.time_remaining()
    return "CANCELLED" if left_s is None or left_s > 0 else "DEADLINE_EXCEEDED"


class _Door(grpc.ServerInterceptor):
    """Decides on arrival whether a ranking request gets in: all do until the door closes, then none.

    gRPC's own stop would answer a request that crosses it on the wire with CANCELLED, which tells a caller nothing.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._closed = False
        self._knocked_s = 0.0

    def intercept_service(self, continuation, handler_call_details):
        """The method's own handler, or one that refuses."""
        if not self._closed or not handler_call_details.method.startswith(METHODS):
            return continuation(handler_call_details)
        self._knocked_s = time.monotonic()
        self._observer.refused("UNAVAILABLE")
        return grpc.unary_unary_rpc_method_handler(_refuse)

    def close(self) -> None:
        """Refuses whatever arrives from now on."""
        self._closed = True

    def wait_quiet(self, until_s: float) -> None:
        """Returns once nothing has knocked for QUIET_S, or at `until_s` on time.monotonic."""
        quiet_s = time.monotonic() + QUIET_S
        while (now_s := time.monotonic()) < min(quiet_s, until_s):
            time.sleep(min(quiet_s, until_s) - now_s)
            quiet_s = self._knocked_s + QUIET_S


def _refuse(request: bytes, context: grpc.ServicerContext) -> None:
    context.abort(grpc.StatusCode.UNAVAILABLE, DRAINING)


class _RpcThreads(ThreadPoolExecutor):
    """The threads that RPCs run on, which know when the last of them has ended."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads, thread_name_prefix="rpc")
        self._inside = 0
        self._changed = threading.Condition()

    def submit(self, *arguments, **named):
        """Runs a call, counted until it has ended."""
        with self._changed:
            self._inside += 1
        future = super().submit(*arguments, **named)
        future.add_done_callback(self._left)
        return future

    def wait_idle(self, until_s: float) -> bool:
        """Whether no call runs or waits any more; returns at `until_s` on time.monotonic at the latest."""
        with self._changed:
            return self._changed.wait_for(lambda: self._inside == 0, max(0.0, until_s - time.monotonic()))

    def _left(self, _future) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()


class RankingServer:
    """A ranking server on `config.server.listen`; port 0 picks a free one, see `port`.

    `observer` is told about every request. Raises ConfigError when the address is taken. Use as a context manager, or
    call `stop`.
    """

    def __init__(self, config: ServiceConfig, routes: Routes | Mapping[str, ScenarioPlan],
                 rollouts: Rollouts | None = None, observer: Observer | None = None) -> None:
        self._request_log = None if config.request_log is None else RequestLog(config.request_log)
        states = UserStates(config.user_state.bytes_max, config.user_state.ttl_s)
        self.ranking = Ranking(routes, rollouts, self._request_log, states)
        self._observer = Observer() if observer is None else observer
        served = {name: self.ranking.route(name) for name in routes}
        self._observer.watch(self.ranking, served, self._request_log)
        self._drain_s = config.server.drain_s
        self._health = health.HealthServicer()
        limit = config.server.message_bytes_max
        self._door, self._threads = _Door(self._observer), _RpcThreads(config.server.rpc_threads)
        self._server = grpc.server(
            self._threads,
            interceptors=[self._door],
            maximum_concurrent_rpcs=config.server.rpcs_max,
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", limit),
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
                ("grpc.keepalive_permit_without_calls", 1),
            ],
        )
        pb_grpc.add_RankingServicer_to_server(_Servicer(self.ranking, self._observer), self._server)
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

    def switch(self, routes: Routes) -> None:
        """Serves these from now on; requests that have begun finish where they are."""
        self.ranking.switch(routes)
        self._observer.switched(routes)

    def stop(self) -> None:
        """Readiness off first, then drains: accepted requests finish, within drain_s; new ones are refused.

        The connections go last, once callers have had their answers and have stopped asking.
        """
        until_s = time.monotonic() + self._drain_s
        self._set_ready(False)
        self._door.close()
        if self._threads.wait_idle(until_s):
            self._door.wait_quiet(until_s)
            self._threads.wait_idle(until_s)  # for what passed the door while it closed
        self.ranking.close()
        if self._request_log is not None:
            self._request_log.close()
        self._server.stop(STREAMS_S).wait()

    def _set_ready(self, ready: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        self._observer.ready = ready
        for service in ("", SERVICE):
            self._health.set(service, status)


def load_plans(config: ServiceConfig) -> dict[str, ScenarioPlan]:
    """Takes in, loads and proves what every scenario serves, once. Raises a LambdaError naming what is wrong."""
    return {name: route.stable for name, route in Keeper(config).load().items()}


def main(config_path: str | Path) -> int:
    """Serves until SIGTERM or SIGINT; returns the process's exit code (0 after a drain, 1 when it could not start)."""
    set_up_logs("text")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        config = config_file.load(config_path)
        set_up_logs(config.server.log_format)
        sys.setswitchinterval(config.server.switch_interval_us / 1e6)
        rollouts = Rollouts(config)
        keeper = Keeper(config, rollouts)
        observation = Observation(config, keeper, rollouts)
        server = RankingServer(config, keeper.load(), rollouts, observation.observer)
    except (LambdaError, FeatureStoreError, ParamServerError, PackageError, OSError, MemoryError) as error:
        log.error("cannot start: %s", str(error) or type(error).__name__)
        return 1
    server.start()
    keeper.start(server.switch)
    log.info("ready on %s:%d", config.server.listen.rpartition(":")[0], server.port)
    stop.wait()
    log.info("draining, at most %.1f s", config.server.drain_s)
    server.stop()
    keeper.stop()
    rollouts.close()
    observation.stop()
    log.info("drained")
    return 0
