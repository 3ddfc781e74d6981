"""A damaged package does not load and the message names the file; golden rows are really re-scored."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

from lambda_svc import config as config_file
from lambda_svc.errors import ConfigError, PackageRejected
from lambda_svc.lifecycle import take_in
from lambda_svc.server import load_plans
from models.package import read_manifest, verify
from tests.lambda_svc.world import MODEL, World, config_text

FILES = ["graph/item.pb", "tables/item.parquet", "tables/genre.parquet", "golden.arrow", "manifest.json"]


@pytest.fixture
def copy(world_dir, tmp_path):
    """A private copy of the world, config included."""
    for name in ("repository", "users.parquet", "items.parquet"):
        source = world_dir / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    (tmp_path / "config.yaml").write_text(config_text(tmp_path))
    return tmp_path


def flip(path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("where", [0.0, 0.5, 0.999])
@pytest.mark.parametrize("name", FILES)
def test_one_flipped_byte_keeps_the_package_out_and_is_named(copy, name, where):
    damaged = copy / "repository" / MODEL / "1" / name
    flip(damaged, int(where * damaged.stat().st_size))
    with pytest.raises((ConfigError, PackageRejected), match=name.replace(".", r"\.")):
        load_plans(config_file.load(copy / "config.yaml"))


def test_what_serves_is_a_copy(copy):
    folder, manifest = take_in(copy / "repository" / MODEL / "1", copy / "run")
    assert folder.is_relative_to(copy / "run") and manifest == read_manifest(folder)
    shutil.rmtree(copy / "repository" / MODEL / "1")
    assert (folder / "graph/item.pb").is_file()


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_copy_of_an_earlier_start_is_copied_again(copy, name, caplog):
    package = copy / "repository" / MODEL / "1"
    folder, manifest = take_in(package, copy / "run")
    flip(folder / name, 10)
    assert take_in(package, copy / "run") == (folder, manifest)
    assert verify(folder) == manifest
    assert name == "manifest.json" or str(folder / name) in caplog.text


def test_a_whole_copy_serves_when_the_repository_is_damaged_and_names_the_file(copy, caplog):
    package = copy / "repository" / MODEL / "1"
    folder, manifest = take_in(package, copy / "run")
    assert not caplog.records
    flip(package / "graph/item.pb", 10)
    assert take_in(package, copy / "run") == (folder, manifest)
    [record] = caplog.records
    assert record.levelname == "WARNING" and str(package / "graph/item.pb") in record.getMessage()
    assert "push it again" in record.getMessage()


def test_when_both_are_damaged_the_file_in_the_repository_is_named(copy):
    package = copy / "repository" / MODEL / "1"
    folder, _ = take_in(package, copy / "run")
    flip(folder / "golden.arrow", 10)
    flip(package / "graph/item.pb", 10)
    with pytest.raises(PackageRejected, match=f"^{package}/graph/item.pb: damaged: .*; push it again$"):
        take_in(package, copy / "run")


def test_another_package_of_the_same_version_replaces_the_copy(copy):
    package = copy / "repository" / MODEL / "1"
    take_in(package, copy / "run")
    shutil.rmtree(package)
    World(seed=8).write_package(copy / "repository")
    folder, manifest = take_in(package, copy / "run")
    assert manifest == read_manifest(package) == read_manifest(folder)


def test_golden_scores_that_the_plan_does_not_give_keep_the_version_out(copy, monkeypatch):
    world = World()
    honest = world.score
    monkeypatch.setattr(world, "score", lambda *a: {head: s + 2e-5 for head, s in honest(*a).items()})
    shutil.rmtree(copy / "repository" / MODEL)
    world.write_package(copy / "repository")
    with pytest.raises(PackageRejected, match=r"golden\.arrow: head 'liked' differs"):
        load_plans(config_file.load(copy / "config.yaml"))


def test_golden_rows_that_are_not_there_are_not_passed_over(copy):
    class Forgetful(World):
        def _write_golden(self, path) -> None:
            super()._write_golden(path)
            with pa.memory_map(str(path)) as source:
                table = pa.ipc.open_file(source).read_all().slice(0, 0).combine_chunks()
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)

    shutil.rmtree(copy / "repository" / MODEL)
    Forgetful().write_package(copy / "repository")
    with pytest.raises(PackageRejected, match=r"golden\.arrow: has 0 rows, the manifest says 40"):
        load_plans(config_file.load(copy / "config.yaml"))


def test_the_latest_whole_version_is_served(copy):
    World().write_package(copy / "repository", version=3)
    World().write_package(copy / "repository", version=10)
    (copy / "repository" / MODEL / "11").mkdir()
    plans = load_plans(config_file.load(copy / "config.yaml"))
    assert plans["rank"].wire.version == 10


def write_arrow(path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


GOLDEN_FAULTS = {
    "no Arrow file": lambda path, table: path.write_bytes(b"golden"),
    "no scores": lambda path, table: write_arrow(path, table.drop_columns("score:liked")),
    "scores that are words": lambda path, table: write_arrow(
        path, table.drop_columns("score:liked").append_column("score:liked", pa.array(["high"] * len(table)))
    ),
    "no groups": lambda path, table: write_arrow(path, table.drop_columns("group")),
    "a feature of another type": lambda path, table: write_arrow(
        path, table.drop_columns("user:age").append_column("user:age", pa.array([b"old"] * len(table)))
    ),
}


@pytest.mark.parametrize("fault", GOLDEN_FAULTS)
def test_golden_rows_that_cannot_be_replayed_keep_the_version_out(copy, monkeypatch, fault):
    world = World()
    honest = world._write_golden

    def write_faulty(path) -> None:
        honest(path)
        with pa.OSFile(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        GOLDEN_FAULTS[fault](path, table)

    monkeypatch.setattr(world, "_write_golden", write_faulty)
    shutil.rmtree(copy / "repository" / MODEL)
    world.write_package(copy / "repository")
    with pytest.raises(PackageRejected, match=r"golden\.arrow: golden rows cannot be replayed"):
        load_plans(config_file.load(copy / "config.yaml"))
