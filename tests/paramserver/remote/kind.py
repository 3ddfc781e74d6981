"""The remote client as a kind of table: written through deltas and epochs on two shard servers, read over the wire."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from paramserver import Table
from paramserver.remote import Cluster
from paramserver.shard_map import shard_of

SHARDS = 2
_names = itertools.count()


class RemoteKind:
    """Looks like a Table. What a write returns or raises, and what lists ids, comes from a plain table that gets the
    same writes; every lookup goes to the shards."""

    def __init__(self, servers: Sequence[Any], cluster: Cluster, dim: int, **options: Any) -> None:
        self._whole = Table("t", dim, **options)
        self._name = f"t{next(_names)}"
        self._servers = servers
        self._parts = [Table(self._name, dim, **options) for _ in servers]
        self._epoch = 0
        wire = "f32" if self._whole.dtype == "int8" else self._whole.dtype
        self._remote = cluster.table(self._name, dim, default_row=self._whole.default_row, wire=wire)
        self._publish()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    def __len__(self) -> int:
        return len(self._whole)

    def upsert(self, ids: Any, rows: Any) -> int:
        """As Table.upsert, by a delta."""
        new = self._whole.upsert(ids, rows)
        ids = np.asarray(ids, np.int64 if not hasattr(ids, "dtype") else None).astype(np.int64)
        self._apply(ids, np.ascontiguousarray(rows), np.empty(0, np.int64))
        return new

    def delete(self, ids: Any) -> int:
        """As Table.delete, by a delta."""
        here = self._whole.delete(ids)
        ids = np.asarray(ids, np.int64)
        self._apply(np.empty(0, np.int64), np.empty((0, self._whole.dim), np.float32), ids)
        return here

    def lookup(self, *arguments: Any, **named: Any) -> np.ndarray:
        """Over the wire."""
        return self._remote.lookup(*arguments, epoch=self._epoch, **named)

    def lookup_pooled(self, *arguments: Any, **named: Any) -> np.ndarray:
        """Over the wire."""
        return self._remote.lookup_pooled(*arguments, epoch=self._epoch, **named)

    def _apply(self, ids: np.ndarray, rows: np.ndarray, deletes: np.ndarray) -> None:
        of, gone = shard_of(ids, SHARDS), shard_of(deletes, SHARDS)
        for shard, part in enumerate(self._parts):
            part.apply(part.sequence + 1, ids[of == shard], rows[of == shard], deletes[gone == shard])
        self._publish()

    def _publish(self) -> None:
        """A new epoch on all shards; the one before it goes."""
        before, self._epoch = self._epoch, next(_epochs)
        for server, part in zip(self._servers, self._parts, strict=True):
            part.publish(self._epoch, part.sequence)
            server.publish(self._epoch, [(self._name, part.capsule, False)])
            if before:
                server.retire(before)


_epochs = itertools.count(2)
