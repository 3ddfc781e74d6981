"""A served world: built once per session, one server in this process for the tests that only ask."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lambda_svc import config as config_file
from lambda_svc.client import RankingClient
from lambda_svc.server import RankingServer, load_plans
from tests.lambda_svc.world import World, config_text


@pytest.fixture(scope="session")
def world() -> World:
    """The small world's contents."""
    return World()


@pytest.fixture(scope="session")
def world_dir(world: World, tmp_path_factory) -> Path:
    """Its files: features, a repository with version 1, config.yaml."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "repository").mkdir()
    world.write_features(folder)
    world.write_package(folder / "repository")
    (folder / "config.yaml").write_text(config_text(folder))
    return folder


@pytest.fixture(scope="session")
def server(world_dir: Path):
    """A running server over `world_dir`; tests must leave it as they found it."""
    config = config_file.load(world_dir / "config.yaml")
    with RankingServer(config, load_plans(config)) as running:
        yield running


@pytest.fixture(scope="session")
def client(server: RankingServer):
    """A client of `server`."""
    with RankingClient(f"127.0.0.1:{server.port}") as connected:
        connected.wait_ready(10)
        yield connected


@pytest.fixture
def home(world_dir, tmp_path) -> Path:
    """A world's folder with version 1 in its repository."""
    for name in ("users.parquet", "items.parquet"):
        shutil.copy(world_dir / name, tmp_path / name)
    shutil.copytree(world_dir / "repository", tmp_path / "repository")
    return tmp_path
