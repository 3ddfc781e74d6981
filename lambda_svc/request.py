"""Stage 2: parse and validate. Bad input ends here, with an error that names the field; the model never sees it.

Columns are not copied: they stay views of the message's bytes until the native call has read them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from feature_store import Column, Feature, FeatureError, Schema
from lambda_svc.errors import InvalidRequest
from lambda_svc.proto import ranking_pb2 as pb

__all__ = ["NativeColumn", "ParsedRequest", "RequestSpec", "parse", "shown"]

# (side 0 user | 1 context | 2 item, index of the feature on its side, values, row offsets, byte offsets)
NativeColumn = tuple[int, int, np.ndarray, np.ndarray | None, np.ndarray | None]

SIDES = ("user", "context", "item")
NAME_CHARACTERS_MAX = 64
NO_VALUES = bytes(4)  # the byte offsets of no values: one int32 zero


@dataclass(frozen=True)
class RequestSpec:
    """What a scenario accepts; fixed when its model is loaded."""

    candidates_max: int
    formula_inputs: tuple[str, ...]
    features: tuple[Mapping[str, tuple[int, Feature]], ...]  # per side: name -> (native index, feature)

    @classmethod
    def of(cls, schema: Schema, order: Mapping[str, Iterable[str]], candidates_max: int, inputs: tuple[str, ...]):
        """`order[side]` lists the side's feature names in the native order."""
        features = tuple({n: (i, schema.feature(n)) for i, n in enumerate(order.get(side, ()))} for side in SIDES)
        return cls(candidates_max, inputs, features)


@dataclass(frozen=True)
class ParsedRequest:
    """A request that may run: ids int64 [n] (the same bits as uint64), columns checked against the schema."""

    request_id: str
    user_id: int
    candidate_ids: np.ndarray
    top_k: int
    columns: list[NativeColumn]
    formula_inputs: list[np.ndarray]
    formula: str  # empty: the scenario's


def parse(message: pb.RankRequest, spec: RequestSpec) -> ParsedRequest:
    """Checks every field. Raises InvalidRequest(field, got, expected)."""
    candidate_ids = _candidates(message.candidate_ids, spec.candidates_max)
    rows = len(candidate_ids)
    columns: list[NativeColumn] = []
    given = (message.user_columns, message.context_columns, message.item_columns)
    for side, (name, sent) in enumerate(zip(SIDES, given)):
        columns += _columns(name, sent, spec.features[side], side, rows if name == "item" else 1)
    return ParsedRequest(
        request_id=message.request_id or uuid.uuid4().hex,
        user_id=message.user_id,
        candidate_ids=candidate_ids,
        top_k=message.top_k,
        columns=columns,
        formula_inputs=_formula_inputs(message.formula_inputs, spec.formula_inputs, rows),
        formula=message.formula,
    )


def _candidates(packed: bytes, candidates_max: int) -> np.ndarray:
    if len(packed) % 8:
        raise InvalidRequest("candidate_ids", f"{len(packed)} bytes", "little-endian 64-bit ids, a multiple of 8 bytes")
    if len(packed) // 8 > candidates_max:
        raise InvalidRequest(
            "candidate_ids", f"{len(packed) // 8} candidates",
            f"at most {candidates_max} (the scenario's candidates_max)",
        )
    return np.frombuffer(packed, np.int64)


def _columns(side_name: str, sent, features, side: int, rows: int) -> list[NativeColumn]:
    parsed: list[NativeColumn] = []
    seen: set[str] = set()
    for message in sent:
        field = f"{side_name}_columns[{shown(message.name)}]"
        if message.name not in features:
            raise InvalidRequest(field, f"a feature named {shown(message.name)!r}", f"one of {sorted(features)}")
        if message.name in seen:
            raise InvalidRequest(field, "the same feature twice", "each feature at most once")
        seen.add(message.name)
        index, feature = features[message.name]
        column = _column(field, message, feature, rows)
        parsed.append((side, index, column.values, column.row_offsets, column.byte_offsets))
    return parsed


def _column(field: str, message: pb.Column, feature: Feature, rows: int) -> Column:
    dtype, byte_offsets = message.dtype, message.byte_offsets
    if dtype == pb.DTYPE_UNSPECIFIED and not message.values:  # a client cannot know the type of values it does not have
        dtype = feature.dtype_code
        byte_offsets = byte_offsets or (NO_VALUES if feature.dtype == "bytes" else b"")
    shape = tuple(message.shape)
    try:
        return Column.from_wire(feature, dtype, shape, message.values, message.row_offsets, byte_offsets, rows)
    except FeatureError as error:
        raise InvalidRequest(field, error.came, error.expected) from None


def _formula_inputs(sent, names: tuple[str, ...], rows: int) -> list[np.ndarray]:
    by_name = {message.name: message for message in sent}
    if len(by_name) < len(sent):
        raise InvalidRequest("formula_inputs", f"{len(sent)} columns with a name repeated", "each input once")
    for name in by_name:
        if name not in names:
            field, got = f"formula_inputs[{shown(name)}]", f"an input named {shown(name)!r}"
            raise InvalidRequest(field, got, f"one of {sorted(names)}")
    return [_formula_input(name, by_name.get(name), rows) for name in names]


def _formula_input(name: str, message: pb.Column | None, rows: int) -> np.ndarray:
    field, expected = f"formula_inputs[{name}]", f"F32 [{rows}], {4 * rows} bytes"
    if message is None:
        raise InvalidRequest(field, "no column", expected)
    if message.dtype != pb.F32 or tuple(message.shape) != (rows,) or len(message.values) != 4 * rows:
        got = f"{dtype_name(message.dtype)} {list(message.shape)}, {len(message.values)} bytes"
        raise InvalidRequest(field, got, expected)
    return np.frombuffer(message.values, np.float32)


def shown(name: str) -> str:
    """A caller's name as messages show it: cut, so that a long one does not push the rest out of the RPC's status."""
    return name if len(name) <= NAME_CHARACTERS_MAX else f"{name[:NAME_CHARACTERS_MAX]}..."


def dtype_name(code: int) -> str:
    """The name of a wire dtype, or the number of one this server does not know."""
    return pb.DType.Name(code) if code in pb.DType.values() else f"dtype {code}"
