"""A server under observation, of its own for each test, with what it tells read over HTTP."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lambda_svc import config as config_file
from lambda_svc.client import RankingClient
from lambda_svc.lifecycle import Keeper
from lambda_svc.observe import Observation
from lambda_svc.rollout import Rollouts
from lambda_svc.server import RankingServer
from tests.lambda_svc.world import config_text


@dataclass
class Observed:
    """What a test may look at and use."""

    home: Path
    keeper: Keeper
    observation: Observation
    server: RankingServer
    client: RankingClient
    rollouts: Rollouts | None

    def get(self, path: str) -> tuple[int, str]:
        """(status, body) of a page."""
        try:
            with urlopen(f"http://127.0.0.1:{self.observation.port}{path}", timeout=20) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def status(self) -> dict:
        """/status.json."""
        return json.loads(self.get("/status.json")[1])

    def metric(self, name: str, **labels: str) -> float:
        """The sum of all samples that have these labels."""
        found = [sample.value for family in text_string_to_metric_families(self.get("/metrics")[1])
                 for sample in family.samples if sample.name == name and labels.items() <= sample.labels.items()]
        assert found, f"no sample of {name} has {labels}"
        return sum(found)


def home_of(world_dir: Path, folder: Path) -> Path:
    """A copy of the world in `folder`, without a configuration."""
    for name in ("users.parquet", "items.parquet"):
        shutil.copy(world_dir / name, folder / name)
    shutil.copytree(world_dir / "repository", folder / "repository")
    return folder


def write_config(home: Path, server: str = "", extra: str = "", **scenario) -> Path:
    """A configuration with HTTP on a free port; `server` goes into its section, `extra` behind everything."""
    text = config_text(home, **scenario).replace("rpc_threads: 8", f"http: '127.0.0.1:0', rpc_threads: 8{server}")
    path = home / "config.yaml"
    path.write_text(f"{text}{extra}")
    return path


@pytest.fixture
def observe(world_dir, tmp_path, request):
    """A function from settings (see write_config) to a server under observation that runs until the test ends."""
    home_of(world_dir, tmp_path)

    def start(rollouts: bool = False, **settings) -> Observed:
        config = config_file.load(write_config(tmp_path, **settings))
        followed = Rollouts(config) if rollouts else None
        keeper = Keeper(config, followed)
        observation = Observation(config, keeper, followed)
        request.addfinalizer(observation.stop)
        server = RankingServer(config, keeper.load(), followed, observation.observer)
        server.start()
        request.addfinalizer(server.stop)
        client = RankingClient(f"127.0.0.1:{server.port}")
        request.addfinalizer(client.close)
        client.wait_ready(10)
        return Observed(tmp_path, keeper, observation, server, client, followed)

    return start
