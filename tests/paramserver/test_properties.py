"""Any history of writes and any bags give the same answers on the native table as on the reference, bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paramserver import arrays

from tests.paramserver.kinds import INSTRUCTION_SETS, table_of

# Few distinct ids, so that updates, deletions and returns meet; all of int64, so that no id is special.
IDS = st.one_of(st.integers(-3, 3), st.sampled_from([-(2**63), 2**63 - 1, 2**32]), st.integers(-(2**63), 2**63 - 1))
ID_LISTS = st.lists(IDS, max_size=40)
HISTORY = st.lists(st.tuples(st.sampled_from(["upsert", "delete"]), ID_LISTS), max_size=8)
DTYPES = st.sampled_from(arrays.DTYPES)


def random_rows(seed, n, dim):
    return np.random.default_rng(seed).normal(scale=4, size=(n, dim)).astype(np.float32)


def pair(isa, dim, dtype):
    default = random_rows(99, 1, dim)[0]
    return [table_of(kind, dim, dtype=dtype, default_row=default) for kind in ("reference", isa)]


def replay(tables, history, dim):
    for step, (what, ids) in enumerate(history):
        ids = np.array(ids, np.int64)
        if what == "upsert":
            answers = [table.upsert(ids, random_rows(step, len(ids), dim)) for table in tables]
        else:
            answers = [table.delete(ids) for table in tables]
        assert answers[0] == answers[1]


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
@settings(max_examples=60, deadline=None)
@given(history=HISTORY, asked=ID_LISTS, dim=st.integers(1, 20), dtype=DTYPES)
def test_any_history_gives_the_same_rows(isa, history, asked, dim, dtype):
    reference, native = pair(isa, dim, dtype)
    replay((reference, native), history, dim)
    asked = np.array(asked + [i for _, ids in history for i in ids], np.int64)
    statuses = [np.empty(len(asked), np.uint8) for _ in range(2)]
    np.testing.assert_array_equal(native.lookup(asked, status=statuses[1]), reference.lookup(asked, status=statuses[0]))
    np.testing.assert_array_equal(statuses[1], statuses[0])
    np.testing.assert_array_equal(native.ids(), reference.ids())
    assert len(native) == len(reference)


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
@settings(max_examples=80, deadline=None)
@given(
    bags=st.lists(ID_LISTS, max_size=12), dim=st.integers(1, 70), dtype=DTYPES, out_dtype=st.sampled_from(["f4", "f2"]),
    mode=st.sampled_from(["sum", "mean", "sqrtn"]), weighted=st.booleans(),
)
def test_any_bags_pool_to_the_same_bits(isa, bags, dim, dtype, out_dtype, mode, weighted):
    reference, native = pair(isa, dim, dtype)
    ids = np.array([i for bag in bags for i in bag], np.int64)
    replay((reference, native), [("upsert", ids[::2].tolist())], dim)
    offsets = np.concatenate([[0], np.cumsum([len(bag) for bag in bags])]).astype(np.int32)
    weights = np.abs(random_rows(5, len(ids), 1)[:, 0]) if weighted else None
    outs = [np.full((len(bags), dim), 7, out_dtype) for _ in range(2)]
    for table, out in zip((reference, native), outs, strict=True):
        with np.errstate(over="ignore"):
            table.lookup_pooled(ids, offsets, mode, weights, out=out)
    np.testing.assert_array_equal(outs[0].view(np.uint8), outs[1].view(np.uint8))
