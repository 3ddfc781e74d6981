"""Parquet into snapshots and back: files of other writers, many files, spilling, shards, every bad file by name."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from paramserver import Table
from paramserver.convert import convert_parquet, export_parquet
from paramserver.errors import (
    ArrayError,
    DuplicateIdError,
    OptionError,
    StoreDamaged,
    TableFileError,
    TableNullError,
    TableSchemaError,
    TableValueError,
)
from paramserver.quantize import error_of
from paramserver.shard_map import shard_of
from paramserver.snapshot import Snapshot, load_table, write_snapshot

RNG = np.random.default_rng(4)
IDS = np.unique(RNG.integers(-(2**63), 2**63 - 1, 5000))
RNG.shuffle(IDS)
ROWS = RNG.normal(size=(len(IDS), 6)).astype(np.float32)


def write(path, ids=IDS, rows=ROWS, row_type=None, metadata=None, names=("id", "row"), **options):
    if not isinstance(rows, pa.Array):
        rows = pa.array(list(rows), row_type or pa.list_(pa.float32(), len(rows[0])))
    ids = ids if isinstance(ids, pa.Array) else pa.array(ids, pa.int64())
    pq.write_table(pa.table([ids, rows], names=list(names)).replace_schema_metadata(metadata), path, **options)
    return path


def same_as_upserted(path, dtype="f32", default_row=None):
    table = Table("t", ROWS.shape[1], dtype=dtype, default_row=default_row)
    table.upsert(IDS, ROWS)
    snapshot = Snapshot.open(path)
    snapshot.verify()
    other = path.with_name("other.snap")
    write_snapshot(other, table, base_sequence=snapshot.header.base_sequence,
                   package_version=snapshot.header.package_version, time_s=snapshot.header.time_s)
    return path.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "int8"])
@pytest.mark.parametrize("memory_bytes_max", [1 << 28, 1])
def test_a_snapshot_of_parquet_is_that_of_the_table(tmp_path, dtype, memory_bytes_max):
    source = write(tmp_path / "t.parquet", row_group_size=700)
    made = convert_parquet(source, tmp_path / "t.snap", dtype=dtype, default_row=ROWS[3], base_sequence=5,
                           package_version=6, time_s=7, memory_bytes_max=memory_bytes_max, threads=3)
    assert (made.paths, made.dtype, made.dim, made.rows) == ((tmp_path / "t.snap",), dtype, 6, len(IDS))
    header = Snapshot.open(tmp_path / "t.snap").header
    assert (header.base_sequence, header.package_version, header.time_s) == (5, 6, 7)
    assert same_as_upserted(tmp_path / "t.snap", dtype, ROWS[3])
    assert (made.spilled_bytes > 0) == (memory_bytes_max == 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.snap", "t.parquet", "t.snap"]


def test_int8_tells_its_error(tmp_path):
    source = write(tmp_path / "t.parquet")
    told = convert_parquet(source, tmp_path / "t.snap", dtype="int8").error
    expected = error_of(ROWS, "int8")
    assert (told.dtype, told.rows, told.max_abs) == ("int8", len(IDS), expected.max_abs)
    assert told.mean_abs == pytest.approx(expected.mean_abs, rel=1e-6)
    assert told.relative == pytest.approx(expected.relative, rel=1e-6)
    assert convert_parquet(source, tmp_path / "t.snap").error is None


@pytest.mark.parametrize("row_type", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 6),
                                      pa.list_(pa.float64(), 6)])
def test_list_types(tmp_path, row_type):
    source = write(tmp_path / "t.parquet", rows=pa.array(ROWS.tolist(), row_type))
    convert_parquet(source, tmp_path / "t.snap")
    assert same_as_upserted(tmp_path / "t.snap")


def test_halves_stay_halves(tmp_path):
    halves = ROWS.astype(np.float16)
    for row_type in (pa.list_(pa.float16()), pa.list_(pa.float16(), 6)):
        source = write(tmp_path / "t.parquet", rows=pa.array(list(halves), row_type))
        made = convert_parquet(source, tmp_path / "t.snap")
        assert made.dtype == "f16" and same_as_upserted(tmp_path / "t.snap", "f16")
    made = convert_parquet(tmp_path / "t.parquet", tmp_path / "t.snap", dtype="f32")
    np.testing.assert_array_equal(load_table(tmp_path / "t.snap").lookup(IDS), halves.astype(np.float32))


@pytest.mark.parametrize("id_type", [pa.int8(), pa.uint16(), pa.uint64()])
def test_id_types_and_columns_by_name(tmp_path, id_type):
    ids = [1, 100] if id_type != pa.uint64() else [1, 2**64 - 1]
    source = write(tmp_path / "t.parquet", pa.array(ids, id_type), [[1, 2], [3, 4]], names=("key", "vector"))
    convert_parquet(source, tmp_path / "t.snap", id_column="key", row_column="vector")
    np.testing.assert_array_equal(load_table(tmp_path / "t.snap").lookup(np.array(ids, np.uint64)), [[1, 2], [3, 4]])


def test_many_files_and_a_folder(tmp_path):
    (tmp_path / "in").mkdir()
    parts = np.array_split(np.arange(len(IDS)), 3)
    files = [write(tmp_path / "in" / f"{k}.parquet", IDS[part], ROWS[part]) for k, part in enumerate(parts)]
    convert_parquet(files, tmp_path / "t.snap")
    assert same_as_upserted(tmp_path / "t.snap")
    assert convert_parquet(tmp_path / "in", tmp_path / "t.snap").rows == len(IDS)
    assert same_as_upserted(tmp_path / "t.snap")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableFileError, match="no Parquet files there"):
        convert_parquet(tmp_path / "empty", tmp_path / "t.snap")


def test_what_a_saved_table_says_is_kept(tmp_path):
    table = Table("t", 6, dtype="bf16", default_row=ROWS[0])
    table.upsert(IDS, ROWS)
    table.save(tmp_path / "t.parquet")
    assert convert_parquet(tmp_path / "t.parquet", tmp_path / "t.snap").dtype == "bf16"
    assert same_as_upserted(tmp_path / "t.snap", "bf16", ROWS[0])
    assert export_parquet(Snapshot.open(tmp_path / "t.snap"), tmp_path / "again.parquet") == len(IDS)
    again = Table.load(tmp_path / "again.parquet")
    assert again.dtype == "bf16"
    np.testing.assert_array_equal(again.lookup(IDS), table.lookup(IDS))
    np.testing.assert_array_equal(again.default_row, table.default_row)


def test_an_epoch_is_exported(tmp_path):
    table = Table("t", 2)
    table.upsert([1, 2], np.float32([[1, 1], [2, 2]]))
    table.publish(1, 0)
    table.apply(1, [2, 3], np.float32([[5, 5], [3, 3]]), deletes=[1])
    table.publish(2, 1)
    for epoch, expected in ((1, {1: 1, 2: 2}), (2, {2: 5, 3: 3}), (0, {2: 5, 3: 3})):
        export_parquet(table, tmp_path / "t.parquet", epoch)
        again = Table.load(tmp_path / "t.parquet")
        assert dict(zip(again.ids().tolist(), again.lookup(again.ids())[:, 0].tolist(), strict=True)) == expected
        write_snapshot(tmp_path / "t.snap", table, epoch)
        again = load_table(tmp_path / "t.snap")
        assert dict(zip(again.ids().tolist(), again.lookup(again.ids())[:, 0].tolist(), strict=True)) == expected


def test_shards_hold_their_own_ids(tmp_path):
    source = write(tmp_path / "t.parquet", row_group_size=900)
    made = convert_parquet(source, tmp_path / "out", shards=3, name="item")
    assert made.paths == tuple(tmp_path / "out" / f"shard-0000{k}" / "item.snap" for k in range(3))
    found = []
    for shard, path in enumerate(made.paths):
        snapshot = Snapshot.open(path)
        snapshot.verify()
        assert set(shard_of(snapshot.ids, 3).tolist()) == {shard}
        np.testing.assert_array_equal(load_table(path).lookup(snapshot.ids), snapshot.rows(0, len(snapshot)))
        found += snapshot.ids.tolist()
    assert sorted(found) == sorted(IDS.tolist())
    for options in ({"shards": 0, "name": "t"}, {"shards": 2}, {"shards": 5000, "name": "t"}):
        with pytest.raises(OptionError, match="1 to 4096 shards and the table's name"):
            convert_parquet(source, tmp_path / "out", **options)


def test_progress_ends_with_all_rows(tmp_path):
    seen = []
    source = write(tmp_path / "t.parquet", row_group_size=500)
    convert_parquet(source, tmp_path / "t.snap", progress=lambda done, rows: seen.append((done, rows)))
    assert seen == sorted(seen) and seen[-1] == (len(IDS), len(IDS)) and len(seen) >= 10


BAD = {
    "no such column": (dict(ids=[1], rows=[[1, 2]], names=("id", "rows")), TableSchemaError, "one column 'row'"),
    "null id": (dict(ids=pa.array([1, None]), rows=[[1, 2]] * 2), TableNullError, "column 'id', row 1 is null"),
    "null row": (dict(ids=[1, 2], rows=pa.array([[1.0], None])), TableNullError, "column 'row', row 1 is null"),
    "null element": (dict(ids=[1, 2], rows=pa.array([[1.0], [None]])), TableNullError, "row 1 has a null element"),
    "ragged": (dict(ids=[1, 2], rows=pa.array([[1.0], [1.0, 2.0]])), TableSchemaError, "row 1 has 2 elements"),
    "nan": (dict(ids=[1, 7], rows=[[1, 2], [3, np.nan]]), TableValueError, r"row 1 \(id 7\) holds NaN"),
    "infinite half": (dict(ids=[1, 7], rows=pa.array([np.float16([1]), np.float16([np.inf])], pa.list_(pa.float16()))),
                      TableValueError, r"row 1 \(id 7\) holds NaN"),
    "infinity": (dict(ids=[1], rows=pa.array([[1e300, 2.0]])), TableValueError, r"row 0 \(id 1\) holds NaN, infinity"),
    "too large": (dict(ids=[1], rows=[[7e4, 2]], metadata={b"lambda_svc.dtype": b"f16"}), TableValueError, "for f16"),
    "duplicate": (dict(ids=[4, 5, 4], rows=[[1, 2]] * 3), DuplicateIdError, "row 2 repeats id 4 of .* row 0: keep one"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_files_are_refused_by_name(tmp_path, what):
    content, error, message = BAD[what]
    path = write(tmp_path / "t.parquet", **content)
    with pytest.raises(error, match=message) as caught:
        convert_parquet(path, tmp_path / "t.snap")
    assert str(path) in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_the_row_named_is_counted_over_row_groups_and_files(tmp_path):
    rows = ROWS.copy()
    rows[3000, 2] = np.inf
    write(tmp_path / "a.parquet", IDS[:10], ROWS[:10])
    bad = write(tmp_path / "b.parquet", IDS[10:], rows[10:], row_group_size=256)
    with pytest.raises(TableValueError, match=f"{bad}: column 'row', row 2990 .id {IDS[3000]}. holds NaN"):
        convert_parquet(tmp_path, tmp_path / "t.snap")
    write(tmp_path / "b.parquet", np.append(IDS[10:], IDS[4]), np.vstack([ROWS[10:], ROWS[:1]]), row_group_size=256)
    message = f"b.parquet: column 'id', row {len(IDS) - 10} repeats id {IDS[4]} of .*a.parquet: column 'id', row 4: k"
    with pytest.raises(DuplicateIdError, match=message):
        convert_parquet(tmp_path, tmp_path / "t.snap", memory_bytes_max=1)


def test_files_that_disagree_are_refused(tmp_path):
    write(tmp_path / "a.parquet", [1], [[1, 2]])
    write(tmp_path / "b.parquet", [2], [[1, 2, 3]])
    with pytest.raises(TableSchemaError, match="b.parquet: dim is not that of .*a.parquet"):
        convert_parquet(tmp_path, tmp_path / "t.snap")
    with pytest.raises(TableSchemaError, match="b.parquet: .* has 3 elements a row, expected 2"):
        convert_parquet(tmp_path, tmp_path / "t.snap", dim=2)
    write(tmp_path / "b.parquet", [2], [[1, 2]], metadata={b"lambda_svc.default_row": bytes(8)})
    with pytest.raises(TableSchemaError, match="default row is not that of"):
        convert_parquet(tmp_path, tmp_path / "t.snap")
    assert convert_parquet(tmp_path, tmp_path / "t.snap", default_row=[0, 0]).rows == 2
    with pytest.raises(ArrayError, match="default_row has shape"):
        convert_parquet(tmp_path, tmp_path / "t.snap", default_row=[0])
    with pytest.raises(OptionError, match="dtype is 'f8'"):
        convert_parquet(tmp_path, tmp_path / "t.snap", dtype="f8", default_row=[0, 0])


def test_an_empty_file_with_a_dim_gives_an_empty_snapshot(tmp_path):
    empty = pa.array([], pa.list_(pa.float32()))
    write(tmp_path / "t.parquet", [], empty)
    with pytest.raises(TableSchemaError, match="the dim is unknown"):
        convert_parquet(tmp_path / "t.parquet", tmp_path / "t.snap")
    assert convert_parquet(tmp_path / "t.parquet", tmp_path / "t.snap", dim=4).rows == 0
    assert Snapshot.open(tmp_path / "t.snap").dim == 4


def test_files_that_cannot_be_read_or_written(tmp_path):
    with pytest.raises(TableFileError, match=r"absent\.parquet"):
        convert_parquet(tmp_path / "absent.parquet", tmp_path / "t.snap")
    (tmp_path / "junk.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(TableFileError, match=r"junk\.parquet"):
        convert_parquet(tmp_path / "junk.parquet", tmp_path / "t.snap")
    good = write(tmp_path / "t.parquet")
    with pytest.raises(TableFileError, match="nowhere"):
        convert_parquet(good, tmp_path / "nowhere" / "t.snap")
    with pytest.raises(TableFileError, match="nowhere"):
        export_parquet(Table("t", 1), tmp_path / "nowhere" / "t.parquet")


def test_damaged_parquet_gives_only_typed_errors(tmp_path):
    raw = write(tmp_path / "t.parquet", IDS[:60], ROWS[:60], compression="none", use_dictionary=False).read_bytes()
    rng, outcomes = np.random.default_rng(8), set()
    for _ in range(200):
        damaged = bytearray(raw)
        for at in rng.integers(0, len(raw), 3):
            damaged[at] = rng.integers(0, 256)
        (tmp_path / "t.parquet").write_bytes(damaged)
        try:
            convert_parquet(tmp_path / "t.parquet", tmp_path / "t.snap")
            Snapshot.open(tmp_path / "t.snap").verify()
            outcomes.add("converted")
        except TableFileError as error:
            assert str(tmp_path / "t.parquet") in str(error)
            outcomes.add("refused")
        except StoreDamaged as error:  # would mean that a snapshot was written wrong
            raise AssertionError from error
    assert outcomes == {"converted", "refused"}
