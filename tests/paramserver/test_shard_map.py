"""Shards of ids: the same in Python and C++, on every pattern of bits; and maps that say where they go wrong."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paramserver import _core
from paramserver.errors import IdError, ShardMapError
from paramserver.shard_map import SHARDS_MAX, ShardMap, mix, shard_of

IDS = st.one_of(st.integers(-3, 3), st.sampled_from([-(2**63), 2**63 - 1, 2**32]), st.integers(-(2**63), 2**63 - 1))
GOOD = {"version": 3, "shards": [{"replicas": ["grpc://a:1", "grpc+tls://b:2"]}, {"replicas": ["grpc://[::1]:3"]}]}


@given(ids=st.lists(IDS, max_size=50), shards=st.integers(1, SHARDS_MAX))
def test_python_and_the_core_agree(ids, shards):
    array = np.array(ids, np.int64)
    assert mix(array).tolist() == [_core.mix(i) for i in ids]
    assert shard_of(array, shards).tolist() == [_core.shard_of(i, shards) for i in ids]
    assert shard_of(array.view(np.uint64), shards).tolist() == shard_of(array, shards).tolist()


def test_the_function_is_fixed_and_even():
    assert shard_of([-1, 0, 1, -(2**63), 2**63 - 1], 7).tolist() == [6, 0, 0, 3, 3]
    for ids in (np.arange(100_000), np.arange(-50_000, 50_000) * 4096):
        counts = np.bincount(shard_of(ids, 10), minlength=10)
        assert counts.min() > 9_500 and counts.max() < 10_500
    # The ids of one shard must still spread over the high bits, which place them in its index.
    high = mix(np.arange(100_000)[shard_of(np.arange(100_000), 4) == 2]) >> np.uint64(60)
    assert np.bincount(high.astype(int), minlength=16).min() > 1_400


def test_float_ids_and_impossible_counts_are_refused():
    with pytest.raises(IdError):
        shard_of(np.array([1.0]), 3)
    for shards in (0, -1, SHARDS_MAX + 1, 2.0, True):
        with pytest.raises(ShardMapError, match="shards is"):
            shard_of(np.array([1]), shards)


def test_a_map_comes_back_from_its_file(tmp_path):
    (tmp_path / "shards.json").write_text(json.dumps(GOOD))
    read = ShardMap.read(tmp_path)
    assert read == ShardMap.read(tmp_path / "shards.json") == ShardMap.of(json.loads(read.json()))
    assert read == ShardMap(3, (("grpc://a:1", "grpc+tls://b:2"), ("grpc://[::1]:3",)))


@pytest.mark.parametrize(("edit", "says"), [
    (lambda m: m.pop("version"), "expected the fields"),
    (lambda m: m.update(extra=1), "expected the fields"),
    (lambda m: m.update(version=True), "version is True"),
    (lambda m: m.update(version=-1), "version is -1"),
    (lambda m: m.update(version="3"), "version is '3'"),
    (lambda m: m.update(shards=[]), "shards has 0 entries"),
    (lambda m: m.update(shards={}), "shards is {}"),
    (lambda m: m["shards"][1].update(replicas=[]), r"shards\[1\].replicas has 0"),
    (lambda m: m["shards"][1].update(replicas="grpc://a:1"), r"shards\[1\].replicas is"),
    (lambda m: m["shards"][1].update(replicas=[7]), r"shards\[1\].replicas\[0\] is 7"),
    (lambda m: m["shards"][1].update(replicas=["http://a:1"]), "expected an address"),
    (lambda m: m["shards"][1].update(replicas=["grpc://a:1"]), r"is shards\[0\].replicas\[0\] already"),
    (lambda m: m["shards"].append("x"), r"shards\[2\] has 'x'"),
])
def test_a_wrong_map_names_its_field_and_its_file(tmp_path, edit, says):
    value = json.loads(json.dumps(GOOD))
    edit(value)
    (tmp_path / "shards.json").write_text(json.dumps(value))
    with pytest.raises(ShardMapError, match=says) as raised:
        ShardMap.read(tmp_path)
    assert "shards.json" in str(raised.value)


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"null", b"NaN"])
def test_what_is_no_json_is_a_map_error(tmp_path, raw):
    (tmp_path / "shards.json").write_bytes(raw)
    with pytest.raises(ShardMapError, match=r"shards\.json"):
        ShardMap.read(tmp_path)


def test_no_file_is_a_map_error(tmp_path):
    with pytest.raises(ShardMapError, match="No such file"):
        ShardMap.read(tmp_path / "shards.json")
