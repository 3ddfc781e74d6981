"""Which shard holds an id, and where the shards are: a mixing hash, and `shards.json` of the cluster's directory.

    {"version": 7, "shards": [{"replicas": ["grpc://10.0.0.1:7000", "grpc+tls://10.0.0.2:7000"]}, ...]}

The version changes with every edit; both sides of a lookup compare it, so that a client with an old map gets an error
and never another shard's answer.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from paramserver import arrays
from paramserver.errors import ShardMapError

__all__ = ["MAP_FILE", "SHARDS_MAX", "ShardMap", "mix", "shard_of"]

#: The file of a cluster's directory that holds its map.
MAP_FILE = "shards.json"
#: Shards of a map; replicas of a shard.
SHARDS_MAX = 4096
REPLICAS_MAX = 64
_FILE_BYTES_MAX = 16 << 20
_NUMBER_MAX = 2**63 - 1
_ADDRESS = re.compile(r"grpc(\+tcp|\+tls|\+unix)?://\S{1,1000}")


def mix(ids: np.ndarray) -> np.ndarray:
    """The mixing hash of ids int64|uint64[n], uint64[n]: `mix` of csrc/hash.h (finaliser of splitmix64), a bijection of
    64-bit patterns."""
    x = arrays.as_ids(ids).view(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def shard_of(ids: np.ndarray, shards: int) -> np.ndarray:
    """The shard of each id int64|uint64[n], int64[n] from 0 to shards - 1: `shard_of` of csrc/hash.h. It takes the low
    half of the hash; a table's index takes the high bits, so a shard's ids still spread over its whole index. Raises
    IdError, ShardMapError unless shards is 1 to 4096."""
    _expect_integer("shards", shards, 1, SHARDS_MAX)
    low = mix(ids) & np.uint64(0xFFFFFFFF)
    return ((low * np.uint64(shards)) >> np.uint64(32)).astype(np.int64)


@dataclass(frozen=True)
class ShardMap:
    """The addresses of every replica of every shard. version: 0 to 2**63 - 1. shards: for each shard its replicas'
    addresses, `grpc://host:port`, `grpc+tls://host:port` or `grpc+unix:///path`; one shard and one replica at least,
    no address twice. Raises ShardMapError."""

    version: int
    shards: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        _expect_integer("version", self.version, 0, _NUMBER_MAX)
        if not 1 <= len(self.shards) <= SHARDS_MAX:
            raise ShardMapError(f"shards has {len(self.shards)} entries, expected 1 to {SHARDS_MAX}")
        seen: dict[str, str] = {}
        for i, replicas in enumerate(self.shards):
            if not 1 <= len(replicas) <= REPLICAS_MAX:
                raise ShardMapError(f"shards[{i}].replicas has {len(replicas)} entries, expected 1 to {REPLICAS_MAX}")
            for j, address in enumerate(replicas):
                where = f"shards[{i}].replicas[{j}]"
                if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
                    raise ShardMapError(f"{where} is {address!r}, expected an address such as grpc://host:7000")
                if address in seen:
                    raise ShardMapError(f"{where} is {address!r}, which is {seen[address]} already: a replica has an "
                                        "address of its own")
                seen[address] = where

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The map in the file at `path`, or in `shards.json` of the directory at `path`. Raises ShardMapError, naming
        the file and the field, when it cannot be read or is no map."""
        path = Path(path)
        path = path / MAP_FILE if path.is_dir() else path
        try:
            with path.open("rb") as file:
                raw = file.read(_FILE_BYTES_MAX + 1)
            if len(raw) > _FILE_BYTES_MAX:
                raise ShardMapError(f"the file is over {_FILE_BYTES_MAX} bytes")
            return cls.of(json.loads(raw))
        except (OSError, ValueError, RecursionError) as error:
            raise ShardMapError(f"{path}: {error}") from error

    @classmethod
    def of(cls, value: Any) -> Self:
        """The map that a parsed JSON value describes. Raises ShardMapError naming the field."""
        _expect_fields("the map", value, {"version", "shards"})
        if not isinstance(value["shards"], list):
            raise ShardMapError(f"shards is {value['shards']!r}, expected a list")
        shards = []
        for i, shard in enumerate(value["shards"]):
            _expect_fields(f"shards[{i}]", shard, {"replicas"})
            if not isinstance(shard["replicas"], list):
                raise ShardMapError(f"shards[{i}].replicas is {shard['replicas']!r}, expected a list of addresses")
            shards.append(tuple(shard["replicas"]))
        return cls(value["version"], tuple(shards))

    def json(self) -> str:
        """The file's text."""
        shards = [{"replicas": list(replicas)} for replicas in self.shards]
        return json.dumps({"version": self.version, "shards": shards}, indent=1) + "\n"


def _expect_fields(where: str, value: Any, fields: set[str]) -> None:
    if not isinstance(value, Mapping) or set(value) != fields:
        came = sorted(value) if isinstance(value, Mapping) else repr(value)[:100]
        raise ShardMapError(f"{where} has {came}, expected the fields {sorted(fields)}")


def _expect_integer(name: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise ShardMapError(f"{name} is {value!r}, expected an integer from {low} to {high}")
