"""Table files with flipped, lost and added bytes: a table or a TableFileError, never anything else."""

import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from paramserver import Table, parquet
from paramserver.errors import TableFileError

VARIANTS = {"plain": {"compression": "none", "use_dictionary": False}, "packed": {"compression": "zstd"}}


def damaged(raw, rng):
    """A copy of `raw` with one to six edits, most of them in the footer, where the structure is."""
    raw = bytearray(raw)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(raw)) if rng.random() < 0.4 else max(0, len(raw) - rng.randrange(1, 900))
        edit = rng.random()
        if edit < 0.8:
            raw[at] = rng.randrange(256)
        elif edit < 0.9:
            del raw[at : at + rng.randint(1, 8)]
        else:
            raw[at:at] = rng.randbytes(rng.randint(1, 4))
    return bytes(raw)


@pytest.mark.parametrize("variant", VARIANTS)
def test_damaged_files_give_only_typed_errors(tmp_path, variant):
    rng, path = random.Random(11), tmp_path / "t.parquet"
    rows = pa.array([[1, 2], [3, 4], [5, 6]] * 20, pa.list_(pa.float32(), 2))
    table = pa.table({"id": pa.array(range(60)), "row": rows}).replace_schema_metadata(
        {parquet.DEFAULT_ROW_KEY: np.float32([1, 2]).tobytes(), parquet.DTYPE_KEY: b"f32"})
    pq.write_table(table, path, **VARIANTS[variant])
    good, outcomes = path.read_bytes(), set()
    for _ in range(600):
        path.write_bytes(damaged(good, rng))
        try:
            outcomes.add(type(Table.load(path)))
        except TableFileError as error:
            assert str(path) in str(error)
            outcomes.add(TableFileError)
    assert outcomes == {Table, TableFileError}


def test_a_column_name_that_is_no_text_is_a_file_error(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": [1], "row": [[1.0]]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"row", b"\xe5ow"))
    with pytest.raises(TableFileError, match=r"t\.parquet"):
        Table.load(path)
