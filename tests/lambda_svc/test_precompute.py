"""PrecomputeUser through the server: what it left changes the time of a Rank, and never a score."""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager

import numpy as np
import pytest

from lambda_svc import config as config_file
from lambda_svc.client import RankingClient
from lambda_svc.errors import InvalidRequest, NotFound
from lambda_svc.lifecycle import Keeper
from lambda_svc.proto import ranking_pb2 as pb
from lambda_svc.server import RankingServer, load_plans
from tests.lambda_svc.live_worlds import WORLDS, configured, until
from tests.lambda_svc.world import MODEL, config_text

BROUGHT = {"age": 44.0, "occupation": b"pilot"}


@contextmanager
def serving(config, plans=None):
    """(server, client) with states of its own."""
    with RankingServer(config, plans or load_plans(config)) as server:
        with RankingClient(f"127.0.0.1:{server.port}") as client:
            client.wait_ready(10)
            yield server, client


@pytest.fixture
def served(world_dir):
    with serving(config_file.load(world_dir / "config.yaml")) as both:
        yield both


def same(one, other) -> None:
    """The same answer to the bit, but for its times, its id and what it says about the state."""
    for name in ("candidate_ids", "positions", "rank_scores", "flags", "coverage", "reasons", "plan", "heads"):
        assert getattr(one.message, name) == getattr(other.message, name), name


def test_with_a_state_the_answer_is_the_same_to_the_bit(served, world):
    server, client = served
    ids = [*world.items, 424242]
    for user_id in (3, 4, 10**9):
        for user in ({}, BROUGHT):
            without = client.rank("rank", user_id, ids, user=user)
            made = client.precompute_user("rank", user_id, user=user)
            with_it = client.rank("rank", user_id, ids, user=user)
            same(with_it, without)
            assert made.kept and made.state_bytes > 0 and made.ttl_ms == 60_000
            assert (without.user_state, with_it.user_state) == ("absent" if not user else "mismatched", "used")
            asked = {c.source: (c.asked, c.answered) for c in made.coverage}
            assert asked["user"] == with_it.coverage["user"] and "item" not in asked
            assert [r.code for r in made.reasons] == (["unknown_user"] if user_id == 10**9 else [])
    stats = server.ranking.user_states.stats()
    assert (stats.states, stats.used, stats.mismatched, stats.absent) == (6, 6, 3, 3)


def test_other_features_are_mismatched_and_scored_as_they_are(served, world):
    _, client = served
    ids = list(world.items)[:70]
    client.precompute_user("rank", 3, user=BROUGHT)
    for user in ({}, {**BROUGHT, "age": 45.0}, {"age": 44.0}, {**BROUGHT, "history": [0, -1]}):
        answer = client.rank("rank", 3, ids, user=user)
        assert answer.user_state == "mismatched"
        expected = world.score({**world.user(3), **user}, 12, [world.item(i) for i in ids])
        np.testing.assert_allclose(answer.heads["liked"], expected["liked"][answer.positions], atol=1e-6)
    assert client.rank("rank", 3, ids, user=dict(reversed(BROUGHT.items()))).user_state == "used"
    assert client.rank("rank", 4, ids, user=BROUGHT).user_state == "absent"


def test_a_context_that_the_user_side_does_not_read_may_change(served, world):
    _, client = served
    ids = list(world.items)[:70]
    client.precompute_user("rank", 3, context={"hour": 2})
    for hour in (2, 23):
        answer = client.rank("rank", 3, ids, context={"hour": hour})
        expected = world.score_ids(3, ids, hour)["liked"]
        np.testing.assert_allclose(answer.heads["liked"], expected[answer.positions], atol=1e-6)
        assert answer.user_state == "used"


def test_a_formula_of_the_request_s_own_takes_the_same_state(served, world):
    _, client = served
    client.precompute_user("rank", 3)
    answer = client.rank("rank", 3, list(world.items), formula="-liked")
    assert answer.user_state == "used"
    np.testing.assert_array_equal(answer.rank_scores, -answer.heads["liked"].astype(np.float64))


