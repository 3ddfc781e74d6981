"""The best k against NumPy, with ties, infinities and NaN, through a ranking call whose formula is the score itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lambda_svc.native.test_pipeline import dot_pipeline


@pytest.fixture(scope="module")
def pipeline(graphs, engine, library):
    """Rank score = the request's `weight`."""
    return dot_pipeline(graphs, engine, library, formula="weight", inputs=["weight"])


SCORES = st.lists(
    st.one_of(st.sampled_from([0.0, -0.0, 1.0, 2.0, np.inf, -np.inf, np.nan]), st.floats(width=32)), max_size=150
)


def test_top_k_matches_a_stable_sort(pipeline):
    @settings(max_examples=80, deadline=None)
    @given(SCORES, st.integers(0, 160))
    def check(scores, k):
        weight = np.array(scores, np.float32)
        expected = np.lexsort((np.arange(len(weight)), -weight.astype(np.float64), np.isnan(weight)))
        expected = expected[: k or None]
        result = pipeline.rank(1, np.arange(len(weight)), [], [weight], k)
        assert result.positions.tolist() == expected.tolist()
        np.testing.assert_array_equal(result.rank_scores, weight[expected].astype(np.float64))
        assert result.nan_scores == np.isnan(weight).sum()
        assert (result.flags == 2 * np.isnan(weight[expected])).all()

    check()
