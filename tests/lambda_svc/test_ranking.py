"""Served answers against the plain reference: known and unknown ids, order, ties, overrides, coverage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lambda_svc import config as config_file
from lambda_svc.client import RankingClient
from lambda_svc.proto import ranking_pb2 as pb
from lambda_svc.server import RankingServer, load_plans
from tests.lambda_svc.world import config_text


def check(answer, expected: dict[str, np.ndarray]) -> None:
    """Heads, rank scores and order of an answer that returned every candidate."""
    for head, scores in expected.items():
        np.testing.assert_allclose(answer.heads[head], scores[answer.positions], atol=1e-6)
    fused = answer.heads["liked"].astype(np.float64) + 0.5 * answer.heads["engaged"].astype(np.float64)
    np.testing.assert_allclose(answer.rank_scores, fused, atol=1e-15)
    order = np.lexsort((answer.positions, -answer.rank_scores))
    np.testing.assert_array_equal(order, np.arange(len(order)))


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200])
def test_scores_equal_the_reference(world, client, count):
    ids = list(world.items)[:count]
    answer = client.rank("rank", 3, ids)
    check(answer, world.score_ids(3, ids))
    assert set(answer.candidate_ids.tolist()) == set(ids)
    assert answer.message.bytes_copied == 0
    assert answer.message.plan.slices == -(-count // 64)
    assert answer.message.plan.model == "tiny" and answer.message.plan.version == 1
    assert not answer.flags.any() and not answer.message.reasons


def test_top_k_is_the_head_of_the_full_order(world, client):
    ids = list(world.items)
    everything, best = client.rank("rank", 4, ids), client.rank("rank", 4, ids, top_k=10)
    np.testing.assert_array_equal(best.candidate_ids, everything.candidate_ids[:10])
    np.testing.assert_array_equal(best.rank_scores, everything.rank_scores[:10])


def test_a_request_may_order_by_its_own_formula(world, client):
    ids = list(world.items)[:50]
    answer = client.rank("rank", 4, ids, formula="-liked")
    np.testing.assert_array_equal(answer.rank_scores, -answer.heads["liked"].astype(np.float64))
    assert (np.diff(answer.rank_scores) <= 0).all()
    check(client.rank("rank", 4, ids), world.score_ids(4, ids))


def test_no_candidates_is_an_empty_list(client):
    answer = client.rank("rank", 1, [])
    assert len(answer.candidate_ids) == 0 and answer.message.plan.slices == 0
    assert all(len(scores) == 0 for scores in answer.heads.values())


def test_duplicates_are_each_scored(world, client):
    ids = [5, 0, 0, -1, 0]
    answer = client.rank("rank", 1, ids)
    check(answer, world.score_ids(1, ids))
    assert sorted(answer.positions.tolist()) == [0, 1, 2, 3, 4]


def test_unknown_user_gets_defaults_and_coverage_says_so(world, client):
    ids = list(world.items)[:10]
    answer = client.rank("rank", 2**64 - 1, ids)
    check(answer, world.score_ids(999, ids))
    coverage = {entry.source: (entry.asked, entry.answered) for entry in answer.message.coverage}
    assert coverage["user"] == (3, 0)
    assert coverage["table/occupation"] == (1, 0)
    assert ("unknown_user", 1) in [(reason.code, reason.count) for reason in answer.message.reasons]


def test_unknown_candidates_are_scored_on_defaults_and_flagged(world, client):
    ids = [list(world.items)[0], 424242, list(world.items)[1]]
    answer = client.rank("rank", 1, ids)
    check(answer, world.score_ids(1, ids))
    flagged = answer.candidate_ids[answer.flags & pb.CANDIDATE_UNKNOWN != 0]
    assert flagged.tolist() == [424242]
    assert [(reason.code, reason.count) for reason in answer.message.reasons] == [("unknown_candidates", 1)]


def test_a_request_brings_its_own_columns(world, client):
    ids = list(world.items)[:3]
    user = {"age": 55.0, "occupation": b"\xfe\x00", "history": [0, -1, 77]}
    items = [{**world.item(i), "genres": g} for i, g in zip(ids, [[], [b"noir"], [b"\xff", b"drama"]])]
    answer = client.rank(
        "rank", 1, ids, user=user, context={"hour": 23}, items={"genres": [item["genres"] for item in items]}
    )
    check(answer, world.score(user, 23, items))


def test_every_multi_valued_feature_empty_pools_to_zero(world, client):
    ids = list(world.items)[:4]
    answer = client.rank("rank", 1, ids, user={"history": []}, items={"genres": [[], [], [], []]})
    user = {**world.user(1), "history": []}
    check(answer, world.score(user, 12, [{**world.item(i), "genres": []} for i in ids]))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    user_id=st.integers(-(2**63), 2**64 - 1) | st.integers(0, 19),
    picks=st.lists(st.integers(0, 199) | st.integers(-(2**63), 2**63 - 1), max_size=150),
)
def test_any_ids_rank_as_the_reference_says(world, client, user_id, picks):
    known = list(world.items)
    ids = [known[p] if 0 <= p < 200 else p for p in picks]
    answer = client.rank("rank", user_id, ids)
    signed = user_id - 2**64 if user_id >= 2**63 else user_id
    if ids:
        check(answer, world.score_ids(signed, ids))
    assert len(answer.candidate_ids) == len(ids)


def test_ids_may_be_numpy_integers(world, client):
    ids = np.array(list(world.items)[:3])
    answer = client.rank("rank", np.int64(3), ids)
    check(answer, world.score_ids(3, ids))


def test_without_stored_features_nothing_is_unknown_and_coverage_tells(world, world_dir):
    path = world_dir / "bring_all.yaml"
    path.write_text("".join(line for line in config_text(world_dir).splitlines(True) if "_features" not in line))
    config = config_file.load(path)
    ids = list(world.items)[:5]
    brought = {name: [world.items[i][name] for i in ids] for name in ("genres", "price", "vector")}
    with RankingServer(config, load_plans(config)) as running, RankingClient(f"127.0.0.1:{running.port}") as client:
        whole = client.rank("rank", 2, ids, user=world.users[2], items=brought)
        bare = client.rank("rank", 2, ids)
    check(whole, world.score_ids(2, ids))
    check(bare, world.score(world.user(999), 12, [{**world.item(12345), "item": i} for i in ids]))
    for answer in (whole, bare):
        assert not answer.flags.any() and not answer.message.reasons
    of_whole, of_bare = ({e.source: (e.asked, e.answered) for e in a.message.coverage} for a in (whole, bare))
    assert (of_whole["user"], of_whole["item"]) == ((3, 3), (20, 20))
    assert (of_bare["user"], of_bare["item"]) == ((3, 0), (20, 5))  # an item's id is its own


def test_changing_one_row_changes_the_score(world, server, client):
    ids = list(world.items)[:5]
    before = client.rank("rank", 3, ids)
    table = server.ranking.plan("rank").model.tables["item"]
    row = np.float32([world.tables["item"]["rows"][ids[2]]])
    table.upsert(np.array([ids[2]]), row + 1)
    after = client.rank("rank", 3, ids)
    table.upsert(np.array([ids[2]]), row)
    changed = {int(p) for p in range(5) if _liked(before, p) != _liked(after, p)}
    in_history = ids[2] in world.user(3)["history"]
    assert changed == (set(range(5)) if in_history else {2})


def _liked(answer, position: int) -> float:
    return float(answer.heads["liked"][answer.positions.tolist().index(position)])