def test_a_state_that_made_room_or_ran_out_costs_time_and_no_score(world_dir, world):
    path = world_dir / "small_states.yaml"
    path.write_text(config_text(world_dir) + "user_state: {bytes_max: 4000, ttl_s: 3600}\n")
    ids = list(world.items)
    with serving(config_file.load(path)) as (server, client):
        before = client.rank("rank", 1, ids)
        for user_id in range(20):
            assert client.precompute_user("rank", user_id).kept
        after = client.rank("rank", 1, ids)
        stats = server.ranking.user_states.stats()
        assert after.user_state == "absent" and stats.evicted > 10 and stats.nbytes <= 4000
        same(after, before)
        server.ranking.user_states._clock = lambda: 1e18
        assert client.rank("rank", 19, ids).user_state == "absent"


def test_a_store_without_room_keeps_nothing_and_says_so(world_dir, world):
    path = world_dir / "no_states.yaml"
    path.write_text(config_text(world_dir) + "user_state: {bytes_max: 0}\n")
    with serving(config_file.load(path)) as (_, client):
        made = client.precompute_user("rank", 1)
        assert not made.kept and not made.ttl_ms and [(r.code, r.count) for r in made.reasons] == [("no_room", 1)]
        assert client.rank("rank", 1, list(world.items)).user_state == "absent"


def test_the_user_side_is_not_looked_up_again(served, world):
    """Rows of a loaded table never change in service; here they do, so that who looks them up is told apart."""
    server, client = served
    ids = list(world.items)[:70]
    client.precompute_user("rank", 3)
    before = client.rank("rank", 3, ids)
    table = server.ranking.plan("rank").model.tables["occupation"]
    table.upsert(table.ids(), np.full((len(table), 4), 3.0, np.float32))
    with_it, without = client.rank("rank", 3, ids), client.rank("rank", 3, ids, user={"age": world.user(3)["age"]})
    same(with_it, before)
    assert with_it.user_state == "used" and without.user_state == "mismatched"
    assert (without.heads["liked"][np.argsort(without.positions)]
            != before.heads["liked"][np.argsort(before.positions)]).all()


def test_a_user_side_that_is_not_there_is_refused_by_name(served):
    _, client = served
    with pytest.raises(InvalidRequest, match=r"user_columns\[agee\]: got .* did you mean 'age'"):
        client.precompute_user("rank", 1, user={"agee": 3})
    with pytest.raises(NotFound, match=r"scenario: got 'none', expected one of \['rank'\]"):
        client.precompute_user("none", 1)
    with pytest.raises(NotFound, match="version: got 9"):
        client.precompute_user("rank", 1, version=9)


def test_a_new_version_never_takes_a_state_of_the_one_before(world_dir, tmp_path):
    for name in ("users.parquet", "items.parquet"):
        shutil.copy(world_dir / name, tmp_path / name)
    shutil.copytree(world_dir / "repository", tmp_path / "repository")
    keeper = Keeper(configured(tmp_path))
    with serving(configured(tmp_path), keeper.load()) as (server, client):
        ids = list(WORLDS[1].items)[:70]
        states = server.ranking.user_states
        stop, failed, seen = threading.Event(), [], set()

        def ask(user_id: int) -> None:
            while not stop.is_set():
                client.precompute_user("rank", user_id, timeout_s=20)
                answer = client.rank("rank", user_id, ids, timeout_s=20)
                version = answer.message.plan.version
                expected = WORLDS[version].score_ids(user_id, ids)["liked"][answer.positions]
                seen.add((version, answer.user_state))
                if not np.allclose(answer.heads["liked"], expected, atol=1e-6):
                    failed.append(answer)

        keeper.start(server.ranking.switch)
        threads = [threading.Thread(target=ask, args=(user_id,)) for user_id in range(3)]
        [thread.start() for thread in threads]
        try:
            until(lambda: (1, "used") in seen, "version 1 uses no state")
            old = server.ranking.plan("rank").serial
            WORLDS[2].write_package(tmp_path / "repository", 2)
            until(lambda: (2, "used") in seen, "version 2 uses no state")
            until(lambda: len(keeper.status()) == 1, "version 1 is not let go of")
        finally:
            stop.set()
            [thread.join(60) for thread in threads]
            keeper.stop()
        assert not failed and not any(states.has_user(old, user_id) for user_id in range(3))
        assert states.stats().dropped >= 1 and not (tmp_path / "run/packages" / MODEL / "1").exists()


