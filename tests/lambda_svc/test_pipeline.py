"""The whole native call over real parts: packaged tables, feature caches and graph, no fakes and no server."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from lambda_svc import config as config_file
from lambda_svc._core import Arena, Formula, Pipeline, PlanInput
from lambda_svc.plan import LoadedModel
from lambda_svc.server import load_plans
from tests.lambda_svc.world import GRAPH, SLOTS

REQUESTS, THREADS = 10_000, 64
BYTES_MAX = 64 << 20


@pytest.fixture(scope="module")
def model(world_dir) -> LoadedModel:
    """The world's model as the server loads it."""
    return load_plans(config_file.load(world_dir / "config.yaml"))["rank"].model


def pipeline_of(model: LoadedModel, arena: Arena, slice_rows: int) -> Pipeline:
    """The model's pipeline on an arena and with slices of its own."""
    tables = list(model.tables)
    slots = {side: [s.name for s in SLOTS if s.feature in {f.name for f in extractor.features}]
             for side, extractor in model.extractors.items()}
    inputs = [
        PlanInput(entry.side, entry.source.kind, slots[entry.side].index(entry.source.slot),
                  -1 if entry.source.table is None else tables.index(entry.source.table), entry.source.mode or "sum")
        for entry in GRAPH.inputs
    ]
    return Pipeline(
        arena=arena, executable=model.graphs.items.capsule, inputs=inputs, slice_rows=slice_rows,
        tables=[(name, table.capsule) for name, table in model.tables.items()],
        formula=Formula("liked + 0.5 * engaged", ["liked", "engaged"]),
        **{side: extractor.capsule for side, extractor in model.extractors.items()},
    )


@pytest.mark.parametrize("count", [63, 257, 1000])
def test_slices_of_any_size_give_the_same_scores(world, model, count):
    ids = np.resize(np.array([*world.items, 424242]), count)
    whole, *sliced = (pipeline_of(model, Arena(bytes_max=BYTES_MAX), rows).rank(3, ids) for rows in (0, 256, 64))
    assert [whole.slices, *(result.slices for result in sliced)] == [1, -(-count // 256), -(-count // 64)]
    back = np.argsort(whole.positions)
    np.testing.assert_allclose(whole.heads[0][back], world.score_ids(3, ids)["liked"], atol=1e-6)
    for result in sliced:
        there = np.argsort(result.positions)
        np.testing.assert_allclose(result.heads[:, there], whole.heads[:, back], rtol=0, atol=1e-6)
        np.testing.assert_array_equal(result.flags[there], whole.flags[back])
        assert (result.coverage, result.row_statuses) == (whole.coverage, whole.row_statuses)


def test_ten_thousand_requests_from_many_threads_leave_no_memory_behind(world, model):
    arena = Arena(bytes_max=BYTES_MAX)
    pipeline = pipeline_of(model, arena, 64)
    known = np.array([*world.items, 424242])
    expected = np.array([world.score_ids(user, known)["liked"] for user in range(20)])
    failures: list[object] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for turn in range(REQUESTS // THREADS + 1):
            picks = rng.integers(0, len(known), int(rng.integers(0, 800 if turn % 40 == 0 else 60)))
            user = int(rng.integers(0, 20))
            try:
                result = pipeline.rank(user, known[picks], top_k=10)
                wrong = np.abs(result.heads[0] - expected[user, picks[result.positions]]) > 1e-6
                if wrong.any() or result.bytes_copied or len(result.positions) != min(10, len(picks)):
                    failures.append((user, picks))
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    stats = arena.stats()
    assert (stats.leases, stats.leased_bytes, stats.exhausted) == (0, 0, 0)
    assert stats.leases_total > REQUESTS * 0.9
    assert stats.pooled_bytes <= BYTES_MAX and stats.blocks_new < REQUESTS / 10
    arena.trim()
    assert arena.stats().pooled_bytes == 0
