"""Requests as columns: Arrow IPC files and streams, and Parquet; a row a request, a column an input.

An input of shape [any, 3] is a list of lists of 3 values, one inner list a candidate; a level less is one candidate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from models.loaders import Loaded, TensorSpec

from .errors import RequestsError

__all__ = ["arrow_requests", "parquet_requests"]

_Rows = Iterator[tuple[None, Mapping[str, np.ndarray]]]
_KINDS = {"i": "iu", "u": "iu", "f": "f", "b": "b", "O": "O"}
"""What a column may hold for an input, by the kinds of numpy's dtypes."""


def arrow_requests(file: Path, loaded: Loaded, signature: str | None) -> _Rows:
    """(None, inputs) of each row of an Arrow IPC file or stream. Raises RequestsError."""
    def batches() -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(file), "rb") as source:
            if source.read(6) == b"ARROW1":
                reader = pa.ipc.open_file(source)
                for number in range(reader.num_record_batches):
                    yield reader.get_batch(number)
                return
            source.seek(0)
            yield from pa.ipc.open_stream(source)

    return _requests(file, batches(), loaded, signature)


def parquet_requests(file: Path, loaded: Loaded, signature: str | None) -> _Rows:
    """(None, inputs) of each row of a Parquet file. Raises RequestsError."""
    def batches() -> Iterator[pa.RecordBatch]:
        with pa.parquet.ParquetFile(file) as source:
            yield from source.iter_batches()

    return _requests(file, batches(), loaded, signature)


def _requests(file: Path, batches: Iterator[pa.RecordBatch], loaded: Loaded, signature: str | None) -> _Rows:
    named = signature or "serving_default"
    specs = loaded.signatures[named].inputs if named in loaded.signatures else {}
    record = 0
    while True:
        try:
            batch = next(batches, None)
            if batch is None:
                return
            batch.validate(full=True)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise RequestsError(file, f"it is damaged: {str(error).splitlines()[0]}", record) from error
        names = batch.schema.names
        if len(set(names)) != len(names):
            raise RequestsError(file, f"columns {names} came; expected one for each input")
        columns = [batch.column(name) for name in names]
        for row in range(batch.num_rows):
            yield None, {name: _array(file, record, name, column[row], specs.get(name))
                         for name, column in zip(names, columns, strict=True)}
            record += 1


def _array(file: Path, record: int, name: str, cell: pa.Scalar, spec: TensorSpec | None) -> np.ndarray:
    """A cell as the input's dtype and rank. What is no input is told later, all names at once."""
    def refuse(problem: str) -> RequestsError:
        return RequestsError(file, f"input {name!r}: {problem}", record)

    if spec is None:
        return np.empty(0)
    values, depth = cell.type, 0
    while pa.types.is_list(values) or pa.types.is_large_list(values) or pa.types.is_fixed_size_list(values):
        values, depth = values.value_type, depth + 1
    try:
        wanted = np.dtype(object if spec.dtype == "string" else spec.dtype)
    except TypeError as error:
        raise refuse(f"{spec.dtype} is expected, which no column holds: record TensorFlow Serving's log instead"
                     ) from error
    if _kind(values) not in _KINDS.get(wanted.kind, ""):
        raise refuse(f"{values} came, expected {spec.dtype}")
    rank = depth if spec.shape is None else len(spec.shape)
    if depth not in (rank, rank - 1):
        raise refuse(f"{cell.type} came, {depth} lists deep; expected {rank}, for shape {list(spec.shape or ())}")
    if cell.as_py() is None:
        raise refuse("null came, expected a value")
    array = _stacked(cell.as_py(), depth, wanted, refuse)
    return array if depth == rank else array[None]


def _kind(values: pa.DataType) -> str:
    if pa.types.is_boolean(values):
        return "b"
    if pa.types.is_integer(values):
        return "i"
    if pa.types.is_floating(values):
        return "f"
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
            pa.types.is_fixed_size_binary)
    return "O" if any(test(values) for test in text) else "?"


def _stacked(value: Any, depth: int, dtype: np.dtype, refuse) -> np.ndarray:
    """Nested lists as an array of `depth` dimensions."""
    shape, level = [], [value]
    for _ in range(depth):
        if any(one is None for one in level):
            raise refuse("null came in a list, expected a value")
        lengths = {len(one) for one in level}
        if len(lengths) > 1:
            raise refuse(f"lists of {min(lengths)} and of {max(lengths)} values came side by side, expected equal ones")
        shape.append(lengths.pop() if lengths else 0)
        level = [item for one in level for item in one]
    if any(one is None for one in level):
        raise refuse("null came in a list, expected a value")
    if dtype == object:
        level = [one.encode() if isinstance(one, str) else one for one in level]
        array = np.empty(len(level), object)
        array[:] = level
        return array.reshape(shape)
    try:
        return np.array(level, dtype).reshape(shape)
    except OverflowError as error:
        raise refuse(f"a number came that is outside {dtype}") from error
