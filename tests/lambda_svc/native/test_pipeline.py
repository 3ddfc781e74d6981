"""A whole native ranking call over a TensorFlow graph and fake sources."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from lambda_svc._core import Arena, CancelFlag, Formula, Pipeline, PlanInput
from lambda_svc.errors import ArenaExhausted, Cancelled, DeadlineExceeded, EngineError, InvalidRequest, PlanError
from lambda_svc.session.engine import GraphSignature, TensorSpec

DENSE_X = "1 0 4"  # one f32 slot of width 4
EVERYTHING = GraphSignature(
    (
        TensorSpec("history_rows:0", "f32", (1, 5, 4)),
        TensorSpec("history_lengths:0", "i32", (1,)),
        TensorSpec("item_row:0", "f32", (-1, 4)),
        TensorSpec("genres:0", "f32", (-1, 4)),
        TensorSpec("related:0", "f32", (-1, 3, 4)),
        TensorSpec("price:0", "f32", (-1, 2)),
        TensorSpec("item_id:0", "i64", (-1,)),
    ),
    ("y:0",),
)


def dot_pipeline(graphs, engine, library, name="dot", formula="y", inputs=(), slice_rows=64, arena=None):
    """x from the item side, u from the user side."""
    signature = GraphSignature((TensorSpec("x:0", "f32", (-1, 4)), TensorSpec("u:0", "f32", (1, 4))), ("y:0",))
    graph = engine.load((graphs / f"{name}.pb").read_bytes(), signature)
    return Pipeline(
        arena=arena or Arena(bytes_max=1 << 26),
        executable=graph.capsule,
        user=library.features(DENSE_X),
        item=library.features(DENSE_X),
        tables=[],
        inputs=[PlanInput("item", "values", 0), PlanInput("user", "values", 0)],
        formula=Formula(formula, ["y"], list(inputs)),
        slice_rows=slice_rows,
    )


def dense_x(key) -> np.ndarray:
    """What the fake source gives for a key: see fakes.h."""
    return (np.fmod(key, 1000)[:, None] + np.arange(4) * 0.125).astype(np.float32)


def row(ids) -> np.ndarray:
    """Sum of a fake table's row for each id."""
    ids = np.asarray(ids)
    return np.where(ids % 10 == 0, -4.0, 4 * np.fmod(ids, 97) + 1.5)


