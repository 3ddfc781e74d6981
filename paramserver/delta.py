"""Deltas: what changes in one table, with one sequence number, taken whole or not at all; and their Arrow form.

An Arrow IPC file or stream of columns `id` int64 and `row` fixed_size_list<float|halffloat>[dim], where a null row
deletes its id. The schema's metadata holds, in decimal text, `lambda_svc.table`, `.base_version`, `.sequence`,
`.time_s`, and in hexadecimal `.checksum`: blake2b of 16 bytes over, all little-endian, the UTF-8 line
"lambda_svc delta 1\\n<table>\\n<base_version> <sequence> <time_s> <dim> <n> <m>\\n", then the n ids (int64), their rows
(float32, halves widened) and the m deleted ids (int64), each in the order of the file.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from paramserver import arrays, durable
from paramserver.errors import CallerError, ChecksumError, DeltaError
from paramserver.shard_map import shard_of

__all__ = ["DELTA_BYTES_MAX", "Delta", "arrow_of", "check_table_name", "delta_of", "expect_number", "read_delta",
           "read_place", "write_delta"]

#: Bytes of a delta's file, and of its ids and rows in memory.
DELTA_BYTES_MAX = 4 << 30
_TABLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_PREFIX = b"lambda_svc."
_NUMBERS = {"base_version": (0, 2**63 - 1), "sequence": (1, 2**63 - 1), "time_s": (0, 2**32 - 1)}
_FILE_MAGIC = b"ARROW1"


@dataclass(frozen=True, eq=False)
class Delta:
    """table: 1 to 128 letters, digits, `_`, `.` and `-`. base_version: the package version that it changes, 0 to
    2**63 - 1. sequence: its number in that table and version, 1 to 2**63 - 1, without gaps. ids int64|uint64[n] get
    rows float32[n, dim] (finite; dim is told by shape[1] even when n is 0); deletes int64|uint64[m] are forgotten. No
    id twice, in either. time_s: seconds since 1970 from which its rows' TTL counts, 0 to 2**32 - 1.

    The arrays are kept, not copied: do not write to them. Raises DeltaError, IdError, ArrayError."""

    table: str
    base_version: int
    sequence: int
    ids: np.ndarray
    rows: np.ndarray
    deletes: np.ndarray
    time_s: int = 0

    def __post_init__(self) -> None:
        check_table_name(self.table)
        for name in _NUMBERS:
            object.__setattr__(self, name, expect_number(name, getattr(self, name)))
        for name in ("ids", "deletes"):
            object.__setattr__(self, name, arrays.as_ids(getattr(self, name)))
        shape = np.shape(self.rows)
        dim = shape[1] if len(shape) == 2 else 0
        if not 1 <= dim <= arrays.DIM_MAX:
            raise DeltaError(f"{self}: rows has shape {shape}, expected [n, dim] with dim 1 to {arrays.DIM_MAX}")
        object.__setattr__(self, "rows", arrays.as_rows(self.rows, self.ids.size, dim))
        if self.bytes > DELTA_BYTES_MAX:
            raise DeltaError(f"{self} holds {self.bytes} bytes, at most {DELTA_BYTES_MAX}: send it as several deltas")
        self._check_content()

    def _check_content(self) -> None:
        finite = np.isfinite(self.rows).all(axis=1)
        if not finite.all():
            i = int(np.argmin(finite))
            raise DeltaError(f"{self}: the row of id {self.ids[i]} holds NaN or infinity, expected finite numbers")
        every = np.sort(np.concatenate([self.ids, self.deletes]))
        twice = every[1:][every[1:] == every[:-1]]
        if twice.size:
            both = np.isin(twice[0], self.ids) and np.isin(twice[0], self.deletes)
            how = "is both written and deleted" if both else "is there twice"
            raise DeltaError(f"{self}: id {twice[0]} {how}: keep what came last")

    def __str__(self) -> str:
        return f"delta {self.sequence} of table {self.table!r}, base version {self.base_version}"

    @property
    def dim(self) -> int:
        """Numbers in a row."""
        return self.rows.shape[1]

    @property
    def bytes(self) -> int:
        """Bytes of ids, rows and deletes."""
        return self.ids.nbytes + self.rows.nbytes + self.deletes.nbytes

    @cached_property
    def checksum(self) -> str:
        """blake2b over the canonical bytes (see the module), 32 hexadecimal digits."""
        head = (f"lambda_svc delta 1\n{self.table}\n{self.base_version} {self.sequence} {self.time_s} {self.dim} "
                f"{self.ids.size} {self.deletes.size}\n")
        digest = hashlib.blake2b(head.encode(), digest_size=16)
        for array, kind in ((self.ids, "<i8"), (self.rows, "<f4"), (self.deletes, "<i8")):
            digest.update(array.astype(kind, copy=False).reshape(-1).view(np.uint8))
        return digest.hexdigest()

    def split(self, shards: int) -> "list[Delta]":
        """The part of each shard, `shards` deltas of this sequence, some perhaps empty: every shard takes every
        sequence, so that none has gaps. Raises ShardMapError."""
        places, deleted = shard_of(self.ids, shards), shard_of(self.deletes, shards)
        if shards == 1:
            return [self]
        parts = []
        for shard in range(shards):
            here = places == shard
            parts.append(Delta(self.table, self.base_version, self.sequence, self.ids[here], self.rows[here],
                               self.deletes[deleted == shard], self.time_s))
        return parts


def check_table_name(name: Any) -> None:
    """Raise DeltaError unless `name` is 1 to 128 letters, digits, `_`, `.` and `-`, the first no `.` or `-`: table
    names become names of files."""
    if not isinstance(name, str) or not _TABLE.fullmatch(name):
        raise DeltaError(f"table is {name!r:.200}, expected 1 to 128 letters, digits, '_', '.' and '-', not beginning "
                         "with '.' or '-'")


def expect_number(name: str, value: Any) -> int:
    """A delta's base_version, sequence or time_s as int; DeltaError unless it is an integer in its range."""
    low, high = _NUMBERS[name]
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise DeltaError(f"{name} is {value!r:.100}, expected an integer from {low} to {high}")
    return int(value)


