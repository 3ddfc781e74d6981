"""One shard's durable state: tables in memory, and the directory that they are rebuilt from. Layers, bottom up:

layout.py (what lies where), lock.py, bases.py (snapshots of package versions), rocks.py, payloads.py and log.py (deltas
and metadata), line.py (one table of one version: its sequences), leases.py, recovery.py, intake.py (how bases come in),
status.py, store.py (the shard), restore.py, and watch.py (a folder of deltas that other programs write).
"""

from paramserver.store.bases import read_manifest
from paramserver.store.restore import restore
from paramserver.store.store import ShardStore
from paramserver.store.watch import DeltaWatch

__all__ = ["DeltaWatch", "ShardStore", "read_manifest", "restore"]
