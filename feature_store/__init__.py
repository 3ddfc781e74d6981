"""User, context and item features beside the service: schema, cache, and the transforms that feed a model."""
from feature_store.arrow import arrow_type
from feature_store.column import Column
from feature_store.errors import (CallerError, DataError, FeatureError, FeatureStoreError, IsaError, OperatingError,
                                  ProgrammerError, SchemaError, SlotError, StorageError)
from feature_store.schema import Feature, Schema
from feature_store.transforms import Bucketize, Clip, Cross, Hash64, Log1p, Pad, Slot, Truncate, slots_from_json

__all__ = ["Bucketize", "CallerError", "Clip", "Column", "Cross", "DataError", "Feature", "FeatureError",
           "FeatureStoreError", "Hash64", "IsaError", "Log1p", "OperatingError", "Pad", "ProgrammerError", "Schema",
           "SchemaError", "Slot", "SlotError", "StorageError", "Truncate", "arrow_type", "slots_from_json"]