def arrow_of(delta: Delta) -> pa.Table:
    """The delta as an Arrow table with its metadata, written ids first, deleted ones after."""
    n, m = delta.ids.size, delta.deletes.size
    row_type = pa.list_(pa.float32(), delta.dim)
    rows = pa.FixedSizeListArray.from_arrays(pa.array(delta.rows.reshape(-1)), type=row_type)
    columns = [pa.chunked_array([pa.array(delta.ids), pa.array(delta.deletes)], pa.int64()),
               pa.chunked_array([rows, pa.nulls(m, row_type)], row_type)]
    said = {name: str(getattr(delta, name)) for name in ("table", *_NUMBERS, "checksum")}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("row", row_type)],
                       {_PREFIX + name.encode(): text.encode() for name, text in said.items()})
    return pa.Table.from_arrays([c.combine_chunks() if n + m == 0 else c for c in columns], schema=schema)


def write_delta(path: str | Path, delta: Delta) -> None:
    """Write the delta as an Arrow IPC file, which appears whole and synced, by rename. Raises StoreError, StoreFull."""
    path = Path(path)
    table = arrow_of(delta)
    with durable.disk_errors(f"{path}: the delta is not written"), durable.replacing(path) as temporary, \
            open(temporary, "xb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def read_delta(source: str | Path | bytes) -> Delta:
    """The delta in an Arrow IPC file or stream, given as a path or as its bytes. Raises DeltaError naming file and
    field, ChecksumError when the content is not what its checksum says, whatever the bytes are."""
    name = "the delta's bytes" if isinstance(source, bytes) else str(source)
    raw = source if isinstance(source, bytes) else _bytes_of(Path(source))
    try:
        reader = pa.ipc.open_file(raw) if raw[:6] == _FILE_MAGIC else pa.ipc.open_stream(raw)
        with reader:
            table = reader.read_all()
        table.validate(full=True)
    # Damaged metadata is decoded as text, damaged lengths are asked of the allocator.
    except (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError) as error:
        raise DeltaError(f"{name}: no Arrow IPC file or stream, or a damaged one ({error})") from error
    return delta_of(table, name)


def read_place(path: str | Path) -> tuple[str, int, int]:
    """(table, base_version, sequence) of the delta in an Arrow IPC file or stream, without its rows: its content may
    be damaged all the same. Raises DeltaError."""
    try:
        with pa.OSFile(str(path)) as file:
            magic = file.read(len(_FILE_MAGIC))
            file.seek(0)
            with pa.ipc.open_file(file) if magic == _FILE_MAGIC else pa.ipc.open_stream(file) as reader:
                said = _metadata(reader.schema)
        check_table_name(said["table"])
    except DeltaError as error:
        raise DeltaError(f"{path}: {error}") from error
    except (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError) as error:
        raise DeltaError(f"{path}: no Arrow IPC file or stream, or a damaged one ({error})") from error
    return said["table"], said["base_version"], said["sequence"]


def delta_of(table: pa.Table, origin: str = "the delta") -> Delta:
    """The delta that an Arrow table describes (see the module); `origin` opens the messages. Raises DeltaError,
    ChecksumError."""
    try:
        said = _metadata(table.schema)
        ids, rows, deletes = _columns(table)
        delta = Delta(said["table"], said["base_version"], said["sequence"], ids, rows, deletes, said["time_s"])
    except (CallerError, pa.ArrowException, ValueError) as error:
        raise DeltaError(f"{origin}: {error}") from error
    if delta.checksum != said["checksum"]:
        raise ChecksumError(f"{origin}: {delta}: its content has checksum {delta.checksum}, its metadata says "
                            f"{said['checksum']!r:.100}: damaged on the way, write and send it again")
    return delta


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(DELTA_BYTES_MAX + 1)
    except OSError as error:
        raise DeltaError(f"{path}: {error.strerror or error}; expected a delta's file") from error
    if len(raw) > DELTA_BYTES_MAX:
        raise DeltaError(f"{path} is over {DELTA_BYTES_MAX} bytes: send it as several deltas")
    return raw


def _metadata(schema: pa.Schema) -> dict[str, Any]:
    metadata = schema.metadata or {}
    said: dict[str, Any] = {}
    for name in ("table", *_NUMBERS, "checksum"):
        raw = metadata.get(_PREFIX + name.encode())
        if raw is None:
            raise DeltaError(f"the schema's metadata lacks {_PREFIX.decode()}{name}")
        text = raw.decode("utf-8", "replace")
        if name in _NUMBERS:
            if not re.fullmatch(r"[0-9]{1,19}", text, re.ASCII):
                raise DeltaError(f"{_PREFIX.decode()}{name} is {text!r:.100}, expected a decimal number")
            said[name] = expect_number(name, int(text))
        else:
            said[name] = text
    return said


def _columns(table: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if table.schema.names != ["id", "row"]:
        raise DeltaError(f"columns are {table.schema.names}, expected ['id', 'row']")
    id_type, row_type = table.schema.field("id").type, table.schema.field("row").type
    if id_type not in (pa.int64(), pa.uint64()):
        raise DeltaError(f"column 'id' is {id_type}, expected int64: ids that went through another type must be read "
                         "again")
    if not pa.types.is_fixed_size_list(row_type) or row_type.value_type not in (pa.float32(), pa.float16()):
        raise DeltaError(f"column 'row' is {row_type}, expected fixed_size_list<float>[dim]")
    if not 1 <= row_type.list_size <= arrays.DIM_MAX:
        raise DeltaError(f"column 'row' has {row_type.list_size} elements a row, expected 1 to {arrays.DIM_MAX}")
    if table.column("id").null_count:
        raise DeltaError("column 'id' holds a null, expected an id in every row")
    ids = table.column("id").to_numpy().view(np.int64)
    written = np.concatenate([np.zeros(0, bool), *(c.is_valid().to_numpy(False) for c in table.column("row").chunks)])
    return ids[written], _rows(table.column("row"), row_type.list_size), ids[~written]


def _rows(column: pa.ChunkedArray, dim: int) -> np.ndarray:
    parts = [np.empty((0, dim), np.float32)]
    for chunk in column.chunks:
        # flatten() leaves out the rows that are null.
        values = chunk.flatten()
        if values.null_count:
            raise DeltaError("column 'row' has a null element, expected whole rows, and a null row for a deleted id")
        parts.append(values.to_numpy(False).astype(np.float32, copy=False).reshape(-1, dim))
    return parts[1] if len(parts) == 2 else np.concatenate(parts)
