"""Stage 2: parse and validate. Bad input ends here, with an error that names the field; the model never sees it.

Columns are not copied: they stay views of the message's bytes until the native call has read them. Only whole numbers
of no declared type are, when they are for a float feature.

A column may also bring a `key` feature, which is the row's own id otherwise: the model then sees the column's ids,
while stored features are still found, and the answer still given, by the request's user and candidate ids.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from feature_store import Column, Feature, FeatureError, Schema
from lambda_svc.errors import InvalidRequest
from lambda_svc.proto import ranking_pb2 as pb

__all__ = ["NativeColumn", "ParsedRequest", "RequestSpec", "parse", "parse_user", "shown"]

# (side 0 user | 1 context | 2 item, index of the feature on its side, values, row offsets, byte offsets)
NativeColumn = tuple[int, int, np.ndarray, np.ndarray | None, np.ndarray | None]

SIDES = ("user", "context", "item")
NAME_CHARACTERS_MAX = 64
NO_VALUES = bytes(4)  # the byte offsets of no values: one int32 zero
DTYPE_WORDS = {
    "f32": "dtype f32: write 20.0, or numpy float32",
    "i64": "dtype i64: write 20, or numpy int64 or uint64",
    "bytes": "dtype bytes: write str or bytes",
}


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
        columns += _columns(name, sent, spec, side, rows if name == "item" else 1)
    return ParsedRequest(
        request_id=message.request_id or uuid.uuid4().hex,
        user_id=message.user_id,
        candidate_ids=candidate_ids,
        top_k=message.top_k,
        columns=columns,
        formula_inputs=_formula_inputs(message.formula_inputs, spec.formula_inputs, rows),
        formula=message.formula,
    )


def parse_user(message: pb.PrecomputeUserRequest, spec: RequestSpec) -> ParsedRequest:
    """The same for what a request is without candidates. Raises InvalidRequest(field, got, expected)."""
    columns = [*_columns("user", message.user_columns, spec, 0, 1),
               *_columns("context", message.context_columns, spec, 1, 1)]
    return ParsedRequest(message.request_id or uuid.uuid4().hex, message.user_id, np.empty(0, np.int64), 0, columns,
                         [], "")


def _candidates(packed: bytes, candidates_max: int) -> np.ndarray:
    if len(packed) % 8:
        raise InvalidRequest("candidate_ids", f"{len(packed)} bytes", "little-endian 64-bit ids, a multiple of 8 bytes")
    if len(packed) // 8 > candidates_max:
        raise InvalidRequest(
            "candidate_ids", f"{len(packed) // 8} candidates",
            f"at most {candidates_max} (the scenario's candidates_max)",
        )
    return np.frombuffer(packed, np.int64)


def _columns(side_name: str, sent, spec: RequestSpec, side: int, rows: int) -> list[NativeColumn]:
    features = spec.features[side]
    parsed: list[NativeColumn] = []
    seen: set[str] = set()
    for message in sent:
        field = f"{side_name}_columns[{shown(message.name)}]"
        if message.name not in features:
            raise InvalidRequest(field, *_unknown_feature(message.name, side_name, spec))
        if message.name in seen:
            raise InvalidRequest(field, "the same feature twice", "each feature at most once")
        seen.add(message.name)
        index, feature = features[message.name]
        column = _column(field, message, feature, rows)
        parsed.append((side, index, column.values, column.row_offsets, column.byte_offsets))
    return parsed


def _unknown_feature(name: str, side_name: str, spec: RequestSpec) -> tuple[str, str]:
    """What came and what was expected, for a name that is no feature of the side: it may be one of another."""
    sides = {known: side for side, features in zip(SIDES, spec.features) for known in features}
    expected = f"one of {sorted(known for known, side in sides.items() if side == side_name)}"
    if name in sides:
        return f"a feature named {name!r}", f"{expected}; {name!r} is of the {sides[name]} side"
    meant = _meant(name, sides)
    elsewhere = f" (of the {sides[meant]} side)" if meant and sides[meant] != side_name else ""
    return f"a feature named {shown(name)!r}", expected + _did_you_mean(meant, elsewhere)


def _meant(name: str, known: Iterable[str]) -> str | None:
    return next(iter(get_close_matches(name[:NAME_CHARACTERS_MAX], list(known), n=1)), None)


def _did_you_mean(meant: str | None, more: str = "") -> str:
    return f"; did you mean {meant!r}{more}?" if meant else ""


def _column(field: str, message: pb.Column, feature: Feature, rows: int) -> Column:
    _check_kind(field, message, feature, rows)
    dtype, values, byte_offsets = message.dtype, message.values, message.byte_offsets
    if dtype == pb.DTYPE_UNSPECIFIED:
        dtype = feature.dtype_code
        if not values:  # a client cannot know the type of values it does not have
            byte_offsets = byte_offsets or (NO_VALUES if feature.dtype == "bytes" else b"")
        else:
            values = _whole_numbers(field, values, feature)
    elif dtype in pb.DType.values() and dtype != feature.dtype_code:
        raise InvalidRequest(field, f"dtype {dtype_name(dtype).lower()}", DTYPE_WORDS[feature.dtype])
    shape = tuple(message.shape)
    try:
        return Column.from_wire(feature, dtype, shape, values, message.row_offsets, byte_offsets, rows)
    except FeatureError as error:
        raise InvalidRequest(field, error.came, error.expected) from None


def _check_kind(field: str, message: pb.Column, feature: Feature, rows: int) -> None:
    """A column of another kind than its feature is told in words; check_wire would speak of shapes and offsets."""
    ragged = bool(message.row_offsets)
    if ragged and not message.shape and not feature.is_ragged:
        one = f"one vector of {feature.width} values a row (a numpy array)" if feature.kind == "dense" else "one value"
        wanted = f"{one}, shape {list(feature.shape(rows))}, as the feature is {feature.kind}"
        raise InvalidRequest(field, "a multi-valued column (a list a row)", wanted)
    if not ragged and message.shape and feature.is_ragged:
        wanted = f"a list of values for each of {rows} rows (row_offsets, no shape), as the feature is {feature.kind}"
        raise InvalidRequest(field, f"one value or vector a row, shape {list(message.shape)}", wanted)


def _whole_numbers(field: str, values: bytes, feature: Feature) -> bytes:
    """int64 values of no declared type as the feature's own, where each is exactly representable."""
    if len(values) % 8 or feature.dtype == "bytes":
        expected = DTYPE_WORDS["bytes"] if feature.dtype == "bytes" else "int64 values, or a dtype"
        raise InvalidRequest(field, f"{len(values)} bytes of whole numbers (no dtype)", expected)
    if feature.dtype == "i64":
        return values
    whole = np.frombuffer(values, np.int64)
    floats = whole.astype(np.float32)
    within = floats < 2.0**63  # what int64 rounds up to, and does not hold
    inexact = ~within | (np.where(within, floats, 0).astype(np.int64) != whole)
    if inexact.any():
        got = f"{whole[inexact][0]}, which float32 does not hold exactly"
        raise InvalidRequest(field, got, "whole numbers up to 2**24, or floats where rounding is meant")
    return floats.tobytes()


def _formula_inputs(sent, names: tuple[str, ...], rows: int) -> list[np.ndarray]:
    by_name = {message.name: message for message in sent}
    if len(by_name) < len(sent):
        raise InvalidRequest("formula_inputs", f"{len(sent)} columns with a name repeated", "each input once")
    for name in by_name:
        if name not in names:
            field, got = f"formula_inputs[{shown(name)}]", f"an input named {shown(name)!r}"
            raise InvalidRequest(field, got, f"one of {sorted(names)}{_did_you_mean(_meant(name, names))}")
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
