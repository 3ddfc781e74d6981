"""The formula against Python's own arithmetic, on random expressions and random text."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lambda_svc._core import Formula
from lambda_svc.errors import FormulaError

HEADS, INPUTS = ["liked", "engaged"], ["bid"]
NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False, width=32)


def expressions():
    """(text in our language, the same for Python with every number a float64 scalar, which follows IEEE)."""
    leaves = st.one_of(
        st.sampled_from(HEADS + INPUTS).map(lambda name: (name, name)),
        st.floats(0, 1e6, allow_subnormal=False).map(lambda number: (repr(number), f"f({number!r})")),
    )

    def written(form, *parts):
        return tuple(form.format(*texts) for texts in zip(*parts))

    def grow(inner):
        forms = [("({} + {})", 2), ("{}+{}", 2), ("({} - {})", 2), ("{}*{}", 2), ("({}) / ({})", 2), ("- {}", 1)]
        forms += [("exp({})", 1), ("log({})", 1), ("pow({}, {})", 2), ("min({}, {}, {})", 3), ("max({},{})", 2)]
        forms += [("clip({}, {}, {})", 3)]
        return st.one_of([st.tuples(st.just(form), *[inner] * n).map(lambda got: written(*got)) for form, n in forms])

    return st.recursive(leaves, grow, max_leaves=12)


def _ieee(operation):
    """NumPy's float64 scalars follow IEEE where Python's floats raise."""
    return lambda *arguments: operation(*map(np.float64, arguments))


def _first_nan(pick):
    return lambda *values: next((v for v in values if math.isnan(v)), None) or pick(*values)


MINIMUM, MAXIMUM = _first_nan(min), _first_nan(max)
FUNCTIONS = {
    "exp": _ieee(np.exp),
    "log": _ieee(np.log),
    "pow": _first_nan(_ieee(np.power)),
    "min": MINIMUM,
    "max": MAXIMUM,
    "clip": lambda value, low, high: MINIMUM(MAXIMUM(value, low), high),
}


@settings(max_examples=200, deadline=None)
@given(expressions(), st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=5))
def test_scores_equal_python_s_arithmetic(texts, rows):
    text, python = texts
    columns = [np.array(column, np.float32) for column in zip(*rows)]
    got = Formula(text, HEADS, INPUTS).evaluate(columns[:2], columns[2:])
    with np.errstate(all="ignore"):
        for i, score in enumerate(got):
            names = {name: np.float64(column[i]) for name, column in zip(HEADS + INPUTS, columns)}
            expected = eval(python, {"__builtins__": {}, "f": np.float64, **FUNCTIONS}, names)
            np.testing.assert_allclose(score, expected, rtol=1e-12, atol=1e-300)


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from(list("abliked01.eE+-*/(), \t\n\0é%")), max_size=60))
def test_any_text_parses_or_says_where_it_does_not(text):
    try:
        formula = Formula(text, HEADS, INPUTS)
    except FormulaError as error:
        assert 0 <= error.position <= len(text.encode())
        assert f"position {error.position}: " in str(error)
    else:
        assert formula.evaluate([np.ones(3, np.float32)] * 2, [np.ones(3, np.float32)]).shape == (3,)


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("liked * 0.7 + 0.3 * log(1 + bit)", 28, "did you mean bid?"),
        ("liked +", 7, 'expected a number, a name, a function or "(", got the end'),
        ("liked ** 2", 7, 'got "*"'),
        ("clip(liked, 0)", 0, "clip takes 3 arguments, got 2"),
        ("sigmoid(liked)", 0, "expected exp, log, pow, min, max or clip"),
        ("2liked", 0, "expected a number such as"),
        ("liked > 1", 6, "expected an operator or the end"),
    ],
)
def test_errors_point_at_the_place(text, position, message):
    with pytest.raises(FormulaError) as caught:
        Formula(text, HEADS, INPUTS)
    assert caught.value.position == position
    assert message in str(caught.value)