@pytest.mark.parametrize("n", [1, 64, 65, 300])
def test_every_kind_of_input_reaches_the_graph(graphs, engine, library, n):
    graph = engine.load((graphs / "everything.pb").read_bytes(), EVERYTHING)
    pipeline = Pipeline(
        arena=Arena(bytes_max=1 << 26),
        executable=graph.capsule,
        user=library.features("2 2 5"),
        item=library.features("2 0 1;2 1 4;2 2 3;1 0 2"),
        tables=[("item", library.table(4)), ("genre", library.table(4))],
        inputs=[
            PlanInput("user", "rows", 0, 0),
            PlanInput("user", "lengths", 0),
            PlanInput("item", "rows", 0, 0),
            PlanInput("item", "pooled", 1, 1, "sum"),
            PlanInput("item", "rows", 2, 0, None),
            PlanInput("item", "values", 3),
            PlanInput("item", "values", 0),
        ],
        formula=Formula("y", ["y"]),
        slice_rows=64,
    )
    user, ids = 10, np.arange(n) * 7 + 1
    result = pipeline.rank(user, ids)
    first = lambda key, width: row(key * 100 + np.arange(key % (width + 1))).sum()
    shared = first(user, 5) + user % 6
    expected = np.array(
        [shared + row(i * 100) + first(i, 4) + first(i, 3) + 2 * (i % 1000) + 0.125 + i * 100 for i in ids.tolist()]
    )
    np.testing.assert_allclose(result.heads[0], expected[result.positions], rtol=1e-6)
    assert result.slices == -(-n // 64)
    assert result.bytes_copied == 0
    assert [source for source, _, _ in result.coverage] == ["user", "item", "table/item", "table/genre"]
    lengths = user % 6 + n + sum(i % 4 for i in ids.tolist())
    assert result.coverage[2][1] == lengths == sum(result.row_statuses[0][1])


def test_the_engine_reads_the_arena_s_own_memory(graphs, engine, library):
    library.register_probe()
    library.register_probe()
    arena = Arena(bytes_max=1 << 26)
    pipeline = dot_pipeline(graphs, engine, library, "probe", arena=arena)
    library.take_records()
    result = pipeline.rank(3, np.arange(150))
    records = library.take_records()
    assert len(records) == 2 * 3 and result.slices == 3
    assert all(arena.owns(address) for address, _ in records)
    assert sorted(size for _, size in records) == sorted([16] * 3 + [64 * 16, 64 * 16, 22 * 16])
    assert len({address for address, size in records if size == 16}) == 1  # the user's row, the same in every slice
    assert result.bytes_copied == 0
    assert arena.stats().leases == 0


def test_an_expired_request_never_reaches_the_model(graphs, engine, library):
    library.register_probe()
    pipeline = dot_pipeline(graphs, engine, library, "probe")
    pipeline.rank(1, np.arange(10))
    library.take_records()
    with pytest.raises(DeadlineExceeded, match="before stage gather"):
        pipeline.rank(1, np.arange(10), deadline_ns=time.monotonic_ns() - 1)
    flag = CancelFlag()
    flag.set()
    with pytest.raises(Cancelled):
        pipeline.rank(1, np.arange(10), cancel=flag)
    assert pipeline.rank(1, b"").positions.shape == (0,)
    assert library.take_records() == []
    pipeline.rank(1, np.arange(10), deadline_ns=time.monotonic_ns() + 10**10)
    assert len(library.take_records()) == 2


def test_memory_comes_back_when_outputs_alias_feeds(graphs, engine, library):
    arena = Arena(bytes_max=1 << 26)
    signature = GraphSignature((TensorSpec("x:0", "f32", (-1,)),), ("y:0", "column:0"))
    pipeline = Pipeline(
        arena=arena,
        executable=engine.load((graphs / "alias.pb").read_bytes(), signature).capsule,
        item=library.features("1 0 1"),
        tables=[],
        inputs=[PlanInput("item", "values", 0)],
        formula=Formula("y - column", ["y", "column"]),
        slice_rows=0,
    )
    results = [pipeline.rank(0, np.arange(100) + shift) for shift in range(20)]
    for shift, result in enumerate(results):
        np.testing.assert_array_equal(result.heads[1], np.arange(100) + shift)
        assert not result.rank_scores.any()
    stats = arena.stats()
    assert (stats.leases, stats.leases_total, stats.blocks_new) == (0, 20, 1)


def test_the_result_is_ranked_flagged_and_cut(graphs, engine, library):
    pipeline = dot_pipeline(graphs, engine, library, formula="y * weight", inputs=["weight"])
    ids = np.array([5, -7, 5, 8, 6])
    weight = np.array([1, 1, 1, np.nan, 1], np.float32)
    y = (dense_x(ids) * dense_x(np.array([2]))).sum(1)
    result = pipeline.rank(2, ids, [], [weight], 0)
    assert result.positions.tolist() == [4, 0, 2, 1, 3]
    assert result.candidate_ids.tolist() == [6, 5, 5, -7, 8]
    assert result.flags.tolist() == [0, 0, 0, 1, 2]
    np.testing.assert_allclose(result.rank_scores, (y * weight)[result.positions], rtol=1e-6)
    assert (result.unknown_candidates, result.nan_scores, result.unknown_user) == (1, 1, False)
    assert pipeline.rank(2, ids, [], [weight], 2).heads.shape == (1, 2)
    assert len(result.times_us) == 4
    kinds = [a.dtype for a in (result.positions, result.candidate_ids, result.rank_scores, result.heads, result.flags)]
    assert kinds == [np.uint32, np.int64, np.float64, np.float32, np.uint8]


def test_a_request_s_own_columns_override_and_may_be_bytes(graphs, engine, library):
    pipeline = dot_pipeline(graphs, engine, library)
    ids = np.array([1, 2, 3])
    x = np.random.default_rng(0).random((3, 4), np.float32)
    u = np.ones((1, 4), np.float32)
    result = pipeline.rank(9, ids.tobytes(), [(2, 0, x.tobytes(), None, None), ("user", 0, u, None, None)])
    np.testing.assert_allclose(result.heads[0], x.sum(1)[result.positions], rtol=1e-6)
    odd = memoryview(b"\0" + x.tobytes())[1:]
    again = pipeline.rank(9, ids.astype(np.uint64), [(2, 0, odd, None, None), (0, 0, u, None, None)])
    assert again.heads.tobytes() == result.heads.tobytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(candidate_ids=np.arange(3, dtype=np.float64)), "candidate_ids: got items of format d"),
        (dict(candidate_ids=np.arange(3, dtype=np.int32)), "candidate_ids: got items of format i"),
        (dict(candidate_ids=np.arange(6)[::2]), "candidate_ids: got numpy.ndarray; expected a C-contiguous"),
        (dict(candidate_ids=b"123"), "candidate_ids: got 3 bytes"),
        (dict(columns=[(2, 0, b"1234", None, None)]), r"item_columns\[slot0\]: got 4 bytes of values"),
        (dict(columns=[(1, 0, b"1234", None, None)]), "context_columns: got feature 0"),
        (dict(columns=[(3, 0, b"1234", None, None)]), "columns: got side 3"),
        (dict(formula_inputs=[np.ones(3, np.float32)]), "formula_inputs: got 1 columns"),
    ],
)
def test_bad_buffers_are_refused_by_name(graphs, engine, library, arguments, message):
    pipeline = dot_pipeline(graphs, engine, library)
    with pytest.raises(InvalidRequest, match=message):
        pipeline.rank(**{"user_id": 1, "candidate_ids": np.arange(3), **arguments})


