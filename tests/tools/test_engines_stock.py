"""The baseline of `bench engines`: every setting gives the same scores, here or in a process beside; peaks in turn."""

import numpy as np
import pytest

from lambda_svc.errors import EngineError
from models import zoo
from models.rewritten import run as framework_scores
from tools.bench.figures import interleave
from tools.engines import floor
from tools.engines.stock import STOCK, Elsewhere, Setting, settings, stock_request


@pytest.fixture(scope="module")
def small():
    """The plain graph of a small model and feeds of 50 candidates."""
    plain, feeds = zoo.dense("two_tower", "small")
    return plain, feeds(50, np.random.default_rng(0))


@pytest.mark.parametrize("executor", ["single", "default"])
@pytest.mark.parametrize("slice_rows", [0, 20])
def test_every_executor_scores_alike_at_once_and_in_slices(small, executor, slice_rows):
    plain, feeds = small
    want = framework_scores(plain, feeds)
    got = stock_request(plain, feeds, Setting(1, executor), slice_rows)()
    assert got.keys() == want.keys()
    for head, scores in want.items():
        assert got[head].shape == (50,)
        np.testing.assert_allclose(got[head], scores, atol=1e-6)


def test_settings_cover_threads_and_executors():
    assert {s.executor for s in settings()} == {"single", "default"} and {1} <= {s.intra_op for s in settings()}
    assert all(str(s).startswith(f"{STOCK},engine=tensorflow,precision=f32,") for s in settings())


def test_a_process_beside_runs_and_says_what_is_wrong(small):
    plain, feeds = small
    with Elsewhere() as elsewhere:
        run = elsewhere.load(plain, feeds, Setting(1, "default"))
        assert 0 < run() < 10
        with pytest.raises(EngineError, match="KeyError"):
            elsewhere.load(plain, {}, Setting(1, "default"))
        with pytest.raises(EngineError, match="KeyError"):
            run()
        assert 0 < elsewhere.load(plain, feeds, Setting(1, "single"))() < 10
    with pytest.raises(EngineError, match="ended"):
        run()


def test_peaks_are_the_best_of_the_rounds_they_ran_in(monkeypatch):
    monkeypatch.setattr(floor, "_PRODUCTS", ((64, 64, 1),))
    monkeypatch.setattr(floor, "_COPY_BYTES", 1 << 20)
    probes = floor.Probes()
    samples = interleave(probes.variants(), 3, warmup=1).samples
    seen = probes.peaks(samples)
    assert "f32" in probes.precisions and seen.flops_s["f32"] == max(samples["peak=f32"])
    assert seen.bytes_s == max(samples["peak=copy"]) > 0
    assert all(len(values) == 4 for values in probes.samples.values())
