"""Bad input ends with INVALID_ARGUMENT naming the field, what came and what was expected; the model never runs, and the
next request is served."""

from __future__ import annotations

import grpc
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lambda_svc.client import RankingClient
from lambda_svc.errors import CallerError, DeadlineExceeded, InvalidRequest, LambdaError, NotFound
from lambda_svc.proto import ranking_pb2 as pb


def request(**fields) -> pb.RankRequest:
    """A good request of ten candidates, with fields replaced."""
    return pb.RankRequest(**{"scenario": "rank", "user_id": 1, "candidate_ids": np.arange(10).tobytes(), **fields})


def f32(name: str, shape: list[int], count: int | None = None) -> pb.Column:
    count = int(np.prod(shape)) if count is None else count
    return pb.Column(name=name, dtype=pb.F32, shape=shape, values=bytes(4 * count))


def whole(name: str, *values: int) -> pb.Column:
    return pb.Column(name=name, shape=[len(values)], values=np.int64(values).tobytes())


def ragged(offsets: list[int], values: int = 3) -> pb.Column:
    return pb.Column(
        name="history", dtype=pb.I64, values=bytes(8 * values), row_offsets=np.int32(offsets).tobytes()
    )


BAD = {
    "half an id": (request(candidate_ids=b"123"), "candidate_ids", "3 bytes", "multiple of 8"),
    "too many candidates": (request(candidate_ids=bytes(8 * 1001)), "candidate_ids", "1001", "at most 1000"),
    "[N] for [N,1]": (request(item_columns=[f32("price", [10])]), "item_columns[price]", "[10]", "[10, 1]"),
    "[N,4] for [N,3]": (request(item_columns=[f32("vector", [10, 4])]), "item_columns[vector]", "[10, 4]", "[10, 3]"),
    "9 rows for 10": (request(item_columns=[f32("price", [9, 1])]), "item_columns[price]", "[9, 1]", "[10, 1]"),
    "short values": (request(item_columns=[f32("price", [10, 1], 9)]), "item_columns[price]", "36 bytes", "40"),
    "wrong type": (
        request(item_columns=[pb.Column(name="price", dtype=pb.I64, shape=[10, 1], values=bytes(80))]),
        "item_columns[price]", "i64", "f32",
    ),
    "unknown type": (
        request(item_columns=[pb.Column(name="price", dtype=9, shape=[10, 1], values=bytes(80))]),
        "item_columns[price]", "9", "f32",
    ),
    "undeclared name": (request(item_columns=[f32("prize", [10, 1])]), "item_columns[prize]", "prize", "price"),
    "user feature as item": (request(item_columns=[f32("age", [10])]), "item_columns[age]", "age", "price"),
    "context feature as user": (request(user_columns=[f32("hour", [1])]), "user_columns[hour]", "hour", "context"),
    "misspelt name": (request(user_columns=[f32("agee", [1])]), "user_columns[agee]", "agee", "did you mean 'age'?"),
    "many values for one": (
        request(user_columns=[pb.Column(name="age", dtype=pb.F32, values=bytes(8), row_offsets=bytes(8))]),
        "user_columns[age]", "multi-valued", "one value, shape [1], as the feature is single",
    ),
    "one value for many": (
        request(user_columns=[pb.Column(name="history", dtype=pb.I64, values=bytes(8), shape=[1])]),
        "user_columns[history]", "one value or vector", "a list of values",
    ),
    "whole numbers beyond float32": (
        request(user_columns=[whole("age", 2**24 + 1)]), "user_columns[age]", "16777217", "up to 2**24",
    ),
    "whole numbers as text": (
        request(user_columns=[whole("occupation", 3)]), "user_columns[occupation]", "whole numbers", "dtype bytes",
    ),
    "half a whole number": (
        request(user_columns=[pb.Column(name="age", values=b"123", shape=[1])]),
        "user_columns[age]", "3 bytes", "int64",
    ),
    "given twice": (request(user_columns=[f32("age", [1])] * 2), "user_columns[age]", "twice", "once"),
    "two rows for a user": (request(user_columns=[f32("age", [2])]), "user_columns[age]", "[2]", "[1]"),
    "offsets decrease": (request(user_columns=[ragged([0, -1])]), "user_columns[history]", "-1", "decrease"),
    "offsets past the values": (request(user_columns=[ragged([0, 4])]), "user_columns[history]", "24 bytes", "32"),
    "longer than the sequence": (request(user_columns=[ragged([0, 9], 9)]), "user_columns[history]", "9", "at most 8"),
    "a very long name": (
        request(item_columns=[f32("n" * 100_000, [10])]), f"item_columns[{'n' * 64}...]", "nnn...", "'price'",
    ),
    "undeclared formula input": (request(formula_inputs=[f32("bid", [10])]), "formula_inputs[bid]", "bid", "one of"),
    "invalid formula": (request(formula="liked +"), "formula", "liked +", "expected"),
    "formula of an unknown head": (request(formula="likd * 2"), "formula", "likd", "liked"),
}


