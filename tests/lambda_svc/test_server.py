"""The server as a process: health, reflection, no tensorflow package, SIGTERM drains and exits 0."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import threading

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from lambda_svc.client import RankingClient
from lambda_svc.errors import Unavailable
from lambda_svc.proto import ranking_pb2 as pb
from tests.lambda_svc.live_worlds import until
from tests.lambda_svc.world import config_text

SERVE = """
import sys, threading
from lambda_svc.server import main
code = main(sys.argv[1])
print("tensorflow imported" if "tensorflow" in sys.modules else "tensorflow not imported")
sys.exit(code)
"""


class Served:
    """`lambda-svc serve` in a process of its own, on a free port."""

    def __init__(self, config) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(config)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.log: list[str] = []
        for line in self.process.stderr:
            self.log.append(line)
            ready = re.search(r"ready on 127\.0\.0\.1:(\d+)", line)
            if ready:
                self.target = f"127.0.0.1:{ready[1]}"
                break
        else:
            self.process.wait(30)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=30)

    def finish(self) -> tuple[int, str]:
        out, err = self.process.communicate(timeout=60)
        self.log.append(err)
        return self.process.returncode, out


def private_world(world_dir, folder):
    """A copy of the world that a test may damage; returns its config file."""
    shutil.copytree(world_dir / "repository", folder / "repository")
    for name in ("users.parquet", "items.parquet"):
        shutil.copy(world_dir / name, folder / name)
    (folder / "config.yaml").write_text(config_text(folder))
    return folder / "config.yaml"


def repeat_rows(folder) -> None:
    table = pq.read_table(folder / "items.parquet")
    pq.write_table(pa.concat_tables([table, table]), folder / "items.parquet")


def swap_features(folder) -> None:
    (folder / "users.parquet").rename(folder / "kept.parquet")
    (folder / "items.parquet").rename(folder / "users.parquet")
    (folder / "kept.parquet").rename(folder / "items.parquet")


def block_work_dir(folder) -> None:
    (folder / "run").write_text("a file where a folder is wanted")


@pytest.mark.parametrize(("spoil", "expected"), [
    (repeat_rows, "cannot start: item_features.path: {}/items.parquet: "),
    (swap_features, "item_features.path: {}/items.parquet lacks"),
    (block_work_dir, "cannot start: {}/repository/tiny/1: cannot be copied to {}/run"),
])
def test_what_keeps_a_server_from_starting_is_told_without_a_traceback(world_dir, tmp_path, spoil, expected):
    config = private_world(world_dir, tmp_path)
    spoil(tmp_path)
    with Served(config) as served:
        assert served.process.returncode == 1
        log = "".join(served.log)
        assert expected.replace("{}", str(tmp_path)) in log and "Traceback" not in log, log


def test_health_and_reflection(server):
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", "lambda_svc.v1.Ranking"):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        ask = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        [listed] = ask(iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=5)
        assert "lambda_svc.v1.Ranking" in {service.name for service in listed.list_services_response.service}
        wanted = reflection_pb2.ServerReflectionRequest(file_containing_symbol="lambda_svc.v1.Ranking")
        [described] = ask(iter([wanted]), timeout=5)
        raw = described.file_descriptor_response.file_descriptor_proto[0]
        methods = descriptor_pb2.FileDescriptorProto.FromString(raw).service[0].method
        assert "Rank" in {method.name for method in methods}


def test_sigterm_turns_readiness_off_drains_and_exits_0(world_dir, world):
    ids = np.resize(np.array(list(world.items)), 1000)
    with Served(world_dir / "config.yaml") as served:
        answered, refused, failed, stop = [], [], [], threading.Event()

        def ask() -> None:
            with RankingClient(served.target) as client:
                while not stop.is_set():
                    try:
                        answered.append(len(client.rank("rank", 1, ids, timeout_s=20).candidate_ids))
                    except Unavailable:
                        refused.append(1)
                        return
                    except Exception as error:
                        failed.append(error)
                        return

        threads = [threading.Thread(target=ask) for _ in range(4)]
        with grpc.insecure_channel(served.target) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
            [thread.start() for thread in threads]
            until(lambda: len(answered) >= 20 or failed or served.process.poll() is not None)
            served.process.send_signal(signal.SIGTERM)
            assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        [thread.join(60) for thread in threads]
        code, out = served.finish()
    stop.set()
    assert code == 0, served.log
    assert re.search(r"golden within liked \d\.\de-\d\d, engaged \d", "".join(served.log)), served.log
    assert not failed and set(answered) == {1000} and len(refused) == 4
    assert out.strip() == "tensorflow not imported"


def test_a_bad_config_ends_in_one_clear_line_and_exit_1(world_dir):
    path = world_dir / "bad.yaml"
    path.write_text("repository: nowhere\nscenarios: {rank: {model: tiny, formula: liked}}\n")
    with Served(path) as served:
        code, _ = served.finish()
    assert code == 1 and "repository: no such folder" in "".join(served.log)
    assert "Traceback" not in "".join(served.log)


def test_an_address_in_use_says_so(world_dir, server):
    path = world_dir / "taken.yaml"
    text = (world_dir / "config.yaml").read_text().replace("127.0.0.1:0", f"127.0.0.1:{server.port}")
    path.write_text(text)
    with Served(path) as served:
        code, _ = served.finish()
    assert code == 1 and "cannot listen" in "".join(served.log)


def test_sixty_four_clients_at_once(server, world):
    errors, barrier = [], threading.Barrier(64)

    def ask(number: int) -> None:
        rng = np.random.default_rng(number)
        known = np.array(list(world.items))
        with RankingClient(f"127.0.0.1:{server.port}") as client:
            barrier.wait(30)
            for _ in range(5):
                ids = rng.choice(known, rng.integers(1, 300))
                answer = client.rank("rank", number % 20, ids, timeout_s=60)
                first = answer.heads["liked"][np.argsort(answer.positions)][:10]
                expected = world.score_ids(number % 20, ids[:10])["liked"]
                if not np.allclose(first, expected, atol=1e-6) or answer.message.bytes_copied:
                    errors.append(answer)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(64)]
    [thread.start() for thread in threads]
    [thread.join(120) for thread in threads]
    assert not errors


@pytest.mark.parametrize("bid", [0.0, 2.0])
def test_formula_inputs_travel_with_the_request(world_dir, world, bid):
    from lambda_svc import config as config_file
    from lambda_svc.server import RankingServer, load_plans
    from tests.lambda_svc.world import config_text

    path = world_dir / "bids.yaml"
    path.write_text(config_text(world_dir, formula='"liked * log(1 + bid)"', formula_inputs="[bid]"))
    config = config_file.load(path)
    ids = list(world.items)[:70]
    with RankingServer(config, load_plans(config)) as running, RankingClient(f"127.0.0.1:{running.port}") as client:
        answer = client.rank("rank", 2, ids, formula_inputs={"bid": np.full(70, bid, np.float32)})
        liked = answer.heads["liked"].astype(np.float64)
        np.testing.assert_allclose(answer.rank_scores, liked * np.log(1 + bid), atol=1e-12)
        message = pb.RankRequest(scenario="rank", candidate_ids=bytes(16))
        with pytest.raises(Exception, match=r"formula_inputs\[bid\]"):
            client.call(message, 5)
