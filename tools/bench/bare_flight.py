"""A bare Flight server and its client: an exchange stream that is sent ids and answers with as many rows, copied from
one block of memory, looked up nowhere. What is left of a remote lookup when rows cost nothing.

    python -m tools.bench.bare_flight ROW_BYTES ROWS_MAX      prints its port, serves until its standard input ends
"""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

__all__ = ["BareCopy", "main"]

_IDS = pa.schema([("id", pa.int64())])


def _rows_schema(row_bytes: int) -> pa.Schema:
    return pa.schema([("row", pa.binary(row_bytes))])


class _Server(flight.FlightServerBase):
    def __init__(self, row_bytes: int, rows_max: int) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._schema = _rows_schema(row_bytes)
        block = np.random.default_rng(1).integers(0, 256, rows_max * row_bytes, np.uint8)
        self._block = pa.FixedSizeBinaryArray.from_buffers(pa.binary(row_bytes), rows_max, [None, pa.py_buffer(block)])

    def do_exchange(self, context, descriptor, reader, writer) -> None:
        """Answers every batch of ids with a batch of rows."""
        writer.begin(self._schema)
        for chunk in reader:
            rows = self._block.slice(0, len(chunk.data))
            writer.write_batch(pa.record_batch([rows], schema=self._schema))


class BareCopy:
    """A bare server in a process of its own, and one stream to it."""

    def __init__(self, row_bytes: int, rows_max: int) -> None:
        command = [sys.executable, "-m", "tools.bench.bare_flight", str(row_bytes), str(rows_max)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        port = self._process.stdout.readline().strip()
        self._client = flight.FlightClient(f"grpc://127.0.0.1:{port}")
        self._writer, self._reader = self._client.do_exchange(flight.FlightDescriptor.for_command(b"copy"))
        self._writer.begin(_IDS)

    def copy(self, ids: np.ndarray, out: np.ndarray) -> None:
        """Sends int64[n] ids and copies the answer into out, uint8[n, row_bytes]."""
        self._writer.write_batch(pa.record_batch([pa.array(ids)], schema=_IDS))
        rows = self._reader.read_chunk().data.column(0)
        first = rows.offset * out.shape[1]
        out.reshape(-1)[:] = np.frombuffer(rows.buffers()[1], np.uint8, out.size, first)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._writer.close()
        self._client.close()
        self._process.stdin.close()
        self._process.wait()


def main(row_bytes: int, rows_max: int) -> None:
    """Serves until standard input ends."""
    with _Server(row_bytes, rows_max) as server:
        print(server.port, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
