"""A table of 2.3 GB, more than a graph may hold, is cut and written in bounded memory. Slow: asked for by an
environment variable."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROWS, DIM = 9_000_000, 64
MEMORY_BYTES_MAX = 1_200 << 20


class GeneratedTable:
    """ROWS x DIM float32 that exists only while it is read."""

    shape = (ROWS, DIM)
    dtype = np.dtype(np.float32)
    read_rows_most = 0

    def read(self, start, stop):
        """Row i holds i + place / DIM."""
        self.read_rows_most = max(self.read_rows_most, stop - start)
        return (np.arange(start, stop, dtype=np.float32)[:, None] + np.arange(DIM, dtype=np.float32) / DIM)


def cut_big_table(path):
    """Builds a graph whose table is only a handle, cuts it, freezes the rest, writes the table."""
    import tensorflow as tf

    from models.passes import cut, freeze
    from models.tables import write_table

    with tf.Graph().as_default() as graph:
        ids = tf.compat.v1.placeholder(tf.int64, [None], name="ids")
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[ROWS, DIM], shared_name="big", name="big")
        rows = tf.raw_ops.ResourceGather(resource=handle, indices=ids, dtype=tf.float32)
        tf.reduce_sum(rows, axis=1, name="out")
    table = GeneratedTable()
    result = cut(graph.as_graph_def(), {"big": table}, ["out:0"], rows_min=1_000)
    frozen = freeze(result.graph_def, result.variables, ["out:0"])
    assert frozen.ByteSize() < 2_000 and [c.shape for c in result.cuts] == [(None, DIM)]
    write_table(Path(path), table, np.arange(ROWS - 1, dtype=np.int64) * 3 - 7, ROWS - 1)
    assert table.read_rows_most <= 65_536
    assert ROWS * DIM * 4 > 2_300_000_000
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.skipif(os.environ.get("LAMBDA_SVC_PROVE") != "1", reason="slow: set LAMBDA_SVC_PROVE=1 (writes 2.3 GB)")
@pytest.mark.timeout(900)
def test_a_table_beyond_the_graph_limit(tmp_path):
    # A process of its own, so that its peak memory is this work's and nothing else's.
    code = "import runpy, sys; print(runpy.run_path(sys.argv[1])['cut_big_table'](sys.argv[2]))"
    path = tmp_path / "big.parquet"
    run = subprocess.run([sys.executable, "-c", code, __file__, str(path)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert path.stat().st_size > 2_300_000_000
    assert int(run.stdout.split()[-1]) < MEMORY_BYTES_MAX
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        last = next(file.iter_batches(batch_size=8, row_groups=[file.num_row_groups - 1]))
        row = int((last["id"][0].as_py() + 7) // 3)
        assert last["row"][0].as_py()[0] == np.float32(row)
