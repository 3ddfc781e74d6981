"""The zoo by name and size: configs, dense forms, and requests that look like the workloads."""

import time

import numpy as np
import pytest

from models import zoo
from models.errors import ConfigError
from models.zoo.din import DinConfig
from models.zoo.dlrm import CRITEO_ROWS, DlrmConfig
from models.zoo.fields import Field, fields_checked, ids_of, interface_of, vocabulary_of
from models.zoo.requests import Popularity, draw_request

from ..graph_session import GraphSession

CANDIDATES = {"two_tower": 5_000, "din": 500, "din_long": 120, "cross": 300, "dlrm": 500}
SCENARIOS = {"explore_prerank", "explore_rank", "inner_rank", "search_rank", "ads_rank"}


def test_there_is_a_model_for_every_scenario():
    assert {zoo.get(name).definition.scenario for name in zoo.NAMES} == SCENARIOS
    assert {name: zoo.get(name).definition.candidates for name in zoo.NAMES} == CANDIDATES
    for name in zoo.NAMES:
        assert set(zoo.get(name).definition.sizes) == set(zoo.SIZES)


def test_unknown_names_and_sizes_are_refused_with_what_there_is():
    with pytest.raises(ConfigError, match="did you mean 'din_long'"):
        zoo.get("din-long")
    with pytest.raises(ConfigError, match="there are two_tower, din"):
        zoo.get("xxxxxxx")
    with pytest.raises(ConfigError, match="size is 'huge'; expected small, base, large"):
        zoo.get("din", "huge")


def test_configs_refuse_what_makes_no_model_all_at_once():
    with pytest.raises(ConfigError, match="dim is 0.*history_length is -1.*units is empty"):
        DinConfig(dim=0, history_length=-1, units=())
    with pytest.raises(ConfigError, match=r"units is \(8, 0\)"):
        DinConfig(units=(8, 0))
    with pytest.raises(ConfigError, match="cross_rank is -1; expected whole numbers of at least 0"):
        DlrmConfig(cross_rank=-1)
    assert DlrmConfig(cross_rank=0).cross_rank == 0


def test_fields_that_share_a_table_agree_on_it():
    item = Field("item", "item", "key", 8, 100)
    with pytest.raises(ConfigError, match="field 'seen': table 'item'"):
        fields_checked((item, Field("seen", "user", "sequence", 4, 100, 10, table="item")))
    with pytest.raises(ConfigError, match="'seen': table 'item'.*row by row.*pooled"):
        fields_checked((item, Field("seen", "user", "bag", 8, 100, 10, table="item")))
    with pytest.raises(ConfigError, match="'x': dim 0, length 1 and rows 1"):
        fields_checked((Field("x", "user", "id", 0, 1),))


@pytest.mark.parametrize("name", zoo.NAMES)
def test_the_dense_form_is_quick_and_runs_for_any_number_of_candidates(name):
    started = time.perf_counter()
    graph, feeds = zoo.dense(name, "base", seed=1)
    assert time.perf_counter() - started < 10
    assert not [n.name for n in graph.item.node if n.op in ("VarHandleOp", "SparseSegmentMeanWithNumSegments")]
    session, rng = GraphSession(graph.item), np.random.default_rng(0)
    for n in (1, 33):
        arrays = feeds(n, rng)
        assert set(arrays) == {entry.name for entry in graph.inputs}
        assert {e.name: len(arrays[e.name]) for e in graph.inputs} == {
            e.name: n if e.side == "item" else 1 for e in graph.inputs}
        scores = session.run(graph.outputs, arrays)
        assert len(scores) == len(graph.heads) and all(s.shape == (n,) and np.isfinite(s).all() for s in scores)
    assert not np.array_equal(*[feeds(2, rng)[graph.inputs[0].name] for _ in range(2)])


def test_the_dense_form_has_the_weights_of_the_whole_model():
    from models.export import build

    whole = build(zoo.get("din", "small").servable(seed=2)).graph_def
    assert whole.SerializeToString(deterministic=True) == zoo.dense("din", "small", seed=2)[0].item.SerializeToString(
        deterministic=True)
    other = zoo.dense("din", "small", seed=3)[0].item
    assert whole.SerializeToString(deterministic=True) != other.SerializeToString(deterministic=True)


def test_din_at_base_has_the_shape_of_the_measured_graph():
    graph, _ = zoo.dense("din", "base")
    tensors = [node.attr["value"].tensor for node in graph.item.node if node.op == "Const"]
    shapes = [tuple(d.size for d in tensor.tensor_shape.dim) for tensor in tensors]
    for wanted in ((256, 80), (1152, 1024), (1024, 512), (512, 256)):
        assert wanted in shapes
    assert len(graph.heads) == 4


def test_dlrm_has_the_tables_of_criteo():
    fields = {f.name: f for f in zoo.get("dlrm", "large").fields if f.looked_up}
    assert list(fields) == [f"c{i}" for i in range(1, 27)] and len(CRITEO_ROWS) == 26
    assert fields["c20"].kind == "key" and fields["c20"].rows == 100_000 and fields["c6"].rows == 3
    assert {f.dim for f in fields.values()} == {128}


@pytest.mark.parametrize("s, q", [(1.0, 10.0), (1.2, 100.0), (0.76, 1.0)])
def test_ids_are_drawn_by_popularity(s, q):
    rows, n = 5_001, 200_000
    field = Field("item", "item", "key", 4, rows)
    request = draw_request((field,), n, np.random.default_rng(0), Popularity(s=s, q=q))
    ids, counts = np.unique(request.candidate_ids, return_counts=True)
    known = np.isin(ids, vocabulary_of("item", rows).ids)
    assert abs(counts[~known].sum() / n - 0.02) < 0.002
    shares = (np.arange(rows - 1) + q) ** -s
    shares *= 0.98 / shares.sum()
    seen = dict(zip(ids.tolist(), (counts / n).tolist(), strict=True))
    for rank in (0, 1, 10, 100):
        wanted = shares[rank]
        assert abs(seen[int(ids_of("item", np.array([rank]))[0])] - wanted) < 6 * np.sqrt(wanted / n)


def test_ids_are_distinct_and_use_all_bits():
    ids = vocabulary_of("item", 10_001).ids
    assert len(np.unique(ids)) == 10_000 and ids.min() < -(2**62) and ids.max() > 2**62
    assert not np.isin(ids_of("item", np.arange(10_000, 20_000)), ids).any()


def test_requests_are_full_mostly_and_empty_when_asked():
    entry = zoo.get("din", "small")
    rng = np.random.default_rng(0)
    lengths = [len(draw_request(entry.fields, 1, rng).user["history"]) for _ in range(300)]
    assert 0.85 < np.mean(np.array(lengths) == 10) < 0.97 and min(lengths) < 5
    empty = draw_request(entry.fields, 2, rng, empty=True)
    assert empty.user["history"] == [] and empty.user["profile_2"] == [] and len(empty.candidate_ids) == 2
    again = [draw_request(entry.fields, 3, np.random.default_rng(8)) for _ in range(2)]
    assert again[0].user == again[1].user and np.array_equal(again[0].candidate_ids, again[1].candidate_ids)
    with pytest.raises(ConfigError, match="unknown_share is 2.*s is -1"):
        Popularity(s=-1, unknown_share=2)


def test_inputs_of_fields_carry_lengths_and_segments():
    names = [i.name for i in interface_of(zoo.get("din", "small").fields).inputs]
    assert {"profile_0", "profile_0_segments", "history", "history_length", "hour", "item"} <= set(names)
