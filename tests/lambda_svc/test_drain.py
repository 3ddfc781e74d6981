"""What a server does with requests it cannot simply serve: draining, too many at once, abandoned, broken."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lambda_svc import config as config_file
from lambda_svc.client import RankingClient
from lambda_svc.errors import EngineError, ResourceExhausted, Unavailable
from lambda_svc.proto import ranking_pb2 as pb
from lambda_svc.proto import ranking_pb2_grpc as pb_grpc
from lambda_svc.server import RankingServer, load_plans
from tests.lambda_svc.world import config_text

MESSAGE = pb.RankRequest(scenario="rank", user_id=1, candidate_ids=np.arange(10).tobytes())


@pytest.fixture
def start(world_dir, request):
    """A function that starts a server with settings of its own in the section `server:`, rpc_threads 8 by default."""

    def start(**settings) -> RankingServer:
        path = world_dir / "drain.yaml"
        wanted = "".join(f", {name}: {value}" for name, value in ({"rpc_threads": 8} | settings).items())
        text = config_text(world_dir)
        path.write_text(text.replace(", rpc_threads: 8, message_bytes_max: 1048576", wanted))
        assert wanted in path.read_text()
        config = config_file.load(path)
        server = RankingServer(config, load_plans(config))
        server.start()
        request.addfinalizer(server.stop)
        return server

    return start


@contextmanager
def calls_of(server: RankingServer):
    """A stub over a connection of its own."""
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield pb_grpc.RankingStub(channel)


def busy(server: RankingServer):
    """Occupies the model's only stream for the length of a block."""
    return server.ranking.plan("rank").model.streams.acquire()


def wait_until(condition) -> None:
    limit = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0)


def waiting(server: RankingServer) -> int:
    return server.ranking.stats()["rank"].waiting


def test_a_draining_server_finishes_what_it_accepted_and_refuses_the_rest(start):
    server = start(rpc_threads=2, drain_s=60)
    stopping = threading.Thread(target=server.stop)
    with calls_of(server) as stub, RankingClient(f"127.0.0.1:{server.port}") as late:
        late.wait_ready(10)
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
            with busy(server):
                accepted = stub.Rank.future(MESSAGE, timeout=60)
                wait_until(lambda: waiting(server) == 1)
                stopping.start()
                assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
                wait_until(lambda: server._door._closed)
                with pytest.raises(Unavailable, match="draining"):
                    late.call(MESSAGE, 60)
                assert stopping.is_alive() and not accepted.done()
            assert len(accepted.result(60).candidate_ids) == 80
            with pytest.raises(Unavailable):
                late.call(MESSAGE, 60)
            stopping.join(30)
            assert not stopping.is_alive(), "an open health watch must not hold the drain"


def test_the_drain_ends_with_its_time_and_tells_who_still_waits(start):
    server = start(drain_s=0.05)
    with calls_of(server) as stub, busy(server):
        accepted = stub.Rank.future(MESSAGE, timeout=60)
        wait_until(lambda: waiting(server) == 1)
        server.stop()
        assert accepted.code() is grpc.StatusCode.UNAVAILABLE and "draining" in accepted.details()


def test_more_calls_than_rpcs_max_are_refused_at_once(start):
    server = start(rpc_threads=1, rpcs_max=2)
    with calls_of(server) as stub:
        with busy(server):
            first = stub.Rank.future(MESSAGE, timeout=60)
            wait_until(lambda: waiting(server) == 1)
            more = [stub.Rank.future(MESSAGE, timeout=60) for _ in range(3)]
            wait_until(lambda: sum(call.done() for call in more) == 2)
        assert len(first.result().candidate_ids) == 80
        codes = sorted(call.code().name for call in more)
    assert codes == ["OK", "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"]


def test_a_request_that_its_caller_gave_up_never_reaches_the_model(start, monkeypatch):
    server = start()
    seen, errors, rank = [], [], server.ranking.rank

    def spied(message, time_left_s, cancel):
        seen.append(cancel)
        try:
            return rank(message, time_left_s, cancel)
        except Exception as error:
            errors.append(error)
            raise

    monkeypatch.setattr(server.ranking, "rank", spied)
    with calls_of(server) as stub:
        with busy(server):
            call = stub.Rank.future(MESSAGE, timeout=60)
            wait_until(lambda: waiting(server) == 1)
            assert not seen[0].is_set
            call.cancel()
            wait_until(lambda: seen[0].is_set)
        wait_until(lambda: errors)
    assert "cancelled before stage gather" in str(errors[0])


def test_a_defect_is_internal_logged_and_the_next_request_is_served(server, client, monkeypatch, caplog):
    def broken(*_):
        raise ZeroDivisionError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr("lambda_svc.response.build", broken)
        with pytest.raises(EngineError, match="ZeroDivisionError: a defect"):
            client.call(MESSAGE, 5)
    assert "a request failed" in caplog.text and "ZeroDivisionError" in caplog.text
    assert len(client.call(MESSAGE, 5).candidate_ids) == 80


def test_a_full_queue_is_resource_exhausted_to_the_client(start, monkeypatch):
    server = start()
    monkeypatch.setattr(server.ranking._admissions["rank"], "_queue_max", 0)
    with busy(server), RankingClient(f"127.0.0.1:{server.port}") as client:
        with pytest.raises(ResourceExhausted, match="queue full"):
            client.call(MESSAGE, 60)
