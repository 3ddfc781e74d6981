"""The DIN MMoE model's features, slots and graph inputs."""

from feature_store.schema import Feature, Schema
from feature_store.transforms import Bucketize, Cross, Hash64, Slot

from .interface import Interface, ModelInput
from .moments import HISTORY_LENGTH

__all__ = ["INPUTS", "INTERFACE", "SCHEMA", "SLOTS"]

GENRES_MAX = 8
AGE_BOUNDARIES = (18.0, 25.0, 30.0, 35.0, 45.0, 50.0, 56.0)
YEAR_BOUNDARIES = (1940.0, 1960.0, 1970.0, 1980.0, 1990.0, 1993.0, 1995.0, 1996.0, 1997.0)
HOUR_BOUNDARIES = (3.0, 6.0, 9.0, 12.0, 15.0, 18.0, 21.0)
WEEKDAY_BOUNDARIES = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)

SCHEMA = Schema((
    Feature("age", "user", "f32", default=30.0),
    Feature("gender", "user", "bytes"),
    Feature("occupation", "user", "bytes"),
    Feature("history_item", "user", "i64", "sequence", HISTORY_LENGTH),
    Feature("history_rating", "user", "f32", "sequence", HISTORY_LENGTH),
    Feature("hour", "context", "f32", default=12.0),
    Feature("weekday", "context", "f32"),
    Feature("movie_id", "item", "i64", "key"),
    Feature("year", "item", "f32", default=1995.0),
    Feature("genres", "item", "bytes", "multi", GENRES_MAX),
))

SLOTS = (
    Slot("age", "age", (Bucketize(AGE_BOUNDARIES),)),
    Slot("occupation", "occupation", (Hash64(),)),
    Slot("gender_occupation", "gender", (Hash64(), Cross("occupation"))),
    Slot("history_item", "history_item"),
    Slot("history_rating", "history_rating"),
    Slot("hour", "hour", (Bucketize(HOUR_BOUNDARIES),)),
    Slot("weekday", "weekday", (Bucketize(WEEKDAY_BOUNDARIES),)),
    Slot("item", "movie_id"),
    Slot("year", "year", (Bucketize(YEAR_BOUNDARIES),)),
    Slot("genres", "genres", (Hash64(),)),
)

INPUTS = (
    ModelInput("history_item", "history_item", "i64", (None, HISTORY_LENGTH), table="item"),
    ModelInput("history_rating", "history_rating", "f32", (None, HISTORY_LENGTH)),
    ModelInput("history_length", "history_item", "i32", (None,), part="lengths"),
    ModelInput("occupation", "occupation", "i64", (None,), table="occupation"),
    ModelInput("gender_occupation", "gender_occupation", "i64", (None,), table="gender_occupation"),
    ModelInput("age", "age", "i64", (None,)),
    ModelInput("hour", "hour", "i64", (None,)),
    ModelInput("weekday", "weekday", "i64", (None,)),
    ModelInput("item", "item", "i64", (None,), table="item"),
    ModelInput("genres", "genres", "i64", (None,), table="genre"),
    ModelInput("genres_segments", "genres", "i32", (None,), part="segments"),
    ModelInput("year", "year", "i64", (None,)),
)

INTERFACE = Interface(SCHEMA, SLOTS, INPUTS)
