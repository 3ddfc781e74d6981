"""The client as a new user meets it: plain numbers just work, and what cannot is told in words."""

from __future__ import annotations

import re
import socket

import numpy as np
import pytest

from lambda_svc import config as config_file
from lambda_svc.client import RankingClient
from lambda_svc.errors import DeadlineExceeded, InvalidRequest, Unavailable
from lambda_svc.server import RankingServer, load_plans
from tests.lambda_svc.world import config_text

IDS = [0, -1, 5]


def refused(client, **features) -> str:
    with pytest.raises(InvalidRequest) as raised:
        client.rank("rank", 1, IDS, **features)
    return str(raised.value)


def test_ints_are_right_for_a_float_feature(client, world):
    vectors = [np.array([1.0, 2.0, 3.0])] * 3
    ints = client.rank("rank", 1, IDS, user={"age": 20}, items={"vector": vectors})
    floats = client.rank("rank", 1, IDS, user={"age": 20.0}, items={"vector": vectors})
    stored = client.rank("rank", 1, IDS, items={"vector": vectors})
    np.testing.assert_array_equal(ints.rank_scores, floats.rank_scores)
    assert (ints.rank_scores != stored.rank_scores).all()
    items = [{**world.item(i), "vector": vectors[0]} for i in IDS]
    expected = world.score({**world.user(1), "age": 20.0}, 12, items)["liked"]
    np.testing.assert_allclose(ints.heads["liked"], expected[ints.positions], atol=1e-6)


def test_ints_are_right_for_an_int_feature(client, world):
    history = list(world.items)[:3]
    answer = client.rank("rank", 1, IDS, user={"history": history}, context={"hour": 20})
    expected = world.score({**world.user(1), "history": history}, 20, [world.item(i) for i in IDS])["liked"]
    np.testing.assert_allclose(answer.heads["liked"], expected[answer.positions], atol=1e-6)


def test_an_item_column_may_replace_the_key(client, world):
    keys = list(world.items)[10:13]
    answer = client.rank("rank", 1, IDS, items={"item": keys})
    items = [{**world.item(i), "item": key} for i, key in zip(IDS, keys)]
    expected = world.score(world.user(1), 12, items)["liked"]
    np.testing.assert_allclose(answer.heads["liked"], expected[answer.positions], atol=1e-6)
    assert set(answer.candidate_ids.tolist()) == set(IDS)


@pytest.mark.parametrize("age", [2**24 + 1, -(2**24) - 1, 2**63 - 1])
def test_an_int_that_float32_does_not_hold_is_refused(client, age):
    assert f"user_columns[age]: got {age}, which float32 does not hold exactly" in refused(client, user={"age": age})
    assert client.rank("rank", 1, IDS, user={"age": float(age)}).reasons == {"unknown_candidates": 1}


@pytest.mark.parametrize("age", [0, -7, 2**24, 2**62, -(2**63)])
def test_an_int_that_float32_holds_is_taken(client, age):
    assert len(client.rank("rank", 1, IDS, user={"age": age}).candidate_ids) == 3


def test_formula_inputs_are_any_numbers(world_dir, world):
    path = world_dir / "any_bids.yaml"
    path.write_text(config_text(world_dir, formula='"liked * log(1 + bid)"', formula_inputs="[bid]"))
    config = config_file.load(path)
    ids = list(world.items)[:70]
    with RankingServer(config, load_plans(config)) as running, RankingClient(f"127.0.0.1:{running.port}") as client:
        for bid in (2, 2.0, [2] * 70, np.full(70, 2), np.full(70, 2, np.float32)):
            answer = client.rank("rank", 2, ids, formula_inputs={"bid": bid})
            np.testing.assert_allclose(answer.rank_scores, np.float64(answer.heads["liked"]) * np.log(3), atol=1e-12)
        with pytest.raises(InvalidRequest, match="did you mean 'bid'"):
            client.rank("rank", 2, ids, formula_inputs={"bidd": 2})


