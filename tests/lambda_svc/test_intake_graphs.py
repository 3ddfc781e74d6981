"""A package whose graph may not be served is refused when it is taken in, however it came into the repository."""

from __future__ import annotations

import logging
import random

import pytest

from lambda_svc import config as config_file
from lambda_svc import server as the_server
from lambda_svc.errors import PackageRejected
from lambda_svc.lifecycle import take_in
from lambda_svc.server import load_plans
from models.package import read_manifest
from tests.lambda_svc import world as the_world
from tests.lambda_svc.world import MODEL, World, config_text
from tests.models.graph_bytes import HOSTILE


@pytest.fixture
def repository(tmp_path):
    """A repository with version 1, and a config that serves the latest."""
    (tmp_path / "repository").mkdir()
    world = World()
    world.write_features(tmp_path)
    world.write_package(tmp_path / "repository")
    (tmp_path / "config.yaml").write_text(config_text(tmp_path))
    return tmp_path / "repository"


@pytest.fixture
def write(repository, monkeypatch):
    """A function that writes a version whose graph is what `change` makes of the good one's bytes."""
    honest = the_world.graph_def

    def write_version(version, change):
        monkeypatch.setattr(the_world, "graph_def", lambda *arguments: change(honest(*arguments)))
        path = World().write_package(repository, version)
        monkeypatch.setattr(the_world, "graph_def", honest)
        return path

    return write_version


@pytest.mark.parametrize("op", HOSTILE)
def test_a_hostile_op_keeps_the_package_out_and_is_named(repository, write, op):
    bad = write(2, lambda good: good + HOSTILE[op])
    for _ in range(2):  # the second time there is a copy of an earlier start
        with pytest.raises(PackageRejected, match=rf"^{bad}/graph/item\.pb: node .*\({op}\): ") as caught:
            take_in(bad, repository.parent / "run")
    assert ("of function 'deep'" in str(caught.value)) == (op == "PrintV2")


def test_a_server_says_why_and_serves_the_version_before(repository, write, caplog, capfd):
    bad = write(2, lambda good: good + HOSTILE["ReadFile"])
    caplog.set_level(logging.INFO)
    assert load_plans(config_file.load(repository.parent / "config.yaml"))["rank"].wire.version == 1
    assert f"2 is kept out, next try in 1 s: {bad}/graph/item.pb: node 'in' (ReadFile): not an op" in caplog.text
    (repository.parent / "config.yaml").write_text(config_text(repository.parent, version=2))
    assert the_server.main(repository.parent / "config.yaml") == 1
    assert f"cannot start: {bad}/graph/item.pb: node 'in' (ReadFile): not an op" in capfd.readouterr().err


def test_malformed_graphs_end_as_rejections(repository, write):
    whole = (repository / MODEL / "1" / "graph" / "item.pb").read_bytes()
    rng = random.Random(5)
    for version in range(2, 22):
        raw = bytearray(whole[:rng.randrange(len(whole))])
        raw += bytes([0x0A, 0x7F, rng.randrange(256)])  # a node that is longer than the file
        bad = write(version, lambda _, raw=raw: bytes(raw))
        with pytest.raises(PackageRejected, match=rf"^{bad}/graph/item\.pb: "):
            take_in(bad, repository.parent / "run")
    assert take_in(repository / MODEL / "1", repository.parent / "run")[1] == read_manifest(repository / MODEL / "1")
