"""What `bench engines` measures with: requests in every engine, the floor, and differences of scores."""

import numpy as np
import pytest

from lambda_svc.errors import EngineUnavailable
from models import zoo
from models.passes import apply
from models.rewritten import run as framework_scores
from tools.engines import DenseRequest, Lane, Peaks, differences, floor_ms, lane_name, lanes


@pytest.fixture(scope="module")
def din():
    """The small model: plain, after all passes, and feeds of 150 candidates."""
    plain, feeds = zoo.dense("din", "small")
    return plain, apply(plain), feeds(150, np.random.default_rng(0))


@pytest.mark.parametrize("lane", lanes(), ids=lane_name)
@pytest.mark.parametrize("rewritten", [False, True])
def test_every_engine_gives_the_framework_s_scores_in_one_run_and_in_slices(din, lane, rewritten):
    dense, feeds = din[rewritten], din[2]
    want = framework_scores(din[0], feeds)
    for slice_rows in (0, 64):
        try:
            found = differences(DenseRequest(dense, feeds, lane, slice_rows).run(), want)
        except EngineUnavailable as error:
            pytest.skip(str(error))
        assert found.probability <= (1e-6 if lane.precision == "f32" else 2e-2)
        assert found.logit_p99 <= (1e-5 if lane.precision == "f32" else 0.05)


def test_the_floor_is_of_flops_or_of_bytes():
    plain, _ = zoo.dense("din", "small")
    slow_copies, slow_products = Peaks({"f32": 1e15}, 1e6), Peaks({"f32": 1e6}, 1e15)
    assert floor_ms(plain, 200, "f32", slow_products) == pytest.approx(
        2 * floor_ms(plain, 100, "f32", slow_products), rel=0.01)
    fed = sum(4 * np.prod([100 if d < 0 else d for d in e.shape]) for e in plain.inputs if e.dtype == "f32")
    assert floor_ms(plain, 100, "f32", slow_copies) >= 1e3 * fed / 1e6
    assert floor_ms(apply(plain), 100, "f32", slow_products) < floor_ms(plain, 100, "f32", slow_products)


def test_differences_are_the_worst_head_s():
    rng = np.random.default_rng(0)
    want = {"a": rng.random(1000), "b": rng.random(1000)}
    same = differences(want, want)
    assert (same.probability, same.logit_p99, same.mean_shift, same.top10) == (0, 0, 0, 1)
    moved = differences({"a": want["a"], "b": want["b"][::-1]}, want)
    assert moved.probability > 0.5 and moved.logit_p99 > 1 and moved.top10 < 0.5
    assert differences({"a": want["a"] * 0.9, "b": want["b"]}, want).mean_shift == pytest.approx(0.1)


def test_lanes_are_named_as_figures_are():
    assert lane_name(Lane("openvino", "bf16")) == "engine=openvino,precision=bf16"
