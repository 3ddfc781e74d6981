"""A client of the wire that shares no code with the product: plain pyarrow.flight, and struct for the headers as
csrc/flight/wire.h draws them."""

import contextlib
import itertools
import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

LOOKUP = struct.Struct("<IHBBQQQIIQI")
ANSWER = struct.Struct("<IHBBQQIIII")
MAGIC, FORMAT = 0x5053564C, 1
WIRES = {"f32": (0, np.float32), "f16": (1, np.float16), "bf16": (2, np.uint16), "int8": (3, np.uint8)}
CODES = ["ok", "shard_map_mismatch", "unknown_table", "unknown_epoch", "bad_request", "overloaded", "closing",
         "expired"]
IDS = pa.schema([("id", pa.int64())])


@dataclass
class Answer:
    """One message of the server: an answer's header, and what came with it."""

    code: str
    lookup: int
    epoch: int
    first: int
    count: int
    dim: int
    message: str
    rows: bytes
    statuses: bytes


class Refused(Exception):
    """A lookup that the server refused; `code` says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


def lookup_header(table: str, ids: int, *, lookup: int = 1, epoch: int = 1, map_version: int = 1, shard: int = 0,
                  shards: int = 1, budget_us: int = 0, wire: str = "f32") -> bytes:
    """A lookup's metadata."""
    name = table.encode()
    return LOOKUP.pack(MAGIC, FORMAT, WIRES[wire][0], len(name), lookup, epoch, map_version, shard, shards, budget_us,
                       ids) + name


class WireClient:
    """One lookup stream, and the control calls, of the server at `address`."""

    def __init__(self, address: str, token: str | None = None, **tls: Any) -> None:
        self.connection = fl.connect(address, **tls)
        headers = [(b"authorization", b"Bearer " + token.encode())] if token else []
        self.options = fl.FlightCallOptions(headers=headers)
        self._numbers = itertools.count(1)
        self._writer: Any = None
        self._reader: Any = None

    def open(self, schema: pa.Schema = IDS) -> None:
        """Open the lookup stream, if it is not open yet."""
        if self._writer is None:
            self._writer, self._reader = self.connection.do_exchange(fl.FlightDescriptor.for_command(b"lookup"),
                                                                     self.options)
            self._writer.begin(schema)

    def send(self, metadata: bytes, batch: pa.RecordBatch | None) -> None:
        """Send any message."""
        self.open()
        if batch is None:
            self._writer.write_metadata(metadata)
        else:
            self._writer.write_with_metadata(batch, metadata)

    def receive(self) -> Answer:
        """The next message. Raises what Flight raises, and EOFError at the end of the stream."""
        chunk = self._reader.read_chunk()
        metadata = chunk.app_metadata.to_pybytes()
        magic, form, _, code, lookup, epoch, first, count, dim, message_bytes = ANSWER.unpack(metadata[:ANSWER.size])
        assert (magic, form) == (MAGIC, FORMAT)
        message = metadata[ANSWER.size:]
        assert len(message) == message_bytes
        rows = statuses = b""
        if chunk.data is not None:
            assert chunk.data.num_rows == 1
            rows, statuses = (chunk.data.column(i)[0].as_py() for i in range(2))
        return Answer(CODES[code], lookup, epoch, first, count, dim, message.decode(), rows, statuses)

    def ask(self, table: str, ids: Any, **header: Any) -> int:
        """Send a lookup; returns its number."""
        ids = np.asarray(ids, np.int64)
        number = next(self._numbers)
        self.send(lookup_header(table, ids.size, lookup=number, **header),
                  pa.record_batch([pa.array(ids)], IDS))
        return number

    def lookup(self, table: str, ids: Any, *, wire: str = "f32", **header: Any) -> tuple[np.ndarray, np.ndarray]:
        """Rows [n, dim] and statuses [n] of a lookup. Raises Refused."""
        number = self.ask(table, ids, wire=wire, **header)
        return self.collect(number, len(ids), wire)

    def collect(self, number: int, n: int, wire: str) -> tuple[np.ndarray, np.ndarray]:
        """What answers one lookup, checked for order and completeness."""
        rows, statuses, got, dim = [], [], 0, 0
        while True:
            answer = self.receive()
            assert answer.lookup == number
            if answer.code != "ok":
                raise Refused(answer.code, answer.message)
            assert answer.first == got and len(answer.statuses) == answer.count
            rows.append(answer.rows)
            statuses.append(answer.statuses)
            got, dim = got + answer.count, answer.dim
            if got == n:
                break
        kind = WIRES[wire][1]
        width = (dim + 3) // 4 * 4 + 8 if wire == "int8" else dim
        return (np.frombuffer(b"".join(rows), kind).reshape(n, width),
                np.frombuffer(b"".join(statuses), np.uint8))

    def action(self, name: str, **arguments: Any) -> dict[str, Any]:
        """A control action's result. Raises FlightError."""
        (result,) = self.connection.do_action(fl.Action(name, json.dumps(arguments).encode()), self.options)
        return json.loads(result.body.to_pybytes())

    def push(self, table: pa.Table, **command: Any) -> dict[str, Any]:
        """Upload an Arrow table as a delta. Raises FlightError."""
        descriptor = fl.FlightDescriptor.for_command(json.dumps({"action": "stage", **command}).encode())
        writer, reader = self.connection.do_put(descriptor, table.schema, self.options)
        with writer:
            writer.write_table(table)
            writer.done_writing()
            reply = reader.read()
        return json.loads(reply.to_pybytes())

    def end(self) -> None:
        """Say that no lookup follows."""
        self._writer.done_writing()

    def close(self) -> None:
        """End the stream, however it fares, and drop the connection."""
        if self._writer is not None:
            with contextlib.suppress(fl.FlightError, pa.ArrowException):
                self._writer.close()
        self.connection.close()


def failure(error: fl.FlightError) -> dict[str, Any]:
    """What a failed control call says."""
    return json.loads(error.extra_info)
