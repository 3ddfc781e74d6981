"""Recorded requests: read from a file, checked against a signature.

Imports tensorflow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from models.loaders import Loaded, Signature, TensorSpec

from .columns import arrow_requests, parquet_requests
from .errors import RequestsError
from .warmup import warmup_requests

__all__ = ["FILE_BYTES_MAX", "REQUESTS_MAX", "Recorded", "Request", "read_requests"]

FILE_BYTES_MAX = 4 << 30
REQUESTS_MAX = 100_000
_DEFAULT = "serving_default"
_MAGIC_BYTES = 16


@dataclass(frozen=True, eq=False)
class Request:
    """One request: `record` is its place in the file, from 0; `inputs` by the signature's names, [rows, ...] each, or
    [1, ...] where the caller sends one row for all; `rows` is how many candidates it has."""

    record: int
    inputs: Mapping[str, np.ndarray]
    rows: int


@dataclass(frozen=True)
class Recorded:
    """All requests of a file for one signature; `others` counts its records for other signatures, by name."""

    file: Path
    format: str
    signature: Signature
    requests: tuple[Request, ...]
    others: Mapping[str, int] = field(default_factory=dict)


def read_requests(path: Path | str, loaded: Loaded, signature: str | None = None) -> Recorded:
    """The requests in `path`: a PredictionLog of TensorFlow Serving, an Arrow file or stream, or Parquet; its content
    says which.

    Without `signature`, the one that all records name, or serving_default. Raises RequestsError naming record and
    input, SignatureError when the model lacks the signature asked for.
    """
    file = Path(path)
    kind, read = _opened(file)
    chosen, found, others = None if signature is None else loaded.signature(signature).name, [], {}
    for record, (named, inputs) in enumerate(read(file, loaded, signature)):
        named = named if named is not None else chosen or _DEFAULT
        if chosen is None:
            chosen = named
            if named not in loaded.signatures:
                raise RequestsError(file, f"it is for signature {named!r}, and the model has "
                                          f"{', '.join(sorted(loaded.signatures)) or 'none'}", record)
        if named != chosen:
            others[named] = others.get(named, 0) + 1
            continue
        found.append(_checked(file, record, inputs, loaded.signature(chosen)))
        if len(found) > REQUESTS_MAX:
            raise RequestsError(file, f"more than {REQUESTS_MAX:,} requests came; keep a sample of them", record)
    if signature is None and others:
        counts = {chosen: len(found)} | others
        raise RequestsError(file, f"its records are for several signatures, {_counted(counts)}: choose one with "
                                  "--signature")
    if not found:
        there = f"; it has {_counted(others)}" if others else ""
        raise RequestsError(file, f"expected at least one request for signature {chosen or _DEFAULT!r}, came none"
                                  f"{there}")
    return Recorded(file, kind, loaded.signature(chosen), tuple(found), others)


def _counted(signatures: Mapping[str, int]) -> str:
    return ", ".join(f"{count} for {name!r}" for name, count in signatures.items())


def _opened(file: Path):
    """The name of a file's format, and the function that reads it."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            start = stream.read(_MAGIC_BYTES)
    except OSError as error:
        raise RequestsError(file, f"expected a file of requests, it cannot be read: {error.strerror}") from error
    if not size:
        raise RequestsError(file, "expected recorded requests, the file is empty")
    if size > FILE_BYTES_MAX:
        raise RequestsError(file, f"{size:,} bytes came, {FILE_BYTES_MAX:,} are allowed: keep a sample of the requests")
    if start.startswith(b"PAR1"):
        return "Parquet", parquet_requests
    if start.startswith(b"ARROW1"):
        return "Arrow file", arrow_requests
    if start.startswith(b"\xff\xff\xff\xff"):
        return "Arrow stream", arrow_requests
    if start.startswith(b"\x1f\x8b"):
        raise RequestsError(file, "it is compressed with gzip; decompress it first")
    return "PredictionLog", warmup_requests


def _checked(file: Path, record: int, inputs: Mapping[str, np.ndarray], signature: Signature) -> Request:
    missing, unknown = (sorted(a - b) for a, b in ((set(signature.inputs), set(inputs)),
                                                    (set(inputs), set(signature.inputs))))
    if missing or unknown:
        said = [f"no {kind} {', '.join(map(repr, names))}" for kind, names in (
            ("value for", missing), ("such input as", unknown)) if names]
        raise RequestsError(file, f"signature {signature.name!r} takes {_listed(signature.inputs)}; {'; '.join(said)}",
                            record)
    for name, spec in signature.inputs.items():
        for problem in _problems(inputs[name], spec):
            raise RequestsError(file, f"input {name!r}: {problem}", record)
    leading = {name: len(value) for name, value in inputs.items()
               if value.ndim and (signature.inputs[name].shape or (-1,))[0] < 0}
    rows = max(leading.values(), default=1)
    if not rows:
        raise RequestsError(file, "expected at least one row, came a request of none", record)
    odd = {name: count for name, count in leading.items() if count not in (1, rows)}
    if odd:
        name, count = next(iter(odd.items()))
        whose = next(n for n, c in leading.items() if c == rows)
        raise RequestsError(file, f"input {name!r}: {count} rows came, and {rows} of {whose!r}; expected as many, or 1",
                            record)
    return Request(record, dict(inputs), rows)


def _problems(value: np.ndarray, spec: TensorSpec) -> Iterator[str]:
    came = "string" if value.dtype == object else value.dtype.name
    if came != spec.dtype:
        yield f"{came} came, expected {spec.dtype}"
    elif spec.shape is not None and (value.ndim != len(spec.shape) or any(
            wanted not in (-1, size) for size, wanted in zip(value.shape, spec.shape, strict=True))):
        yield f"shape {list(value.shape)} came, expected {_shape(spec.shape)}"


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{', '.join('any' if d < 0 else str(d) for d in shape)}]"


def _listed(inputs: Mapping[str, TensorSpec]) -> str:
    return ", ".join(f"{name} ({spec.dtype} {'any shape' if spec.shape is None else _shape(spec.shape)})"
                     for name, spec in inputs.items())
