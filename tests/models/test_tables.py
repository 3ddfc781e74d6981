"""Exported tables: batches of rows under raw ids, read back by the parameter server itself."""

import numpy as np
import pytest

from models.errors import DatasetError
from models.tables import write_table
from paramserver import Table


class Recorded:
    """A table in memory that remembers how much was read at once."""

    def __init__(self, rows):
        self.values, self.shape, self.most = rows, rows.shape, 0

    def read(self, start, stop):
        """The rows start to stop."""
        self.most = max(self.most, stop - start)
        return self.values[start:stop]


@pytest.fixture
def table():
    return Recorded(np.random.default_rng(0).normal(size=(101, 3)).astype(np.float32))


def test_the_parameter_server_reads_it_back(table, tmp_path):
    ids = np.sort(np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 100))
    write_table(tmp_path / "t.parquet", table, ids, default_row=100, batch_rows=7)
    assert table.most == 7
    loaded = Table.load(tmp_path / "t.parquet")
    assert (len(loaded), loaded.dim, loaded.dtype) == (100, 3, "f32")
    np.testing.assert_array_equal(loaded.lookup(ids), table.values[:100])
    np.testing.assert_array_equal(loaded.lookup(ids[:1] + 1), table.values[100:])


def test_equal_tables_give_equal_bytes(table, tmp_path):
    for name in ("a", "b"):
        write_table(tmp_path / name, table, np.arange(100), default_row=100)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_table_without_ids_still_has_its_default(table, tmp_path):
    write_table(tmp_path / "t.parquet", table, np.empty(0, np.int64), default_row=0)
    loaded = Table.load(tmp_path / "t.parquet")
    np.testing.assert_array_equal(loaded.lookup(np.array([5])), table.values[:1])


@pytest.mark.parametrize("ids, default", [(np.arange(102), 0), (np.arange(3), 101), (np.arange(3), -1),
                                          (np.arange(3, dtype=np.int32), 0)])
def test_ids_that_do_not_fit_are_refused(table, tmp_path, ids, default):
    with pytest.raises(DatasetError, match="do not fit"):
        write_table(tmp_path / "t.parquet", table, ids, default)
