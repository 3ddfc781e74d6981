"""The server of one shard: `python -m paramserver.server CONFIG`.

config.py (what it is told), process.py (the whole), serving.py (epochs handed to the native server), watcher.py (the
cluster's directory), control.py (actions and pushed deltas) and metrics.py. Lookups never come here: they are answered
in C++ (csrc/flight/).
"""

from paramserver.server.config import ServerConfig, load_config
from paramserver.server.process import ShardProcess

__all__ = ["ServerConfig", "ShardProcess", "load_config"]
