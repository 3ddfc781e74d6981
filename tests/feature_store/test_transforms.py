"""Transforms as data, and the type check of chains."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import feature_store as fs
from feature_store.plan import compile_slots
from feature_store.transforms import transform_from_json, transform_to_json

ALL = (fs.Log1p(), fs.Clip(-1, float("inf")), fs.Bucketize((0, 1.5)), fs.Hash64((1 << 64) - 1), fs.Cross("other", 3),
       fs.Truncate(3, "last"), fs.Pad(4, float("nan")))


@pytest.mark.parametrize("transform", ALL, ids=lambda transform: transform.op)
def test_transform_round_trips_through_json(transform):
    again = transform_from_json(json.loads(json.dumps(transform_to_json(transform), allow_nan=False)))
    assert repr(again) == repr(transform) and type(again) is type(transform)


def test_slots_round_trip_through_json(slots):
    data = json.loads(json.dumps([slot.to_json() for slot in slots]))
    assert repr(fs.slots_from_json(data)) == repr(slots)


@pytest.mark.parametrize(("build", "message"), [
    (lambda: fs.Clip(2, 1), "lo must be <= hi"),
    (lambda: fs.Clip(float("nan"), 1), "lo must be <= hi"),
    (lambda: fs.Clip("a", 1), "must be numbers"),
    (lambda: fs.Bucketize(()), "needs 1 to 65536"),
    (lambda: fs.Bucketize((1, 1)), "must ascend"),
    (lambda: fs.Bucketize((1, 1 + 1e-12)), "must ascend as f32"),
    (lambda: fs.Bucketize((1, float("inf"))), "finite"),
    (lambda: fs.Bucketize((1e39,)), "finite as f32"),
    (lambda: fs.Hash64(-1), "seed"),
    (lambda: fs.Hash64(1 << 64), "seed"),
    (lambda: fs.Cross(3), "feature's name"),
    (lambda: fs.Truncate(0), "length"),
    (lambda: fs.Truncate(3, "middle"), "keep"),
    (lambda: fs.Pad(3, "x"), "value"),
    (lambda: fs.Slot("", "a"), "not empty"),
    (lambda: fs.Slot("a", "a", ("log1p",)), "is not a transform"),
])
def test_wrong_parameters_are_refused(build, message):
    with pytest.raises(fs.SlotError, match=message):
        build()


def test_numpy_boundaries_are_rounded_to_f32():
    assert fs.Bucketize(np.array([0.1, 0.2])).boundaries == tuple(map(float, np.float32([0.1, 0.2])))


def test_a_numpy_pad_value_is_a_plain_number(schema):
    slots = [fs.Slot("s", "tags", (fs.Pad(4, np.int64(-3)),))]
    assert compile_slots(schema, slots, "item").slots[0].pad_value == -3
    assert json.loads(json.dumps(slots[0].to_json()))["transforms"] == [{"op": "pad", "length": 4, "value": -3}]


def test_json_problems_of_all_slots_are_reported_at_once():
    data = [{"name": "a", "feature": "x", "transforms": [{"op": "sqrt"}, {"op": "clip", "lo": 1}]}, {"name": "b"}]
    with pytest.raises(fs.SlotError) as caught:
        fs.slots_from_json(data)
    problems = caught.value.problems
    assert len(problems) == 3
    assert problems[0].startswith("slot 'a': transform 'sqrt' is unknown, must be one of log1p, clip")
    assert problems[1] == "slot 'a': Clip: got parameters ['lo'], expected lo, hi"


scalars = st.none() | st.booleans() | st.integers(-(10**400), 10**400) | st.floats() | st.text(max_size=3)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner), max_leaves=4)
parameters = st.dictionaries(st.sampled_from(["lo", "hi", "boundaries", "seed", "other", "length", "keep", "value"]),
                             anything, max_size=3)
entries = anything | st.builds(lambda op, given: {**given, "op": op},
                               anything | st.sampled_from([transform.op for transform in ALL]), parameters)


@settings(deadline=None)
@given(anything | st.text(min_size=1), anything | st.text(), anything | st.lists(entries, max_size=3))
def test_any_json_gives_slots_or_a_slot_error(name, feature, chain):
    try:
        slots = fs.slots_from_json([{"name": name, "feature": feature, "transforms": chain}])
    except fs.SlotError as error:
        assert error.problems
    else:
        json.dumps(slots[0].to_json(), allow_nan=False)


@pytest.mark.parametrize(("slot", "message"), [
    (fs.Slot("s", "count", (fs.Log1p(),)), r"slot 's', transform 1 \(Log1p\): needs f32 values, gets i64"),
    (fs.Slot("s", "price", (fs.Hash64(),)), r"transform 1 \(Hash64\): needs bytes values, gets f32"),
    (fs.Slot("s", "price", (fs.Bucketize((1,)), fs.Clip(0, 1))), r"transform 2 \(Clip\): needs f32 values, gets i64"),
    (fs.Slot("s", "title"), "ends in bytes, which no model input takes: add Hash64"),
    (fs.Slot("s", "price", (fs.Truncate(2),)), "needs a multi or sequence feature, 'price' is single"),
    (fs.Slot("s", "vector", (fs.Pad(4),)), "'vector' is dense"),
    (fs.Slot("s", "tags", (fs.Pad(4), fs.Truncate(1))), r"transform 2 \(Truncate\): stands after Pad"),
    (fs.Slot("s", "tags", (fs.Pad(3),)), r"length 3 is less than the 4 values .* add Truncate\(3\)"),
    (fs.Slot("s", "tags", (fs.Pad(4, 0.5),)), "value 0.5 must be an int64"),
    (fs.Slot("s", "tags", (fs.Cross("count"),)), "needs a single feature, 'tags' is multi"),
    (fs.Slot("s", "count", (fs.Cross("price"),)), "'price' is single f32, must be single i64 or bytes"),
    (fs.Slot("s", "count", (fs.Cross("cuont"),)), "did you mean 'count'"),
    (fs.Slot("s", "count", (fs.Cross("hour"),)), "'hour' is not declared for side 'item'"),
    (fs.Slot("s", "pricce"), "feature 'pricce' is not declared; did you mean 'price'"),
])
def test_chains_that_do_not_type_check(schema, slot, message):
    with pytest.raises(fs.SlotError, match=message):
        compile_slots(schema, [slot], "item")


def test_all_type_errors_are_reported_at_once(schema):
    slots = [fs.Slot("a", "count", (fs.Log1p(), fs.Clip(0, 1))), fs.Slot("a", "title"),
             fs.Slot("u", "age", (fs.Hash64(),))]
    with pytest.raises(fs.SlotError) as caught:
        compile_slots(schema, slots, "item")
    assert len(caught.value.problems) == 5
    with pytest.raises(fs.SlotError):
        fs.Extractor(schema, slots, "item")


def test_specs_of_each_layout(schema, slots):
    specs = {plan.spec.name: plan.spec for plan in compile_slots(schema, slots, "item").slots}
    assert specs["price_bucket"] == fs.SlotSpec("price_bucket", "i64", "dense", 1)
    assert specs["vector"] == fs.SlotSpec("vector", "f32", "dense", 3)
    assert specs["tags_last"] == fs.SlotSpec("tags_last", "i64", "ragged", 2)
    assert specs["tags_padded"] == fs.SlotSpec("tags_padded", "i64", "padded", 6)
    assert specs["seen"] == fs.SlotSpec("seen", "i64", "padded", 5)
    assert specs["seen_short"] == fs.SlotSpec("seen_short", "i64", "padded", 2)
    assert "age" not in specs
