"""One replica's directory, opened while no server has it, with the face that inside.py asks of a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from paramserver import errors
from paramserver.epoch import Epoch
from paramserver.server.control import Control
from paramserver.shard_map import ShardMap
from paramserver.store import ShardStore
from tools.ps.cluster import Answer, Replica
from tools.ps.errors import PsError

__all__ = ["OfflineShard"]

_IDS_MAX = 100_000


class OfflineShard:
    """The tables of a replica as its directory has them. It is locked meanwhile; tables are opened with the types that
    their files say, without TTL, filter or tier. Use it as a context. Raises PsError, StoreLocked, StoreDamaged."""

    def __init__(self, directory: Path) -> None:
        try:
            said = json.loads((directory / "store.json").read_bytes())
            shard, shards = int(said["shard"]), int(said["shards"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PsError(f"{directory}: no replica's directory: its store.json cannot be read ({error})") from error
        self.directory = directory
        self.map = ShardMap(0, tuple((f"grpc+unix://{directory.resolve()}/{number}",) for number in range(shards)))
        self.replicas = [Replica(shard, 0, str(directory))]
        self._store = ShardStore.open(directory, shard=shard, shards=shards)
        self._control = Control(self._store, changed=lambda: None, about=dict, keys_per_get_max=_IDS_MAX)

    def newest(self) -> Epoch | None:
        """The newest epoch that the directory holds, None before the first."""
        return next(reversed(self._store.epochs()), None)

    def action(self, name: str, **arguments: Any) -> dict[str, Any]:
        """As ControlClient.action, without a server."""
        _, text = self._control(name, json.dumps(arguments).encode(), "")
        said = json.loads(text)
        if "error" in said:
            raise getattr(errors, said["error"], errors.ProgrammerError)(said["message"])
        return said

    def ask(self, question: Callable[[Any, Replica], Any], replicas: list[Replica] | None = None) -> list[Answer]:
        """As Cluster.ask, of this one replica. Raises PsError when another shard is asked for."""
        mine = self.replicas[0]
        if replicas == []:
            raise PsError(f"{self.directory} is shard {mine.shard} of {len(self.map.shards)}: the id is another "
                          "shard's, open that one's directory")
        try:
            return [Answer(mine, question(self, mine))]
        except errors.ParamServerError as error:
            return [Answer(mine, error=error)]

    def ask_one_per_shard(self, action: str, shards: list[int] | None = None, **options: Any) -> list[Answer]:
        """As Cluster.ask_one_per_shard."""
        mine = self.replicas if shards is None or self.replicas[0].shard in shards else []
        answer = self.ask(lambda client, _: client.action(action, **options), mine)[0]
        if answer.error is not None:
            raise answer.error
        return [answer]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._store.close()