@pytest.mark.parametrize("case", BAD)
def test_the_error_names_field_got_and_expected(server, client, case):
    message, field, got, expected = BAD[case]
    runs = server.ranking.stats()["rank"].admitted
    with pytest.raises(InvalidRequest) as raised:
        client.call(message, 5)
    assert raised.value.field == field
    assert got in raised.value.got
    assert expected in raised.value.expected
    assert server.ranking.stats()["rank"].admitted == runs, "the model must not run"
    assert len(client.rank("rank", 1, [0, 5]).candidate_ids) == 2


@pytest.mark.parametrize("name", ["nope", "\N{FIRE}" * 50_000])
def test_unknown_scenario_lists_the_known(client, name):
    with pytest.raises(NotFound, match=rf"'{name[:64]}.*\['rank'\]"):
        client.rank(name, 1, [1])


def test_an_expired_deadline_never_reaches_the_model(server, client):
    runs = server.ranking.stats()["rank"].admitted
    with pytest.raises(DeadlineExceeded):
        client.rank("rank", 1, [1, 2], timeout_s=0)
    with pytest.raises(DeadlineExceeded):
        server.ranking.rank(request(), time_left_s=-0.001)
    assert server.ranking.stats()["rank"].admitted == runs
    assert server.ranking.stats()["rank"].expired >= 1


def test_a_message_beyond_the_limit_is_refused_and_the_next_is_served(server, client):
    with pytest.raises(LambdaError):
        client.call(request(request_id="x" * (1 << 20)), 5)
    assert len(client.rank("rank", 1, [0]).candidate_ids) == 1


def test_bytes_that_are_no_message_do_not_hurt(server, client):
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = channel.unary_unary("/lambda_svc.v1.Ranking/Rank")
        for noise in (b"\xff" * 50, b"\x0a\xff\xff\xff\xff\x0f", bytes(range(256))):
            with pytest.raises(grpc.RpcError):
                call(noise, timeout=5)
    assert len(client.rank("rank", 1, [0]).candidate_ids) == 1


OFFSETS = st.binary(max_size=50) | st.lists(st.integers(-5, 20), max_size=12).map(lambda o: np.int32(o).tobytes())
columns = st.builds(
    pb.Column,
    name=st.sampled_from(["age", "occupation", "history", "hour", "genres", "price", "vector", "item", "nope"]),
    dtype=st.integers(0, 5),
    values=st.binary(max_size=100),
    shape=st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(0, 10), max_size=3),
    row_offsets=OFFSETS,
    byte_offsets=OFFSETS,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    message=st.builds(
        pb.RankRequest,
        scenario=st.just("rank"),
        user_id=st.integers(-(2**63), 2**63 - 1),
        candidate_ids=st.binary(max_size=80),
        top_k=st.integers(0, 2**32 - 1),
        user_columns=st.lists(columns, max_size=3),
        context_columns=st.lists(columns, max_size=2),
        item_columns=st.lists(columns, max_size=3),
        formula_inputs=st.lists(columns, max_size=1),
        formula=st.sampled_from(["", "liked", "-engaged", "log(liked", "\x00"]) | st.text(max_size=30),
    )
)
def test_any_request_is_answered_or_refused_by_name(server, message):
    try:
        answer = server.ranking.rank(message, time_left_s=5)
    except CallerError as error:
        assert isinstance(error, InvalidRequest) and error.field and error.got and error.expected
    else:
        assert len(answer.candidate_ids) in (len(message.candidate_ids), 8 * message.top_k)


def test_refusing_unknown_candidates(world_dir, world):
    from lambda_svc import config as config_file
    from lambda_svc.server import RankingServer, load_plans
    from tests.lambda_svc.world import config_text

    path = world_dir / "refuse.yaml"
    path.write_text(config_text(world_dir, unknown_candidates="refuse"))
    config = config_file.load(path)
    with RankingServer(config, load_plans(config)) as running, RankingClient(f"127.0.0.1:{running.port}") as client:
        with pytest.raises(InvalidRequest, match="424242"):
            client.rank("rank", 1, [0, 424242])
        assert len(client.rank("rank", 1, [0]).candidate_ids) == 1
