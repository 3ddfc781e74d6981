"""Stage 9: a share of the requests is logged with what was served: feature values, row ids, plan, slices and scores.

Requests never wait for it: what finds the queue full is dropped and counted. A thread writes Arrow streams,
`<folder>/<milliseconds>-<process>.arrow`, a batch a second at most; a file that is full is closed, and the oldest are
removed beyond `files_max`. A crash loses the batch that was not written. `lambda-svc explain` reads them.
"""

from __future__ import annotations

import logging
import os
import queue
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from feature_store import Column, SlotValues
from lambda_svc.request import SIDES, ParsedRequest

if TYPE_CHECKING:
    from lambda_svc.config import RequestLogConfig
    from lambda_svc.plan import ScenarioPlan

__all__ = ["SCHEMA", "RequestLog", "slots_served"]

log = logging.getLogger("lambda_svc")

_ARRAY = pa.struct([("dtype", pa.string()), ("shape", pa.list_(pa.int64())), ("bytes", pa.binary())])
_SLOT = pa.struct([("side", pa.string()), ("slot", pa.string()), ("values", _ARRAY), ("offsets", _ARRAY),
                   ("lengths", _ARRAY)])
SCHEMA = pa.schema([
    ("request_id", pa.string()), ("time_ms", pa.int64()), ("scenario", pa.string()), ("model", pa.string()),
    ("version", pa.int64()), ("engine", pa.string()), ("precision", pa.string()), ("variant", pa.string()),
    ("level", pa.int32()), ("slice_rows", pa.int64()), ("user_id", pa.int64()), ("candidate_ids", pa.list_(pa.int64())),
    ("scored", pa.int64()), ("formula", pa.string()), ("formula_inputs", pa.list_(_ARRAY)),
    ("known", pa.list_(pa.bool_())), ("slots", pa.list_(_SLOT)), ("positions", pa.list_(pa.int64())),
    ("rank_scores", pa.list_(pa.float64())),
    ("heads", pa.list_(pa.struct([("head", pa.string()), ("scores", _ARRAY)]))),
])
"""One row a request. Arrays are little-endian bytes; heads and rank scores are in the order of `positions`, best first,
of which `scored` were scored; slots hold what the model was fed: values after transforms, for ids the row ids."""

_BATCH_ROWS, _BATCH_S = 64, 1.0


class _Served(NamedTuple):
    time_ms: int
    plan: ScenarioPlan
    request: ParsedRequest
    result: Any


