"""A shard that misbehaves on purpose: a Flight server in Python that speaks csrc/flight/wire.h and does as told."""

import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from tests.paramserver.server.servers import rows_of

LOOKUP = struct.Struct("<IHBBQQQIIQI")
ANSWER = struct.Struct("<IHBBQQIIII")
MAGIC = 0x5053564C
SCHEMA = pa.schema([pa.field("rows", pa.binary(), False), pa.field("statuses", pa.binary(), False)])


@dataclass(frozen=True)
class Asked:
    """One lookup as it arrived."""

    lookup: int
    epoch: int
    map_version: int
    shard: int
    shards: int
    budget_us: int
    ids: np.ndarray
    table: str


@dataclass(frozen=True)
class Answer:
    """One message to send: rows float32[n, dim] from `first` on with statuses, or a refusal with a code."""

    lookup: int
    epoch: int
    first: int
    rows: np.ndarray
    statuses: np.ndarray
    code: int = 0
    message: str = ""

    def wire(self) -> tuple[pa.RecordBatch | None, bytes]:
        """Batch and metadata."""
        header = ANSWER.pack(MAGIC, 1, 0, self.code, self.lookup, self.epoch, self.first, len(self.rows),
                             self.rows.shape[1], len(self.message)) + self.message.encode()
        if self.code:
            return None, header
        return pa.record_batch([pa.array([self.rows.tobytes()], pa.binary()),
                                pa.array([self.statuses.tobytes()], pa.binary())], schema=SCHEMA), header


def right(asked: Asked, dim: int) -> Answer:
    """What a shard that behaves would say, in one message."""
    return Answer(asked.lookup, asked.epoch, 0, rows_of(asked.ids, dim), np.zeros(asked.ids.size, np.uint8))


def refusal(asked: Asked, code: int) -> Answer:
    """A refusal."""
    return replace(right(asked, 1), rows=np.empty((0, 1), np.float32), code=code, message="on purpose")


class FakeShard(flight.FlightServerBase):
    """`script(asked)` gives the answers to a lookup; it may wait, raise, or give none. Signs of life are answered by
    themselves. `asked` lists the lookups that came. `released` lets scripts that wait on it go."""

    def __init__(self, script: Callable[[Asked], Iterable[Answer]]) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.script = script
        self.asked: list[Asked] = []
        self.released = threading.Event()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"grpc://127.0.0.1:{self.port}"

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """One stream, answered in order."""
        writer.begin(SCHEMA)
        while True:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                return
            asked = _asked(chunk)
            answers = self._signs(asked) if asked.ids.size == 0 else self._scripted(asked)
            for answer in answers:
                batch, metadata = answer.wire()
                if batch is None:
                    writer.write_metadata(metadata)
                else:
                    writer.write_with_metadata(batch, metadata)

    def _signs(self, asked: Asked) -> Iterable[Answer]:
        return [refusal(asked, 2)]

    def _scripted(self, asked: Asked) -> Iterable[Answer]:
        self.asked.append(asked)
        return self.script(asked)

    def stop(self) -> None:
        """Let waiting scripts go, and end."""
        self.released.set()
        self.shutdown()


def _asked(chunk: Any) -> Asked:
    metadata = chunk.app_metadata.to_pybytes()
    _, _, _, name, lookup, epoch, version, shard, shards, budget, n = LOOKUP.unpack(metadata[:LOOKUP.size])
    ids = chunk.data.column(0).to_numpy() if chunk.data is not None else np.empty(0, np.int64)
    assert ids.size == n
    return Asked(lookup, epoch, version, shard, shards, budget, ids, metadata[LOOKUP.size:LOOKUP.size + name].decode())
