"""A new shard directory from a snapshot folder."""

from pathlib import Path
from typing import Any

from paramserver.errors import StoreError
from paramserver.store.bases import read_manifest, verify_file
from paramserver.store.store import ShardStore

__all__ = ["restore"]


def restore(snapshot: str | Path, directory: str | Path, **options: Any) -> ShardStore:
    """Open a new shard directory with the state of a snapshot folder, checked by its checksums, and its epoch
    published. An interrupted restore may be repeated. options: those of ShardStore.open but shard and shards, which the
    snapshot tells. Raises StoreDamaged for a folder that is no whole snapshot, StoreError when the directory holds
    something else."""
    base = read_manifest(Path(snapshot))
    if base.epoch is None:
        raise StoreError(f"{snapshot} is a base, not a snapshot: its manifest names no epoch")
    for name, table in base.tables.items():
        verify_file(base.path(name), table)
    store = ShardStore.open(directory, shard=base.shard, shards=base.shards, **options)
    try:
        if set(store.versions()) - {base.package_version} or store.epochs() not in ([], [base.epoch]):
            raise StoreError(f"{directory} holds versions {store.versions()} already: restore into an empty directory")
        store.add_snapshot(base.package_version, {name: base.path(name) for name in base.tables},
                           base_sequences={name: table.base_sequence for name, table in base.tables.items()})
        store.publish(base.epoch)
    except BaseException:
        store.close()
        raise
    return store
