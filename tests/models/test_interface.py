"""An interface says which slot fills which input, and refuses what cannot be filled."""

import types

import numpy as np
import pytest

from feature_store import Feature, Schema, Slot
from models.errors import ConfigError
from models.interface import Interface, ModelInput
from models.tensors import input_specs
from models.vocabulary import Vocabulary

SCHEMA = Schema((Feature("words", "user", "i64", "multi", 4), Feature("seen", "user", "i64", "sequence", 3),
                 Feature("price", "item", "f32")))
SLOTS = (Slot("words", "words"), Slot("seen", "seen"), Slot("price", "price"))
INPUTS = (
    ModelInput("words", "words", "i64", (None,), table="word"),
    ModelInput("words_segments", "words", "i32", (None,), part="segments"),
    ModelInput("seen", "seen", "i64", (None, 3)),
    ModelInput("seen_length", "seen", "i32", (None,), part="lengths"),
    ModelInput("price", "price", "f32", (None,)),
)
INTERFACE = Interface(SCHEMA, SLOTS, INPUTS)


def slot(values, offsets=None, lengths=None):
    return types.SimpleNamespace(values=values, offsets=offsets, lengths=lengths)


def test_inputs_come_from_their_slots():
    words = slot(np.array([7, 5, 9]), offsets=np.array([0, 2, 2, 3], np.int32))
    seen = slot(np.array([[1, 2, 0]]), lengths=np.array([2], np.int32))
    arrays = INTERFACE.arrays({"words": words, "seen": seen}, {"word": Vocabulary.of(np.array([5, 7]))})
    assert set(arrays) == {"words", "words_segments", "seen", "seen_length"}
    assert arrays["words"].tolist() == [1, 0, 2] and arrays["words_segments"].tolist() == [0, 0, 2]
    assert arrays["seen"] is seen.values and arrays["seen_length"] is seen.lengths


def test_sides_give_leading_dimensions_and_bags_stay_open():
    assert [INTERFACE.side(entry) for entry in INPUTS] == ["user"] * 4 + ["item"]
    shapes = {name: spec.shape.as_list() for name, spec in input_specs(INTERFACE, one_user=True).items()}
    assert shapes == {"words": [None], "words_segments": [None], "seen": [1, 3], "seen_length": [1], "price": [None]}
    assert all(spec.shape[0] is None for spec in input_specs(INTERFACE).values())


def test_unknown_slots_and_repeated_names_are_refused_at_once():
    wrong = (*INPUTS, ModelInput("price", "cost", "f32", (None,)))
    with pytest.raises(ConfigError, match="input 'price': slot 'cost' does not exist; input 'price' appears twice"):
        Interface(SCHEMA, SLOTS, wrong)