def test_many_clients_precompute_and_rank_at_once(served, world):
    server, client = served
    errors, barrier = [], threading.Barrier(16)
    ids = np.array(list(world.items))

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        barrier.wait(30)
        for _ in range(20):
            user_id, age = int(rng.integers(0, 6)), float(rng.integers(20, 23))
            picked = rng.choice(ids, rng.integers(1, 130))
            if rng.random() < 0.4:
                client.precompute_user("rank", user_id, user={"age": age}, timeout_s=60)
            answer = client.rank("rank", user_id, picked, user={"age": age}, timeout_s=60)
            user = {**world.user(user_id), "age": age}
            expected = world.score(user, 12, [world.item(int(i)) for i in picked])["liked"]
            if not np.allclose(answer.heads["liked"], expected[answer.positions], atol=1e-6):
                errors.append(answer)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    [thread.start() for thread in threads]
    [thread.join(120) for thread in threads]
    stats = server.ranking.user_states.stats()
    assert not errors and stats.used > 0 and stats.used + stats.absent + stats.mismatched == 320


@pytest.fixture(scope="module")
def zoo_repository(tmp_path_factory):
    """Models whose user side is a graph of its own: of the user alone, and of user and context."""
    from models import zoo
    from models.export import export

    folder = tmp_path_factory.mktemp("zoo")
    for name in ("din", "two_tower"):
        export(zoo.get(name, "small").servable(), folder, 1)
    return folder


@pytest.mark.parametrize("model", ["din", "two_tower"])
def test_a_graph_of_the_user_is_not_run_again(zoo_repository, tmp_path, model):
    from models import zoo
    from models.zoo.requests import draw_request

    definition = zoo.get(model, "small")
    path = tmp_path / "config.yaml"
    path.write_text(f"repository: {zoo_repository}\nwork_dir: {tmp_path / 'run'}\narena_bytes_max: 67108864\n"
                    "server: {listen: '127.0.0.1:0'}\nscenarios:\n"
                    f"  rank: {{model: {model}_small, formula: {' + '.join(definition.servable().heads)}}}\n")
    drawn = draw_request(definition.fields, 300, np.random.default_rng(5))
    with serving(config_file.load(path)) as (server, client):
        pipeline = server.ranking.plan("rank").pipeline
        sides = dict(user=drawn.user, context=drawn.context)
        without = client.rank("rank", 1, drawn.candidate_ids, **sides, items=drawn.item, timeout_s=30)
        assert client.precompute_user("rank", 1, **sides, timeout_s=30).kept
        with_it = client.rank("rank", 1, drawn.candidate_ids, **sides, items=drawn.item, timeout_s=30)
        same(with_it, without)
        assert with_it.user_state == "used" and with_it.message.plan.variant == "user_once"
        if drawn.context:
            other = {name: value + 1 for name, value in drawn.context.items()}
            moved = client.rank("rank", 1, drawn.candidate_ids, user=drawn.user, context=other, items=drawn.item,
                                timeout_s=30)
            assert moved.user_state == ("mismatched" if pipeline.user_reads_context else "used")


def test_use_of_a_state_has_a_word_for_each_number():
    assert pb.UserStateUse.keys() == ["USER_STATE_ABSENT", "USER_STATE_USED", "USER_STATE_MISMATCHED"]