class RequestLog:
    """Writes what it is offered. Thread-safe; `close` writes what waits."""

    def __init__(self, config: RequestLogConfig) -> None:
        """Raises OSError when the folder cannot be made."""
        self._config = config
        config.folder.mkdir(parents=True, exist_ok=True)
        self._queue: queue.Queue[_Served | None] = queue.Queue(config.queue_max)
        self._file: _LogFile | None = None
        self.written = self.dropped = self.failed = 0
        self._thread = threading.Thread(target=self._work, name="request-log", daemon=True)
        self._thread.start()

    def offer(self, plan: ScenarioPlan, request: ParsedRequest, result: Any) -> None:
        """Logs a request that was answered, when it is among the share that is."""
        if random.random() >= self._config.share:
            return
        try:
            self._queue.put_nowait(_Served(time.time_ns() // 10**6, plan, request, result))
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Ends the thread once everything is written."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while self._batch():
            pass
        if self._file is not None:
            self._file.close()

    def _batch(self) -> bool:
        """Writes what comes within a second; whether there is more to come. Holds on to nothing in between."""
        rows, goes_on = [], True
        end = None
        while len(rows) < _BATCH_ROWS:
            try:
                served = self._queue.get(timeout=None if end is None else max(0.0, end - time.monotonic()))
            except queue.Empty:
                break
            if served is None:
                goes_on = False
                break
            end = end or time.monotonic() + _BATCH_S
            row = self._row(served)
            rows += [] if row is None else [row]
            del served
        if rows:
            self._write(rows)
        return goes_on

    def _row(self, served: _Served) -> dict | None:
        try:
            return _row(served)
        except Exception:  # a request that cannot be logged must not end the log
            self.failed += 1
            log.exception("request %s cannot be logged", served.request.request_id)
            return None

    def _write(self, rows: list[dict]) -> None:
        try:
            if self._file is None or self._file.bytes >= self._config.file_bytes_max:
                if self._file is not None:
                    self._file.close()
                self._file = _LogFile(self._config.folder)
                self._remove_oldest()
            self._file.write(rows)
            self.written += len(rows)
        except OSError as error:
            self.failed += len(rows)
            self._file = None
            log.error("%d requests cannot be logged in %s: %s", len(rows), self._config.folder, error)

    def _remove_oldest(self) -> None:
        for path in sorted(self._config.folder.glob("*.arrow"))[:-self._config.files_max]:
            path.unlink(missing_ok=True)


class _LogFile:
    """One open file."""

    def __init__(self, folder: Path) -> None:
        self._sink = pa.OSFile(str(folder / f"{time.time_ns() // 10**6}-{os.getpid()}.arrow"), "wb")
        self._writer = pa.ipc.new_stream(self._sink, SCHEMA)

    @property
    def bytes(self) -> int:
        return self._sink.tell()

    def write(self, rows: list[dict]) -> None:
        """A batch, out of this process's hands when it returns."""
        self._writer.write_batch(pa.RecordBatch.from_pylist(rows, SCHEMA))
        self._sink.flush()

    def close(self) -> None:
        """Ends the stream."""
        self._writer.close()
        self._sink.close()


def slots_served(plan: ScenarioPlan, request: ParsedRequest) -> Iterator[tuple[str, str, SlotValues]]:
    """(side, slot, values) of what the model was fed: one row for the user and the context, one a candidate."""
    keys = {"user": np.array([request.user_id], np.int64), "context": np.zeros(1, np.int64),
            "item": request.candidate_ids}
    for side, extractor in plan.model.extractors.items():
        place = SIDES.index(side)
        names = {index: name for name, (index, _) in plan.spec.features[place].items()}
        rows = len(keys[side])
        columns = {names[index]: Column(values, row_offsets, byte_offsets, extractor.feature(names[index]).shape(rows))
                   for at, index, values, row_offsets, byte_offsets in request.columns if at == place}
        for slot, values in extractor.gather(keys[side], columns).items():
            yield side, slot, values


def _row(served: _Served) -> dict:
    plan, request, result = served.plan, served.request, served.result
    wire, cache = plan.wire, plan.model.caches["item"]
    known = np.ones(len(request.candidate_ids), bool) if cache is None else cache.contains(request.candidate_ids)
    return {
        "request_id": request.request_id, "time_ms": served.time_ms, "scenario": plan.scenario, "model": wire.model,
        "version": wire.version, "engine": wire.engine, "precision": wire.precision, "variant": wire.variant,
        "level": 0, "slice_rows": plan.config.slice_rows, "user_id": request.user_id,
        "candidate_ids": request.candidate_ids, "scored": result.scored,
        "formula": request.formula or plan.config.formula,
        "formula_inputs": [_array(values) for values in request.formula_inputs],
        "known": known,
        "slots": [{"side": side, "slot": slot, "values": _array(values.values), "offsets": _array(values.offsets),
                   "lengths": _array(values.lengths)} for side, slot, values in slots_served(plan, request)],
        "positions": result.positions.astype(np.int64), "rank_scores": result.rank_scores,
        "heads": [{"head": head, "scores": _array(scores)}
                  for head, scores in zip(plan.heads, result.heads, strict=True)],
    }


def _array(values: np.ndarray | None) -> dict | None:
    if values is None:
        return None
    return {"dtype": values.dtype.str, "shape": list(values.shape), "bytes": np.ascontiguousarray(values).tobytes()}
