"""Tables in files: round trips, files of other writers, every bad file by name, and saves that appear whole or not."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from paramserver import Table, parquet
from paramserver.arrays import DTYPES
from paramserver.errors import (
    DuplicateIdError,
    OptionError,
    TableFileError,
    TableNullError,
    TableSchemaError,
    TableValueError,
)
from paramserver.reference import ReferenceTable


def write(path, ids, rows, row_type=None, metadata=None, names=("id", "row")):
    ids = ids if isinstance(ids, pa.Array) else pa.array(ids, pa.int64())
    rows = rows if isinstance(rows, pa.Array) else pa.array(rows, row_type or pa.list_(pa.float32(), 2))
    pq.write_table(pa.table([ids, rows], names=list(names)).replace_schema_metadata(metadata), path)
    return path


@pytest.mark.parametrize("table_class", [Table, ReferenceTable])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_table_comes_back_as_it_was(tmp_path, table_class, dtype):
    rng = np.random.default_rng(0)
    table = table_class("item", 5, dtype=dtype, default_row=rng.normal(size=5))
    ids = np.concatenate([[-(2**63), 2**63 - 1, 0, -1], rng.integers(-(2**63), 2**63 - 1, 3000)])
    table.upsert(ids, rng.normal(size=(len(ids), 5)).astype(np.float32))
    table.save(tmp_path / "item.parquet")
    again = table_class.load(tmp_path / "item.parquet")
    assert (again.name, again.dim, again.dtype, len(again)) == ("item", 5, dtype, len(table))
    np.testing.assert_array_equal(again.ids(), table.ids())
    # The file holds what an int8 row means, not its bytes: its scale comes back to within a rounding.
    near = 2e-6 if dtype == "int8" else 0
    np.testing.assert_allclose(again.lookup(ids), table.lookup(ids), rtol=0, atol=near)
    np.testing.assert_allclose(again.default_row, table.default_row, rtol=0, atol=near)
    assert Table.load(tmp_path / "item.parquet", name="x", dtype="f16").dtype == "f16"


def test_the_file_is_as_the_contract_says_and_the_same_each_time(tmp_path):
    table = Table("t", 2, dtype="f16", default_row=[1, -1])
    table.upsert([3, -3], np.float32([[1, 2], [3, 4]]))
    table.save(tmp_path / "a.parquet")
    schema = pq.read_schema(tmp_path / "a.parquet")
    assert schema.field("id").type == pa.int64()
    assert schema.field("row").type == pa.list_(pa.float16(), 2)
    assert schema.metadata[b"lambda_svc.default_row"] == np.array([1, -1], "<f4").tobytes()
    assert schema.metadata[b"lambda_svc.dtype"] == b"f16"
    other = Table("t", 2, dtype="f16", default_row=[1, -1])
    other.upsert([-3], np.float32([[3, 4]]))
    other.upsert([3], np.float32([[1, 2]]))
    other.save(tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_many_batches_and_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "BATCH_BYTES", 4 * 3 * 100)
    table = Table("t", 3)
    ids = np.arange(1234) * 7 - 3000
    rows = np.random.default_rng(1).normal(size=(1234, 3)).astype(np.float32)
    table.upsert(ids, rows)
    table.save(tmp_path / "t.parquet")
    assert pq.ParquetFile(tmp_path / "t.parquet").num_row_groups == 13
    np.testing.assert_array_equal(Table.load(tmp_path / "t.parquet").lookup(ids), rows)
    pq.write_table(pa.table({"id": np.append(ids, ids[5]), "row": pa.array([[0.0]] * 1235)}), tmp_path / "d.parquet")
    with pytest.raises(DuplicateIdError, match=f"column 'id', row 1234 repeats id {ids[5]}"):
        Table.load(tmp_path / "d.parquet")


def test_an_empty_table_keeps_its_dim(tmp_path):
    Table("t", 7).save(tmp_path / "t.parquet")
    assert (len(Table.load(tmp_path / "t.parquet")), Table.load(tmp_path / "t.parquet").dim) == (0, 7)


@pytest.mark.parametrize("id_type", [pa.int8(), pa.uint8(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()])
@pytest.mark.parametrize("row_type", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float16(), 2)])
def test_files_of_other_writers(tmp_path, id_type, row_type):
    path = write(tmp_path / "t.parquet", pa.array([1, 100], id_type), pa.array([[1, 2], [3, 4]], row_type))
    np.testing.assert_array_equal(Table.load(path).lookup([100, 1]), [[3, 4], [1, 2]])


def test_uint64_ids_and_columns_by_name(tmp_path):
    path = write(tmp_path / "t.parquet", pa.array([2**64 - 1], pa.uint64()), [[1, 2]], names=("key", "vector"))
    table = parquet.load(Table, path, id_column="key", row_column="vector")
    np.testing.assert_array_equal(table.lookup([-1]), [[1, 2]])


ROWS2 = pa.list_(pa.float32(), 2)
BAD = {
    "no such column": (dict(ids=[1], rows=[[1, 2]], names=("id", "rows")), TableSchemaError, "one column 'row'"),
    "float ids": (dict(ids=pa.array([1.0]), rows=[[1, 2]]), TableSchemaError, "column 'id' is double"),
    "string rows": (dict(ids=[1], rows=pa.array(["x"])), TableSchemaError, "column 'row' is string, expected a list"),
    "integer rows": (dict(ids=[1], rows=pa.array([[1, 2]])), TableSchemaError, "column 'row' is list<.*int64>"),
    "null id": (dict(ids=[1, None], rows=[[1, 2]] * 2), TableNullError, "column 'id', row 1 is null"),
    "null row": (dict(ids=[1, 2], rows=[[1, 2], None]), TableNullError, "column 'row', row 1 is null"),
    "null element": (dict(ids=[1, 2], rows=[[1, 2], [None, 1]]), TableNullError, "row 1 has a null element"),
    "ragged": (dict(ids=[1, 2], rows=pa.array([[1.0, 2], [1.0]])), TableSchemaError, "row 1 has 1 elements"),
    "no elements": (dict(ids=[1], rows=pa.array([[]], pa.list_(pa.float32()))), TableSchemaError, "the dim is unknown"),
    "nan": (dict(ids=[1, 7], rows=[[1, 2], [3, np.nan]]), TableValueError, r"row 1 \(id 7\) holds NaN"),
    "infinity": (dict(ids=[1], rows=pa.array([[1e300, 2.0]])), TableValueError, r"row 0 \(id 1\) holds NaN, infinity"),
    "too large": (dict(ids=[1], rows=[[7e4, 2]], metadata={b"lambda_svc.dtype": b"f16"}), TableValueError, "for f16"),
    "duplicate": (dict(ids=[4, 5, 4], rows=[[1, 2]] * 3), DuplicateIdError, "column 'id', row 2 repeats id 4"),
    "null first row": (dict(ids=[1, 2], rows=pa.array([None, [1.0]])), TableNullError, "column 'row', row 0 is null"),
    "too wide": (dict(ids=[1], rows=pa.array([[0.0] * 4097])), TableSchemaError, "'row' has 4097 elements a row"),
    "default row of nan": (dict(ids=[1], rows=[[1, 2]], metadata={b"lambda_svc.default_row": b"\xff" * 8}),
                           TableValueError, "metadata lambda_svc.default_row: default_row.*element 0 is -?nan"),
    "dtype": (dict(ids=[1], rows=[[1, 2]], metadata={b"lambda_svc.dtype": b"f8"}), TableSchemaError, "dtype is b'f8'"),
    "default row": (dict(ids=[1], rows=[[1, 2]], metadata={b"lambda_svc.default_row": b"1234"}), TableSchemaError,
                    "default_row has 4 bytes, expected 8"),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("table_class", [Table, ReferenceTable])
def test_bad_files_are_refused_by_name(tmp_path, table_class, what):
    content, error, message = BAD[what]
    path = write(tmp_path / "t.parquet", **content)
    with pytest.raises(error, match=message) as caught:
        table_class.load(path)
    assert str(path) in str(caught.value)


def test_an_asked_dtype_is_checked_like_an_option(tmp_path):
    path = write(tmp_path / "t.parquet", [1], [[1, 2]])
    for dtype in ("f8", ""):
        with pytest.raises(OptionError, match="expected one of f32, f16"):
            Table.load(path, dtype=dtype)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(TableFileError, match=r"absent\.parquet"):
        Table.load(tmp_path / "absent.parquet")
    (tmp_path / "junk.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(TableFileError, match=r"junk\.parquet"):
        Table.load(tmp_path / "junk.parquet")


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    table = Table("t", 2)
    table.upsert([1], np.ones((1, 2), np.float32))
    table.save(tmp_path / "t.parquet")
    before = (tmp_path / "t.parquet").read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", fail)
    with pytest.raises(TableFileError, match="disk full"):
        table.save(tmp_path / "t.parquet")
    assert [p.name for p in tmp_path.iterdir()] == ["t.parquet"]
    assert (tmp_path / "t.parquet").read_bytes() == before
    with pytest.raises(TableFileError, match="nowhere"):
        table.save(tmp_path / "nowhere" / "t.parquet")
