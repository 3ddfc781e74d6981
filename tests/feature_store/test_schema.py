"""Schemas: validation of everything at once, normal forms and JSON."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import feature_store as fs


def test_round_trip_through_json(schema):
    again = fs.Schema.from_json(json.loads(json.dumps(schema.to_json(), allow_nan=False)))
    assert again.to_json() == schema.to_json()
    assert again.feature("title").default == b"\xff\x00none"
    assert np.isnan(again.feature("vector").default[1]) and np.signbit(again.feature("vector").default[2])


@settings(deadline=None)
@given(st.binary(max_size=20), st.floats(width=32), st.integers(-(1 << 63), (1 << 64) - 1))
def test_any_default_survives_json(data, number, bits):
    schema = fs.Schema((fs.Feature("b", "user", "bytes", default=data), fs.Feature("f", "user", "f32", default=number),
                        fs.Feature("i", "user", "i64", default=bits)))
    again = fs.Schema.from_json(json.loads(json.dumps(schema.to_json(), allow_nan=False)))
    assert [repr(f.default_values) for f in again.features] == [repr(f.default_values) for f in schema.features]


def test_every_problem_is_reported_at_once():
    with pytest.raises(fs.SchemaError) as caught:
        fs.Schema((
            fs.Feature("a", "shop", "f64"),
            fs.Feature("b", "user", "f32", width=2),
            fs.Feature("c", "user", "i64", "dense", 0),
            fs.Feature("d", "user", "i64", default=b"x"),
            fs.Feature("e", "user", "f32", "dense", 3, default=(1.0, 2.0)),
            fs.Feature("f", "user", "i64", "multi", 3, default=1),
            fs.Feature("g", "user", "i64", default=1 << 64),
            fs.Feature("g", "user", "f32", "vector"),
            fs.Feature("", "user", "f32", default=True),
        ))
    problems = "\n".join(caught.value.problems)
    for expected in ("'a': side is 'shop', must be one of user, item, context", "'a': dtype is 'f64'",
                     "'b': width is 2, a single", "'c': width is 0", "'d': default b'x' is not of dtype i64",
                     "'e': default has 2 values, must be one value or 3", "'f': default must be None", "'g': default",
                     "'g': kind is 'vector'", "'g': the name is declared more than once", "'': name must be"):
        assert expected in problems
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems


@pytest.mark.parametrize(("data", "message"), [
    ([], "expected an object"),
    ({"features": [{"name": "a"}]}, "feature 'a': field 'side' is missing"),
    ({"features": [{"name": "a", "side": "user", "dtype": "f32", "with": 3}]}, "unknown field 'with'"),
    ({"features": [7]}, "got int"),
    ({"features": [{"name": "a", "side": "user", "dtype": "bytes", "default": {"base64": "*"}}]}, "base64"),
])
def test_json_that_is_no_schema(data, message):
    with pytest.raises(fs.SchemaError, match=message):
        fs.Schema.from_json(data)


scalars = st.none() | st.booleans() | st.integers(-(10**400), 10**400) | st.floats() | st.text(max_size=3)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner), max_leaves=4)
FIELDS = {"name": anything | st.just("a"), "side": anything | st.just("user"), "width": anything | st.integers(1, 4),
          "dtype": anything | st.sampled_from(["f32", "i64", "bytes"]), "default": anything,
          "kind": anything | st.sampled_from(["single", "dense"])}


@settings(deadline=None)
@given(st.lists(anything | st.fixed_dictionaries(FIELDS), max_size=2))
def test_any_json_gives_a_schema_or_a_schema_error(features):
    try:
        schema = fs.Schema.from_json({"features": features})
    except fs.SchemaError as error:
        assert error.problems
    else:
        json.dumps(schema.to_json(), allow_nan=False)


def test_lookup_by_name_and_side(schema):
    assert [feature.name for feature in schema.side("context")] == ["hour"]
    with pytest.raises(fs.SchemaError, match="'vectr' is not declared; did you mean 'vector'"):
        schema.feature("vectr")
    with pytest.raises(fs.SchemaError, match="side is 'shop'"):
        schema.side("shop")


def test_ids_default_to_the_same_64_bits():
    assert fs.Feature("i", "user", "i64", default=(1 << 64) - 1) == fs.Feature("i", "user", "i64", default=-1)
    assert fs.Feature("f", "user", "f32", default=0.1).default == float(np.float32(0.1))
    assert fs.Feature("d", "user", "f32", "dense", 3).default_values == (0.0, 0.0, 0.0)
