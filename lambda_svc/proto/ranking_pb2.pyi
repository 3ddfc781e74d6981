from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DTYPE_UNSPECIFIED: _ClassVar[DType]
    F32: _ClassVar[DType]
    I64: _ClassVar[DType]
    BYTES: _ClassVar[DType]

class UserStateUse(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    USER_STATE_ABSENT: _ClassVar[UserStateUse]
    USER_STATE_USED: _ClassVar[UserStateUse]
    USER_STATE_MISMATCHED: _ClassVar[UserStateUse]

class CandidateFlag(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CANDIDATE_OK: _ClassVar[CandidateFlag]
    CANDIDATE_UNKNOWN: _ClassVar[CandidateFlag]
    CANDIDATE_NAN: _ClassVar[CandidateFlag]
DTYPE_UNSPECIFIED: DType
F32: DType
I64: DType
BYTES: DType
USER_STATE_ABSENT: UserStateUse
USER_STATE_USED: UserStateUse
USER_STATE_MISMATCHED: UserStateUse
CANDIDATE_OK: CandidateFlag
CANDIDATE_UNKNOWN: CandidateFlag
CANDIDATE_NAN: CandidateFlag

class Column(_message.Message):
    __slots__ = ("name", "dtype", "values", "shape", "row_offsets", "byte_offsets")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    ROW_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    BYTE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: DType
    values: bytes
    shape: _containers.RepeatedScalarFieldContainer[int]
    row_offsets: bytes
    byte_offsets: bytes
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[_Union[DType, str]] = ..., values: _Optional[bytes] = ..., shape: _Optional[_Iterable[int]] = ..., row_offsets: _Optional[bytes] = ..., byte_offsets: _Optional[bytes] = ...) -> None: ...

class RankRequest(_message.Message):
    __slots__ = ("scenario", "request_id", "user_id", "candidate_ids", "top_k", "user_columns", "context_columns", "item_columns", "formula_inputs", "formula", "version", "label", "allow_partial")
    SCENARIO_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_IDS_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    USER_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    ITEM_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    FORMULA_INPUTS_FIELD_NUMBER: _ClassVar[int]
    FORMULA_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    ALLOW_PARTIAL_FIELD_NUMBER: _ClassVar[int]
    scenario: str
    request_id: str
    user_id: int
    candidate_ids: bytes
    top_k: int
    user_columns: _containers.RepeatedCompositeFieldContainer[Column]
    context_columns: _containers.RepeatedCompositeFieldContainer[Column]
    item_columns: _containers.RepeatedCompositeFieldContainer[Column]
    formula_inputs: _containers.RepeatedCompositeFieldContainer[Column]
    formula: str
    version: int
    label: str
    allow_partial: bool
    def __init__(self, scenario: _Optional[str] = ..., request_id: _Optional[str] = ..., user_id: _Optional[int] = ..., candidate_ids: _Optional[bytes] = ..., top_k: _Optional[int] = ..., user_columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., context_columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., item_columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., formula_inputs: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., formula: _Optional[str] = ..., version: _Optional[int] = ..., label: _Optional[str] = ..., allow_partial: _Optional[bool] = ...) -> None: ...

class StageTimes(_message.Message):
    __slots__ = ("parse_us", "admission_us", "gather_us", "lookup_us", "run_us", "topk_us", "respond_us")
    PARSE_US_FIELD_NUMBER: _ClassVar[int]
    ADMISSION_US_FIELD_NUMBER: _ClassVar[int]
    GATHER_US_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_US_FIELD_NUMBER: _ClassVar[int]
    RUN_US_FIELD_NUMBER: _ClassVar[int]
    TOPK_US_FIELD_NUMBER: _ClassVar[int]
    RESPOND_US_FIELD_NUMBER: _ClassVar[int]
    parse_us: int
    admission_us: int
    gather_us: int
    lookup_us: int
    run_us: int
    topk_us: int
    respond_us: int
    def __init__(self, parse_us: _Optional[int] = ..., admission_us: _Optional[int] = ..., gather_us: _Optional[int] = ..., lookup_us: _Optional[int] = ..., run_us: _Optional[int] = ..., topk_us: _Optional[int] = ..., respond_us: _Optional[int] = ...) -> None: ...

class Coverage(_message.Message):
    __slots__ = ("source", "asked", "answered")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    source: str
    asked: int
    answered: int
    def __init__(self, source: _Optional[str] = ..., asked: _Optional[int] = ..., answered: _Optional[int] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("model", "version", "engine", "precision", "slices", "variant")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    engine: str
    precision: str
    slices: int
    variant: str
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., engine: _Optional[str] = ..., precision: _Optional[str] = ..., slices: _Optional[int] = ..., variant: _Optional[str] = ...) -> None: ...

class Reason(_message.Message):
    __slots__ = ("code", "count")
    CODE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    code: str
    count: int
    def __init__(self, code: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class HeadScores(_message.Message):
    __slots__ = ("head", "scores")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    head: str
    scores: bytes
    def __init__(self, head: _Optional[str] = ..., scores: _Optional[bytes] = ...) -> None: ...

class RankResponse(_message.Message):
    __slots__ = ("request_id", "candidate_ids", "positions", "rank_scores", "heads", "flags", "plan", "level", "coverage", "reasons", "times", "bytes_copied", "missing_positions", "user_state")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_IDS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    RANK_SCORES_FIELD_NUMBER: _ClassVar[int]
    HEADS_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    BYTES_COPIED_FIELD_NUMBER: _ClassVar[int]
    MISSING_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    USER_STATE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    candidate_ids: bytes
    positions: bytes
    rank_scores: bytes
    heads: _containers.RepeatedCompositeFieldContainer[HeadScores]
    flags: bytes
    plan: Plan
    level: int
    coverage: _containers.RepeatedCompositeFieldContainer[Coverage]
    reasons: _containers.RepeatedCompositeFieldContainer[Reason]
    times: StageTimes
    bytes_copied: int
    missing_positions: bytes
    user_state: UserStateUse
    def __init__(self, request_id: _Optional[str] = ..., candidate_ids: _Optional[bytes] = ..., positions: _Optional[bytes] = ..., rank_scores: _Optional[bytes] = ..., heads: _Optional[_Iterable[_Union[HeadScores, _Mapping]]] = ..., flags: _Optional[bytes] = ..., plan: _Optional[_Union[Plan, _Mapping]] = ..., level: _Optional[int] = ..., coverage: _Optional[_Iterable[_Union[Coverage, _Mapping]]] = ..., reasons: _Optional[_Iterable[_Union[Reason, _Mapping]]] = ..., times: _Optional[_Union[StageTimes, _Mapping]] = ..., bytes_copied: _Optional[int] = ..., missing_positions: _Optional[bytes] = ..., user_state: _Optional[_Union[UserStateUse, str]] = ...) -> None: ...

class PrecomputeUserRequest(_message.Message):
    __slots__ = ("scenario", "request_id", "user_id", "user_columns", "context_columns", "version", "label")
    SCENARIO_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    USER_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    scenario: str
    request_id: str
    user_id: int
    user_columns: _containers.RepeatedCompositeFieldContainer[Column]
    context_columns: _containers.RepeatedCompositeFieldContainer[Column]
    version: int
    label: str
    def __init__(self, scenario: _Optional[str] = ..., request_id: _Optional[str] = ..., user_id: _Optional[int] = ..., user_columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., context_columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., version: _Optional[int] = ..., label: _Optional[str] = ...) -> None: ...

class PrecomputeUserResponse(_message.Message):
    __slots__ = ("request_id", "kept", "state_bytes", "ttl_ms", "plan", "coverage", "reasons", "times")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    kept: bool
    state_bytes: int
    ttl_ms: int
    plan: Plan
    coverage: _containers.RepeatedCompositeFieldContainer[Coverage]
    reasons: _containers.RepeatedCompositeFieldContainer[Reason]
    times: StageTimes
    def __init__(self, request_id: _Optional[str] = ..., kept: _Optional[bool] = ..., state_bytes: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., plan: _Optional[_Union[Plan, _Mapping]] = ..., coverage: _Optional[_Iterable[_Union[Coverage, _Mapping]]] = ..., reasons: _Optional[_Iterable[_Union[Reason, _Mapping]]] = ..., times: _Optional[_Union[StageTimes, _Mapping]] = ...) -> None: ...
