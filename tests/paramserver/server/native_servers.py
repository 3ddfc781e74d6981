"""A native server inside the test's process, without a store behind it."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from paramserver import Table
from paramserver.native_flight import native
from tests.paramserver.server.servers import rows_of

IDS = np.arange(-100, 5_000, dtype=np.int64)


def echo(action: str, body: bytes, file: str) -> tuple[int, str]:
    """A control function that says how it was called; action "fail" fails as the body says."""
    if action == "fail":
        return json.loads(body)["outcome"], json.dumps({"error": "DeltaError", "message": "as asked"})
    if action == "download":
        with pa.OSFile(file, "wb") as sink, pa.ipc.new_file(sink, pa.schema([("id", pa.int64())])) as writer:
            for batch in range(json.loads(body)["batches"]):
                writer.write_batch(pa.record_batch([pa.array([batch, -batch])], ["id"]))
    if action == "raise":
        raise ValueError("a bug")
    return 0, json.dumps({"action": action, "body": json.loads(body or b"{}"), "file": file})


def native_server(upload_directory: Any = "/nowhere", control: Callable[..., Any] = echo, **options: Any) -> Any:
    """A server on a free port; options as of the native class, with defaults."""
    made = {"host": "127.0.0.1", "port": 0, "certificate": "", "key": "", "client_ca": "", "tokens": [],
            "control_tokens": [], "bounds": (256, 4 << 20, 2, 8192), "streams_max": 64, "epoch_wait_ms": 50,
            "transfers_max": 8, "reserve_bytes": 0, "upload_bytes_max": 1 << 20, **options}
    return native.ShardServer(upload_directory=str(upload_directory), control=control, **made)


def item_server() -> Any:
    """A server of shard 0 of 1, map version 1, that serves table "item" in epoch 1."""
    made = native_server()
    made.set_place(1, 0, 1)
    made.publish(1, [("item", table_of().capsule, False)])
    return made


def table_of(dim: int = 5, dtype: str = "f32", ids: np.ndarray = IDS) -> Table:
    """A table whose epochs 1 and 2 show rows_of(ids); unknown ids get -1."""
    table = Table("item", dim, dtype=dtype, default_row=np.full(dim, -1, np.float32))
    table.upsert(ids, rows_of(ids, dim))
    table.publish(1, 0)
    table.publish(2, 0)
    return table


def address_of(server: Any, scheme: str = "grpc") -> str:
    """Where it listens."""
    return f"{scheme}://127.0.0.1:{server.port}"