def test_plans_that_do_not_fit_are_refused_by_name(graphs, engine, library):
    signature = GraphSignature((TensorSpec("x:0", "f32", (-1, 4)),), ("x:0",))
    with pytest.raises(EngineError, match="output x:0"):
        engine.load((graphs / "dot.pb").read_bytes(), signature)
    graph = engine.load(
        (graphs / "alias.pb").read_bytes(), GraphSignature((TensorSpec("x:0", "f32", (-1,)),), ("y:0",))
    )
    parts = dict(arena=Arena(bytes_max=1 << 20), executable=graph.capsule, tables=[], formula=Formula("y", ["y"]))
    with pytest.raises(PlanError, match="input x:0: the graph wants shape") as caught:
        Pipeline(item=library.features("1 0 3"), inputs=[PlanInput("item", "values", 0)], **parts)
    assert caught.value.field == "input x:0"
    with pytest.raises(PlanError, match="item: got PyCapsule; expected a capsule named feature_store"):
        Pipeline(item=graph.capsule, inputs=[PlanInput("item", "values", 0)], **parts)


def test_a_full_arena_refuses_and_recovers(graphs, engine, library):
    pipeline = dot_pipeline(graphs, engine, library, arena=Arena(bytes_max=1 << 17))
    with pytest.raises(ArenaExhausted, match="raise bytes_max"):
        pipeline.rank(1, np.arange(10_000))
    assert len(pipeline.rank(1, np.arange(100)).positions) == 100


def test_threads_rank_at_once(graphs, engine, library):
    pipeline = dot_pipeline(graphs, engine, library)
    failures = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(40):
            ids = rng.integers(0, 900, int(rng.integers(0, 400)))
            result = pipeline.rank(seed, ids)
            expected = (dense_x(ids) * dense_x(np.array([seed]))).sum(1)
            if not np.allclose(result.heads[0], expected[result.positions], rtol=1e-5):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_ranking_never_imports_tensorflow(graphs):
    code = f"""
import sys
import numpy as np
from lambda_svc._core import Arena, Formula, Pipeline
from lambda_svc.session import GraphSignature, TensorFlowEngine, TensorSpec
from tests.lambda_svc.native.library import TestLibrary
from tests.lambda_svc.native.test_pipeline import dot_pipeline
from pathlib import Path
library = TestLibrary(Path({str(graphs)!r}))
pipeline = dot_pipeline(Path({str(graphs)!r}), TensorFlowEngine(), library)
assert len(pipeline.rank(1, np.arange(5)).positions) == 5
assert "tensorflow" not in sys.modules, "imported"
"""
    subprocess.run([sys.executable, "-c", code], check=True)
