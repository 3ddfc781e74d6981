"""Resharding: every row on its new shard, byte for byte, nothing published unless all is right."""

import shutil

import numpy as np
import pytest
from paramserver import Table, snapshot
from paramserver.convert import shard_folder
from paramserver.errors import OptionError, StoreDamaged, StoreError, TableSchemaError
from paramserver.reshard import reshard
from paramserver.shard_map import shard_of
from paramserver.snapshot import write_snapshot

from tests.paramserver.snapshot_bytes import layout_of, sealed

TABLES = {"item": ("f16", 5), "user": ("int8", 3)}


def write_shards(folder, shards, rows=400, **header):
    """Snapshots of two tables over `shards` shards; returns the shards' folders."""
    rng = np.random.default_rng(1)
    for name, (dtype, dim) in TABLES.items():
        ids = rng.integers(-(2**63), 2**63 - 1, rows)
        values = rng.normal(size=(rows, dim)).astype(np.float32)
        for shard in range(shards):
            mine = shard_of(ids, shards) == shard
            table = Table(name, dim, dtype=dtype, default_row=np.arange(dim) / 7)
            table.upsert(ids[mine], values[mine])
            shard_folder(folder, shard).mkdir(parents=True, exist_ok=True)
            write_snapshot(shard_folder(folder, shard) / f"{name}.snap", table,
                           **{"base_sequence": 4, "package_version": 2, "time_s": shard, **header})
    return [shard_folder(folder, shard) for shard in range(shards)]


def content(folders):
    return {path.relative_to(folders[0].parent).as_posix(): path.read_bytes()
            for folder in folders for path in folder.iterdir()}


@pytest.mark.parametrize("before, after", [(1, 3), (3, 1), (2, 5), (3, 3)])
def test_the_new_shards_are_those_that_would_have_been_written(tmp_path, monkeypatch, before, after):
    monkeypatch.setattr(snapshot, "BATCH_BYTES", 4 * 5 * 40)
    sources = write_shards(tmp_path / "old", before)
    seen = []
    made = reshard(sources, tmp_path / "new", after, progress=lambda done, rows: seen.append((done, rows)))
    assert (made.destination, made.shards, made.rows) == (tmp_path / "new", after, {"item": 400, "user": 400})
    folders = [shard_folder(tmp_path / "new", shard) for shard in range(after)]
    expected = content(write_shards(tmp_path / "expected", after, time_s=before - 1))
    assert content(folders) == expected
    assert seen == sorted(seen) and seen[-1] == (800, 800)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["expected", "new", "old"]
    again = reshard(folders, tmp_path / "again", before)
    assert again.fingerprints == made.fingerprints


def refused(tmp_path, sources, error, message, shards=2):
    with pytest.raises(error, match=message):
        reshard(sources, tmp_path / "new", shards)
    assert not (tmp_path / "new").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_states_that_do_not_belong_together_are_refused(tmp_path):
    sources = write_shards(tmp_path / "old", 2)
    other = write_shards(tmp_path / "other", 2, base_sequence=5)
    refused(tmp_path, [sources[0], other[1]], TableSchemaError, "base_sequence is 5, expected 4")
    other = write_shards(tmp_path / "other", 2, package_version=3)
    refused(tmp_path, [sources[0], other[1]], TableSchemaError, "package_version is 3, expected 2")
    write_snapshot(sources[1] / "item.snap", Table("t", 5, dtype="f16"), base_sequence=4, package_version=2)
    refused(tmp_path, sources, TableSchemaError, "the default row is not that of")
    (sources[1] / "item.snap").unlink()
    refused(tmp_path, sources, TableSchemaError, "has user.snap, expected item.snap, user.snap")


def test_shards_in_the_wrong_place_are_refused(tmp_path):
    sources = write_shards(tmp_path / "old", 3)
    refused(tmp_path, sources[:2], StoreDamaged, "belongs to shard . of 2, not to .: give the folders of all shards")
    refused(tmp_path, sources[::-1], StoreDamaged, "give the folders of all shards, in their order")


def test_damaged_sources_are_refused(tmp_path):
    sources = write_shards(tmp_path / "old", 2)
    path = sources[1] / "item.snap"
    raw = bytearray(path.read_bytes())
    raw[layout_of(raw).sections["slots"][0]] ^= 1
    path.write_bytes(raw)
    refused(tmp_path, sources, StoreDamaged, "item.snap: section slots")
    path.write_bytes(sealed(bytes(raw)))
    reshard(sources, tmp_path / "new", 2)
    shutil.rmtree(tmp_path / "new")


def test_rows_that_do_not_come_back_leave_nothing(tmp_path, monkeypatch):
    sources = write_shards(tmp_path / "old", 2)

    monkeypatch.setattr("paramserver.reshard._read_back", lambda paths, told: (400, 1))
    refused(tmp_path, sources, StoreDamaged, r"table item has \(rows, fingerprint\) \(400, 1\), expected \(400, ")


def test_options_and_places(tmp_path):
    sources = write_shards(tmp_path / "old", 1)
    for shards, some in ((0, sources), (5000, sources), (1, [])):
        refused(tmp_path, some, OptionError, "one source at least and 1 to 4096 shards", shards)
    with pytest.raises(StoreError, match="is there already"):
        reshard(sources, tmp_path / "old", 2)
    (tmp_path / "empty").mkdir()
    refused(tmp_path, [tmp_path / "empty"], TableSchemaError, "no NAME.snap there")
    with pytest.raises(StoreError, match="nowhere"):
        reshard(sources, tmp_path / "old" / "shard-00000" / "item.snap" / "nowhere", 2)
