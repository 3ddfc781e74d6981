"""TensorFlow Serving's warm-up files: a TFRecord of PredictionLog messages.

TensorFlow's own reader checks lengths and masked CRC32C of the records. Imports tensorflow when it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError

from models.loaders import Loaded

from . import prediction_log_pb2 as pb
from .errors import RequestsError

__all__ = ["warmup_requests"]

_Records = Iterator[tuple[str, Mapping[str, np.ndarray]]]
_DEFAULT = "serving_default"
_FRAME_BYTES = 16  # a record's length with its checksum, and the checksum of its content


def warmup_requests(file: Path, loaded: Loaded, signature: str | None) -> _Records:
    """(signature, inputs) of each record; those for another signature than the one asked for have no inputs.

    Raises RequestsError naming the record that is damaged, or no request that scores anything.
    """
    for record, raw in enumerate(_records(file)):
        log = pb.PredictionLog()
        try:
            log.ParseFromString(raw)
        except DecodeError as error:
            raise RequestsError(file, f"{len(raw)} bytes came that are no PredictionLog", record) from error
        kind = log.WhichOneof("log_type")
        if kind is None:
            raise RequestsError(file, "expected a PredictionLog with a request, came a message without one", record)
        if kind not in ("predict_log", "classify_log", "regress_log"):
            raise RequestsError(file, f"a {kind} came; expected predict_log, classify_log or regress_log", record)
        request = getattr(log, kind).request
        named = request.model_spec.signature_name or _DEFAULT
        if signature is not None and named != signature:
            yield named, {}
        elif kind == "predict_log":
            yield named, _tensors(file, record, request)
        else:
            yield named, _examples(file, record, request.input, loaded, named)


def _records(file: Path) -> Iterator[bytes]:
    import tensorflow as tf

    at = read = 0
    try:
        for raw in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
            yield raw
            at, read = at + 1, read + len(raw) + _FRAME_BYTES
    except tf.errors.OpError as error:
        raise RequestsError(file, f"{_expected(at)}: {_first_line(error)}", at) from error
    left = file.stat().st_size - read
    if left:  # the reader takes what is shorter than a record's head for the end
        raise RequestsError(file, f"{_expected(at)}: {left} bytes came that are no record", at)


def _expected(record: int) -> str:
    return "expected a whole TFRecord" if record else "it is neither Parquet, Arrow nor a whole TFRecord"


def _first_line(error: Exception) -> str:
    text = getattr(error, "message", str(error)).partition("\n")[0]
    return text.rpartition("}} ")[2].partition(" [Op:")[0]


def _tensors(file: Path, record: int, request: pb.PredictRequest) -> dict[str, np.ndarray]:
    import tensorflow as tf
    from tensorflow.core.framework import tensor_pb2

    found = {}
    for name, raw in request.inputs.items():
        try:
            found[name] = tf.make_ndarray(tensor_pb2.TensorProto.FromString(raw))
        except DecodeError as error:
            raise RequestsError(file, f"input {name!r}: {len(raw)} bytes came that are no TensorProto", record
                                ) from error
        except (TypeError, ValueError) as error:  # of a dtype that numpy lacks, or of fewer values than its shape says
            raise RequestsError(file, f"input {name!r}: {error}", record) from error
    return found


def _examples(file: Path, record: int, given: pb.Input, loaded: Loaded, named: str) -> dict[str, np.ndarray]:
    """The one input of a signature over serialised tf.Examples; nothing for a signature that the model lacks."""
    if named not in loaded.signatures:
        return {}
    signature = loaded.signature(named)
    if len(signature.inputs) != 1 or next(iter(signature.inputs.values())).dtype != "string":
        raise RequestsError(file, f"a request of tf.Examples came, and signature {named!r} takes "
                                  f"{', '.join(signature.inputs)}: expected one input of strings", record)
    kind = given.WhichOneof("kind")
    if kind is None:
        raise RequestsError(file, "expected a list of tf.Examples, came none", record)
    examples = list(getattr(given, kind).examples)
    if kind == "example_list_with_context":
        # Messages written one after the other are merged, as TensorFlow Serving does it.
        examples = [given.example_list_with_context.context + example for example in examples]
    values = np.empty(len(examples), object)
    values[:] = examples
    return {next(iter(signature.inputs)): values}
