"""Stores, deltas and table files for the tests of the store."""

import numpy as np
from paramserver import Table
from paramserver.delta import Delta
from paramserver.reference import ReferenceTable
from paramserver.shard_map import shard_of
from paramserver.store import ShardStore

#: The tables of the stores that are opened here.
TABLE_CLASS = Table
DIM = 3
VERSION = 4
BASE_IDS = np.arange(40, dtype=np.int64) - 20


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def rows_of(ids, salt, dim=DIM):
    """Rows that tell which id and which writer they are of."""
    return (np.asarray(ids, np.float32)[:, None] * 10 + salt + np.arange(dim, dtype=np.float32) / 8).astype(np.float32)


def delta_of(sequence, ids=(1, 2), deletes=(), *, salt=None, table="item", version=VERSION, dim=DIM, time_s=0):
    """A delta whose rows tell its sequence."""
    ids = np.array(ids, np.int64)
    return Delta(table, version, sequence, ids, rows_of(ids, 1000 * sequence if salt is None else salt, dim),
                 np.array(deletes, np.int64), time_s)


def large_delta(sequence, table="item"):
    """A delta whose rows take a file of their own."""
    return delta_of(sequence, np.arange(8000) - 3000, table=table)


def table_file(path, ids=BASE_IDS, salt=0, dim=DIM, shard=0, shards=1):
    """A Parquet file of a shard's rows of a table."""
    ids = np.asarray(ids, np.int64)
    ids = ids[shard_of(ids, shards) == shard]
    table = ReferenceTable("any", dim, default_row=[-1] * dim)
    table.upsert(ids, rows_of(ids, salt, dim))
    table.save(path)
    return path


def open_store(directory, **options):
    """A store that may fill any disk."""
    return ShardStore.open(directory, **{"table_class": TABLE_CLASS, "reserve_bytes": 0, **options})


def serving(directory, tables=("item",), **options):
    """A store that serves VERSION with the rows of `table_file`, and its epoch 1."""
    store = open_store(directory, **options)
    add(store, tables)
    return store


def add(store, tables=("item",), version=VERSION):
    """Serve a version with base rows."""
    folder = store.directory.with_name(f"{store.directory.name}-files-{version}")
    folder.mkdir(exist_ok=True)
    paths = {name: table_file(folder / f"{name}.parquet", shard=store.shard, shards=store.shards) for name in tables}
    return store.add_snapshot(version, paths)


def rows_at(store, epoch=0, table="item", version=VERSION):
    """{id: row} of a table at an epoch."""
    table = store.tables(version)[table]
    ids = table.ids(epoch=epoch)
    return dict(zip(ids.tolist(), table.lookup(ids, epoch=epoch).tolist(), strict=True))


def expected(deltas, base=BASE_IDS):
    """{id: row} of base rows with deltas on top."""
    rows = dict(zip(base.tolist(), rows_of(base, 0).tolist(), strict=True))
    for delta in deltas:
        rows.update(zip(delta.ids.tolist(), delta.rows.tolist(), strict=True))
        for i in delta.deletes.tolist():
            rows.pop(i, None)
    return rows
