"""Deltas: what they may hold, their Arrow form, their parts by shard; foreign bytes give typed errors only."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paramserver.delta import Delta, arrow_of, delta_of, read_delta, read_place, write_delta
from paramserver.errors import ArrayError, ChecksumError, DeltaError, IdError
from paramserver.shard_map import shard_of

IDS = st.one_of(st.integers(-9, 9), st.sampled_from([-(2**63), 2**63 - 1]), st.integers(-(2**63), 2**63 - 1))


def delta(ids=(1, -2), deletes=(7,), dim=3, seed=0, **fields):
    rows = np.random.default_rng(seed).normal(size=(len(ids), dim)).astype(np.float32)
    values = {"table": "item", "base_version": 4, "sequence": 2, "time_s": 1_700_000_000, "rows": rows, **fields}
    return Delta(ids=np.array(ids, np.int64), deletes=np.array(deletes, np.int64), **values)


def content(d):
    return (d.table, d.base_version, d.sequence, d.time_s, d.ids.tolist(), d.rows.tolist(), d.deletes.tolist(), d.dim)


def streamed(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@settings(deadline=None)
@given(ids=st.lists(IDS, unique=True, max_size=30), cut=st.integers(0, 30), dim=st.integers(1, 9))
def test_a_delta_comes_back_as_it_was(tmp_path_factory, ids, cut, dim):
    path = tmp_path_factory.mktemp("delta") / "d.arrow"
    d = delta(ids[:cut], ids[cut:], dim)
    write_delta(path, d)
    for again in (read_delta(path), read_delta(path.read_bytes()), read_delta(streamed(arrow_of(d)))):
        assert content(again) == content(d) and again.checksum == d.checksum
    assert [p.name for p in path.parent.iterdir()] == ["d.arrow"]


def test_the_file_is_as_the_contract_says():
    d = delta()
    table = arrow_of(d)
    assert table.schema.field("id").type == pa.int64()
    assert table.schema.field("row").type == pa.list_(pa.float32(), 3)
    assert table.column("row").to_pylist()[2] is None and table.column("id").to_pylist() == [1, -2, 7]
    assert table.schema.metadata == {
        b"lambda_svc.table": b"item", b"lambda_svc.base_version": b"4", b"lambda_svc.sequence": b"2",
        b"lambda_svc.time_s": b"1700000000", b"lambda_svc.checksum": d.checksum.encode()}
    # Other writers compute it too, so it may never change.
    fixed = Delta("t", 1, 2, np.array([1]), np.float32([[0.5, -1]]), np.array([9]), 3)
    assert fixed.checksum == "5b0a90528f7477216bdd3539281da5c6"


def test_deletes_may_lie_between_rows_in_halves_and_in_batches():
    d = delta(ids=(1, 3), deletes=(2, 4), rows=np.float32([[0.5, 1], [2, 3]]))
    row_type = pa.list_(pa.float16(), 2)
    rows = pa.array([[0.5, 1], None, [2, 3], None], row_type)
    table = pa.table({"id": pa.array([1, 2, 3, 4]), "row": rows}).replace_schema_metadata(arrow_of(d).schema.metadata)
    assert content(delta_of(table)) == content(d)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)
    assert content(read_delta(sink.getvalue().to_pybytes())) == content(d)


@settings(deadline=None)
@given(ids=st.lists(IDS, unique=True, max_size=60), cut=st.integers(0, 60), shards=st.integers(1, 9))
def test_the_parts_are_the_whole(ids, cut, shards):
    d = delta(ids[:cut], ids[cut:])
    parts = d.split(shards)
    assert [part.sequence for part in parts] == [2] * shards
    for shard, part in enumerate(parts):
        assert set(shard_of(part.ids, shards)) <= {shard} and set(shard_of(part.deletes, shards)) <= {shard}
        assert part.dim == d.dim
    rows = {i: row.tolist() for part in parts for i, row in zip(part.ids.tolist(), part.rows, strict=True)}
    assert rows == {i: row.tolist() for i, row in zip(d.ids.tolist(), d.rows, strict=True)}
    assert sorted(i for part in parts for i in part.deletes.tolist()) == sorted(d.deletes.tolist())


@pytest.mark.parametrize("change", [
    {"table": "user"}, {"base_version": 5}, {"sequence": 3}, {"time_s": 0}, {"ids": (1, -3)}, {"ids": (-2, 1)},
    {"deletes": ()}, {"deletes": (8,)}, {"seed": 1}, {"ids": (1,), "deletes": (-2, 7)},
])
def test_every_field_is_in_the_checksum(change):
    assert delta().checksum == delta().checksum != delta(**change).checksum


@pytest.mark.parametrize(("error", "says", "fields"), [
    (DeltaError, "id 1 is there twice", {"ids": (1, 2, 1)}),
    (DeltaError, "id 7 is there twice", {"deletes": (7, 7)}),
    (DeltaError, "id 1 is both written and deleted", {"deletes": (7, 1)}),
    (DeltaError, "the row of id -2 holds NaN", {"rows": np.float32([[1, 2], [np.nan, 0]])}),
    (DeltaError, "holds NaN or infinity", {"rows": np.float32([[1, np.inf], [0, 0]])}),
    (ArrayError, "expected .2, 3.", {"rows": np.zeros((3, 3), np.float32)}),
    (ArrayError, "float64", {"rows": np.zeros((2, 3))}),
    (DeltaError, "expected .n, dim.", {"rows": np.zeros(2, np.float32)}),
    (DeltaError, "dim 1 to", {"rows": np.zeros((2, 0), np.float32)}),
    (DeltaError, "dim 1 to", {"rows": np.zeros((2, 5000), np.float32)}),
    (DeltaError, "sequence is 0", {"sequence": 0}),
    (DeltaError, "sequence is 9223372036854775808", {"sequence": 2**63}),
    (DeltaError, "sequence is True", {"sequence": True}),
    (DeltaError, "sequence is 1.0", {"sequence": 1.0}),
    (DeltaError, "base_version is -1", {"base_version": -1}),
    (DeltaError, "time_s is 4294967296", {"time_s": 2**32}),
    (DeltaError, "table is ''", {"table": ""}),
    (DeltaError, "table is '../etc'", {"table": "../etc"}),
    (DeltaError, "table is None", {"table": None}),
])
def test_what_a_delta_may_not_hold(error, says, fields):
    with pytest.raises(error, match=says):
        delta(**fields)


def test_float_ids_are_refused():
    with pytest.raises(IdError):
        Delta("t", 1, 1, np.array([1.0]), np.zeros((1, 2), np.float32), np.array([], np.int64))


def edited(columns=None, metadata=None, drop=()):
    table = arrow_of(delta(ids=(1, 3), deletes=(2,)))
    said = {k: v for k, v in table.schema.metadata.items() if k not in drop} | (metadata or {})
    columns = {name: table.column(name) for name in table.column_names} | (columns or {})
    return pa.table(columns).replace_schema_metadata(said)


@pytest.mark.parametrize(("error", "says", "change"), [
    (DeltaError, "column 'id' is double", {"columns": {"id": pa.array([1.0, 2.0, 3.0])}}),
    (DeltaError, "column 'id' is int32", {"columns": {"id": pa.array([1, 2, 3], pa.int32())}}),
    (DeltaError, "column 'id' holds a null", {"columns": {"id": pa.array([1, None, 3])}}),
    (DeltaError, "column 'row' is list", {"columns": {"row": pa.array([[1.0]] * 3)}}),
    (DeltaError, "null element", {"columns": {"row": pa.array([[1, None, 3]] * 3, pa.list_(pa.float32(), 3))}}),
    (DeltaError, "0 elements a row", {"columns": {"row": pa.array([[]] * 3, pa.list_(pa.float32(), 0))}}),
    (DeltaError, "columns are", {"columns": {"more": pa.array([1, 2, 3])}}),
    (DeltaError, "lacks lambda_svc.checksum", {"drop": [b"lambda_svc.checksum"]}),
    (DeltaError, "lacks lambda_svc.table", {"drop": [b"lambda_svc.table"]}),
    (DeltaError, "lambda_svc.sequence is '-1'", {"metadata": {b"lambda_svc.sequence": b"-1"}}),
    (DeltaError, "lambda_svc.sequence is '1e3'", {"metadata": {b"lambda_svc.sequence": b"1e3"}}),
    (DeltaError, "lambda_svc.sequence is '999", {"metadata": {b"lambda_svc.sequence": b"9" * 5000}}),
    (DeltaError, "sequence is 9223372036854775808", {"metadata": {b"lambda_svc.sequence": b"9223372036854775808"}}),
    (DeltaError, "table is", {"metadata": {b"lambda_svc.table": b"\xff\xfe"}}),
    (ChecksumError, "checksum", {"metadata": {b"lambda_svc.checksum": b"00"}}),
    (ChecksumError, "checksum", {"metadata": {b"lambda_svc.time_s": b"1"}}),
])
def test_arrow_that_is_no_delta_says_which_field(error, says, change):
    with pytest.raises(error, match=says) as raised:
        read_delta(streamed(edited(**change)))
    assert "the delta's bytes" in str(raised.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DeltaError, match=r"d\.arrow"):
        read_delta(tmp_path / "d.arrow")


@pytest.mark.parametrize("form", ["file", "stream"])
def test_damaged_bytes_give_only_typed_errors(tmp_path, form):
    d = delta(ids=tuple(range(40)), deletes=(50, 51))
    write_delta(tmp_path / "d.arrow", d)
    good = (tmp_path / "d.arrow").read_bytes() if form == "file" else streamed(arrow_of(d))
    rng, outcomes = random.Random(5), set()
    for cut in range(0, len(good), 7):
        outcomes.add(outcome(good[:cut], d))
    for _ in range(1500):
        raw = bytearray(good)
        for _ in range(rng.randint(1, 5)):
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        outcomes.add(outcome(bytes(raw), d))
    # A flipped bit of padding is harmless.
    assert outcomes == {DeltaError, ChecksumError, Delta}


def outcome(raw, original):
    try:
        read = read_delta(raw)
    except DeltaError as error:
        return type(error)
    assert content(read) == content(original)
    return Delta


@given(raw=st.binary(max_size=300), magic=st.sampled_from([b"", b"ARROW1\0\0", b"\xff\xff\xff\xff"]))
def test_any_bytes_give_only_typed_errors(raw, magic):
    with pytest.raises(DeltaError):
        read_delta(magic + raw)


@pytest.mark.parametrize("cut", [*range(0, 64, 7), 300])
def test_where_a_delta_belongs_is_read_without_its_rows(tmp_path, cut):
    path = tmp_path / "a.arrow"
    write_delta(path, Delta("item", 4, 7, np.arange(9), np.zeros((9, 2), np.float32), np.array([-1])))
    assert read_place(path) == ("item", 4, 7)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DeltaError, match="a.arrow: no Arrow IPC file or stream, or a damaged one"):
        read_place(path)
