"""User, context and item features beside the service: schema, cache, and the transforms that feed a model."""

from feature_store.arrow import arrow_type
from feature_store.cache import FeatureCache
from feature_store.column import Column, check_column, check_wire
from feature_store.errors import (
    CallerError,
    DataError,
    FeatureError,
    FeatureStoreError,
    IsaError,
    OperatingError,
    ProgrammerError,
    SchemaError,
    SlotError,
    StorageError,
)
from feature_store.extractor import Extractor, Gathered, GatherStats, SlotValues
from feature_store.plan import SlotSpec
from feature_store.schema import Feature, Schema
from feature_store.transforms import Bucketize, Clip, Cross, Hash64, Log1p, Pad, Slot, Truncate, slots_from_json

__all__ = [
    "Bucketize",
    "CallerError",
    "Clip",
    "Column",
    "Cross",
    "DataError",
    "Extractor",
    "Feature",
    "FeatureCache",
    "FeatureError",
    "FeatureStoreError",
    "GatherStats",
    "Gathered",
    "Hash64",
    "IsaError",
    "Log1p",
    "OperatingError",
    "Pad",
    "ProgrammerError",
    "Schema",
    "SchemaError",
    "Slot",
    "SlotError",
    "SlotSpec",
    "SlotValues",
    "StorageError",
    "Truncate",
    "arrow_type",
    "check_column",
    "check_wire",
    "slots_from_json",
]