@pytest.mark.parametrize(
    "features, words",
    [
        (dict(user={"age": np.int64(3)}), "got dtype i64; expected dtype f32: write 20.0, or numpy float32"),
        (dict(context={"hour": 20.0}), "got dtype f32; expected dtype i64: write 20, or numpy int64"),
        (dict(user={"occupation": 3}), "whole numbers (no dtype); expected dtype bytes: write str or bytes"),
        (dict(user={"age": [1.0, 2.0]}), "got a multi-valued column (a list a row); expected one value, shape [1], as"),
        (dict(items={"vector": [[1.0, 2.0, 3.0]] * 3}), "one vector of 3 values a row (a numpy array), shape [3, 3]"),
        (dict(user={"history": 5}), "expected a list of values for each of 1 rows"),
        (dict(user={"history": np.array([5, 6])}), "got one value or vector a row, shape [1, 2]; expected a list"),
        (dict(user={"hour": 3}), "'hour' is of the context side"),
        (dict(user={"agee": 3}), "expected one of ['age', 'history', 'occupation']; did you mean 'age'?"),
        (dict(user={"huor": 3}), "did you mean 'hour' (of the context side)?"),
    ],
)
def test_the_server_says_what_is_wrong_in_words(client, features, words):
    assert words in refused(client, **features)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (dict(user_id=None), TypeError, "user_id: got None; expected an int of 64 bits"),
        (dict(user_id="196"), TypeError, "user_id: got one str; expected an int of 64 bits"),
        (dict(user_id=2**64), ValueError, "user_id: got 18446744073709551616; expected an int of 64 bits"),
        (dict(scenario=None), TypeError, "scenario: got None; expected str"),
        (dict(formula=3), TypeError, "formula: got 3; expected str"),
        (dict(candidate_ids=np.zeros((2, 2), int)), ValueError, r"candidate_ids: got shape \[2, 2\]"),
        (dict(top_k=-1), ValueError, "top_k: got -1; expected 0"),
        (dict(top_k=2**32), ValueError, "top_k: got 4294967296; expected 0"),
        (dict(top_k=None), TypeError, "top_k: got None; expected an int"),
        (dict(timeout_s=None), TypeError, "timeout_s: got None; expected seconds"),
        (dict(timeout_s=float("nan")), ValueError, "timeout_s: got nan; expected seconds"),
        (dict(items={"price": 3.0}), TypeError, r"items\['price'\]: got one float; expected one value per candidate"),
    ],
)
def test_an_argument_that_cannot_be_sent_is_named(client, arguments, error, message):
    with pytest.raises(error, match=message):
        client.rank(**{"scenario": "rank", "user_id": 1, "candidate_ids": IDS, **arguments})


@pytest.mark.parametrize("timeout_s", [1e12, float("inf"), np.float32(5), 5])
def test_any_time_in_the_future_is_a_timeout(client, timeout_s):
    assert len(client.rank("rank", 1, IDS, timeout_s=timeout_s).candidate_ids) == 3


def test_waiting_needs_a_time(client):
    with pytest.raises(TypeError, match="timeout_s: got None; expected seconds"):
        client.wait_ready(None)


def test_an_answer_tells_itself_in_one_line(client):
    answer = client.rank("rank", 424242, [0, 5, -1])
    best = f"best={answer.candidate_ids[0]} ({answer.rank_scores[0]:.6g})"
    assert re.fullmatch(
        rf"RankAnswer\(k=3, {re.escape(best)}, model='tiny' version 1, "
        r"reasons=\{'unknown_user': 1, 'unknown_candidates': 1\}, \d+\.\d\d ms in the server\)",
        repr(answer),
    )
    assert repr(client.rank("rank", 1, [])).startswith("RankAnswer(k=0, model='tiny' version 1, reasons={}, ")


def test_coverage_reasons_and_times_are_plain_dicts(client):
    answer = client.rank("rank", 424242, [0, 5, -1])
    assert answer.reasons == {"unknown_user": 1, "unknown_candidates": 1}
    assert answer.coverage["table/item"][0] >= answer.coverage["table/item"][1] > 0
    assert answer.coverage["user"][1] == 0 < answer.coverage["user"][0]
    assert list(answer.times_ms) == ["parse", "admission", "gather", "lookup", "run", "topk", "respond"]
    assert answer.times_ms["run"] == answer.message.times.run_us / 1e3 > 0


def test_a_request_too_large_to_send_says_so(server):
    with RankingClient(f"127.0.0.1:{server.port}", message_bytes_max=8_000) as small:
        with pytest.raises(InvalidRequest, match=r"8,0\d\d bytes; expected at most 8,000 bytes .*fewer candidates"):
            small.rank("rank", 1, np.zeros(1000, np.int64))


def test_a_request_too_large_for_the_server_says_so(client):
    with pytest.raises(InvalidRequest, match=r"request: got 1,600,\d\d\d bytes; expected at most 1,048,576 bytes"):
        client.rank("rank", 1, np.zeros(200_000, np.int64), timeout_s=10)


def test_an_answer_too_large_to_take_says_so(server):
    with RankingClient(f"127.0.0.1:{server.port}", message_bytes_max=9_000) as small:
        with pytest.raises(InvalidRequest, match=r"answer: got .* expected at most 9,000 bytes .*smaller top_k"):
            small.rank("rank", 1, np.zeros(900, np.int64), timeout_s=10)


def test_no_server_says_where_and_why():
    with socket.socket() as taken:  # bound and not listening: nobody else gets the port, and nobody answers
        taken.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{taken.getsockname()[1]}"
        with RankingClient(target) as client:
            with pytest.raises(Unavailable, match=rf"no server at {target} \(connection refused\)$"):
                client.rank("rank", 1, IDS, timeout_s=10)
            with pytest.raises(Unavailable, match=f"no connection to {target} within 0.01 s"):
                client.wait_ready(0.01)


def test_a_server_that_does_not_answer_in_time_says_what_to_change():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        with RankingClient(target) as client, pytest.raises(DeadlineExceeded) as raised:
            client.rank("rank", 1, IDS, timeout_s=0.1)
    assert str(raised.value) == f"no answer from {target} within 0.1 s: allow more time or send fewer candidates"
