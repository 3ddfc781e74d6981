"""FLOPs counted in the graphs are those counted by hand from the configs."""

from functools import lru_cache
from pathlib import Path

import pytest
import tensorflow as tf

from models import zoo
from models.errors import GraphError
from models.passes.cost import cost
from models.passes.dense import DenseGraph, DenseInput, Head


@lru_cache
def measured(name, size):
    return zoo.measure(zoo.get(name, size))


def layers(*widths):
    return sum(2 * before * after for before, after in zip(widths, widths[1:], strict=False))


def attention(c):
    """Of one candidate: the activation unit on every behaviour, and the weighted sum."""
    return c.history_length * (layers(4 * c.dim, *c.attention_units, 1) + 2 * c.dim)


def joined(c):
    """The width of profile, moment, interest and candidate side by side."""
    return c.profiles * c.profile_dim + (3 + 1 + 1 + c.attributes) * c.dim


def two_tower(c):
    user, item = c.profiles * c.dim, (1 + c.attributes) * c.dim
    towers = layers(user, *c.user_units) + layers(item, *c.item_units)
    return towers + layers(3 * c.item_units[-1], *c.units, 1)


def din(c):
    return attention(c) + layers(joined(c), *c.units) + 4 * layers(c.units[-1], 1)


def din_long(c):
    experts = c.experts * layers(joined(c), *c.units)
    head = layers(joined(c), c.experts) + 2 * c.experts * c.units[-1] + layers(c.units[-1], *c.tower_units, 1)
    return attention(c) + experts + 3 * head


def cross(c):
    asking, offered = 2 + c.profiles, 1 + c.attributes
    width = (asking + offered) * c.dim + c.prices + asking * offered + offered * c.dim
    return 2 * asking * offered * c.dim + layers(width, *c.units) + 2 * layers(c.units[-1], 1)


def dlrm(c):
    width = 27 * c.dim
    one = layers(width, c.cross_rank, width) if c.cross_rank else layers(width, width)
    bottom, top = layers(13, *c.bottom_units, c.dim), layers(width, *c.units)
    return bottom + c.crosses * one + top + 2 * (layers(c.units[-1], 1) + layers(1, 1))


BY_HAND = {"two_tower": two_tower, "din": din, "din_long": din_long, "cross": cross, "dlrm": dlrm}


@pytest.mark.parametrize("size", ["small", "base"])
@pytest.mark.parametrize("name", zoo.NAMES)
def test_counted_flops_are_those_counted_by_hand(name, size):
    entry = zoo.get(name, size)
    assert measured(name, size).flops == entry.definition.candidates * BY_HAND[name](entry.config)


def test_din_at_base_has_the_flops_of_the_measured_graph():
    assert measured("din", "base").flops == pytest.approx(4.0e9, rel=0.03)


def test_the_largest_request_reaches_40_gflop_even_with_the_user_computed_once():
    entry = zoo.get("dlrm", "large")
    n, user = entry.definition.candidates, sum(f.dim for f in entry.fields if f.looked_up and f.side != "item")
    size = measured("dlrm", "large")
    assert size.flops == n * BY_HAND["dlrm"](entry.config) and size.dense_parameters > 45e6
    assert size.flops - 2 * n * user * 27 * entry.config.dim > 40e9


def test_parameters_are_those_of_the_layers():
    c, size = zoo.get("din").config, measured("din", "base")
    widths = [(256, 80), (80, 1), (1152, 1024), (1024, 512), (512, 256), *[(256, 1)] * 4]
    assert size.dense_parameters == sum(a * b + b for a, b in widths) + (24 + 7 + 10) * c.dim
    tables = c.item_rows * c.dim + c.profiles * c.profile_rows * c.profile_dim + c.attributes * c.attribute_rows * c.dim
    assert size.table_parameters == tables


def test_a_product_of_unknown_shape_is_refused():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
        kept = tf.boolean_mask(x, x[:, 0] > 0)
        tf.identity(tf.matmul(kept, tf.ones([4, 1]), name="product")[:, 0], name="y")
    dense = DenseGraph(graph.as_graph_def(), (DenseInput("x:0", "f32", (-1, 4), "item"),), (Head("y", "y:0"),))
    with pytest.raises(GraphError, match="'product'"):
        cost(dense, 3)


def test_the_guide_shows_the_figures_that_are_counted():
    text = (Path(__file__).resolve().parents[3] / "docs/models.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()
            if "| small |" in line or "| base |" in line or "| large |" in line]
    shown = {(zoo.NAMES[i // 3], row[3]): row[4:] for i, row in enumerate(rows)}
    assert set(shown) == {(name, size) for name in zoo.NAMES for size in zoo.SIZES}
    assert [rows[3 * i][0] for i in range(5)] == [f"`{name}`" for name in zoo.NAMES]
    for (name, size), cells in shown.items():
        at = measured(name, size)
        assert cells == [f"{at.dense_parameters / 1e6:,.3f}", f"{at.table_parameters / 1e6:,.3f}", f"{at.candidates:,}",
                         f"{at.flops / 1e9:,.2f}"]
