"""Lookups over the wire, asked by a client that shares no code with the product."""

import select
import threading

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from paramserver import Table, Tier
from paramserver.shard_map import shard_of
from tests.paramserver.server.flight_client import IDS as IDS_SCHEMA
from tests.paramserver.server.flight_client import Refused, WireClient, lookup_header
from tests.paramserver.server.native_servers import IDS, address_of, item_server, native_server, table_of
from tests.paramserver.server.servers import rows_of

HIT, COLD, DEFAULT, DEADLINE = 0, 1, 2, 5


@pytest.fixture
def server():
    """A server of shard 0 of 1, map version 1, that serves table "item" in epoch 1."""
    made = item_server()
    yield made
    made.stop(0)


@pytest.fixture
def client(server):
    """A client of it."""
    made = WireClient(address_of(server))
    yield made
    made.close()


def test_rows_come_in_the_order_of_the_ids(client):
    ids = np.array([7, -100, 4_999, 7, 10**15, -2**63, 2**63 - 1, 0])
    rows, status = client.lookup("item", ids)
    known = np.isin(ids, IDS)
    assert (rows[known] == rows_of(ids[known], 5)).all() and (rows[~known] == -1).all()
    assert (status == np.where(known, HIT, DEFAULT)).all()


@pytest.mark.parametrize("n", [0, 1, 5_000, 100_000, 1 << 20])
def test_any_number_of_ids_is_answered_in_chunks(client, n):
    ids = np.random.default_rng(n).choice(IDS, n)
    rows, status = client.lookup("item", ids)
    assert (rows == rows_of(ids, 5)).all() and (status == HIT).all()


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "int8"])
@pytest.mark.parametrize("wire", ["f32", "f16", "bf16"])
def test_rows_come_in_the_type_that_was_asked_for(server, client, wire, dtype):
    table = table_of(33, dtype)
    server.publish(2, [("item", table.capsule, False)])
    ids = IDS[::7]
    rows, _ = client.lookup("item", ids, wire=wire, epoch=2)
    if wire == "bf16":
        rows = (rows.astype(np.uint32) << 16).view(np.float32)
    rounding = 1 / 128 if "bf16" in (wire, dtype) else 1e-3 if "int8" == dtype else 0
    np.testing.assert_allclose(rows, rows_of(ids, 33), rtol=rounding, atol=0.05 if dtype == "int8" else 0)


def test_int8_rows_are_codes_with_their_scale_and_bias(client):
    ids = np.array([1, 2, 77, 10**9])
    raw, status = client.lookup("item", ids, wire="int8")
    scale, bias = raw[:, 8:].copy().view(np.float32).T
    rows = raw[:, :5] * scale[:, None] + bias[:, None]
    expected = np.where(np.isin(ids, IDS)[:, None], rows_of(ids, 5), -1)
    np.testing.assert_allclose(rows, expected, atol=float(scale.max()) / 2)
    assert (raw[:, 5:8] == 0).all() and list(status) == [HIT, HIT, HIT, DEFAULT]


def test_many_lookups_are_in_flight_on_one_stream(client):
    rng = np.random.default_rng(5)
    asked = {}
    for size in rng.choice([0, 3, 700, 20_000], 100):
        ids = rng.choice(IDS, size)
        asked[client.ask("item", ids)] = ids
    got = {number: 0 for number in asked}
    while asked:
        answer = client.receive()
        assert answer.code == "ok" and answer.first == got[answer.lookup]
        ids = asked[answer.lookup][answer.first:answer.first + answer.count]
        assert answer.rows == rows_of(ids, 5).tobytes()
        got[answer.lookup] += answer.count
        if got[answer.lookup] == asked[answer.lookup].size:
            del asked[answer.lookup]


@pytest.mark.parametrize(("header", "code", "words"), [
    ({"map_version": 2}, "shard_map_mismatch", "map version 2"),
    ({"shard": 1, "shards": 2}, "shard_map_mismatch", "shard 1 of 2"),
    ({"shards": 2}, "shard_map_mismatch", "shard 0 of 2"),
    ({"epoch": 3}, "unknown_epoch", "the newest is 1"),
    ({"epoch": 0}, "unknown_epoch", "epoch 0"),
    ({"table": "no such"}, "unknown_table", "there are: item"),
])
def test_what_cannot_be_answered_is_refused_and_the_stream_goes_on(client, header, code, words):
    with pytest.raises(Refused, match=words) as raised:
        client.lookup(header.pop("table", "item"), [1, 2], **header)
    assert raised.value.code == code
    assert client.lookup("item", [1])[1] == [HIT]


def test_ids_of_another_shard_are_refused_not_unknown(server, client):
    server.set_place(9, 1, 3)
    mine = IDS[shard_of(IDS, 3) == 1]
    rows, status = client.lookup("item", mine, map_version=9, shard=1, shards=3)
    assert (rows == rows_of(mine, 5)).all() and (status == HIT).all()
    with pytest.raises(Refused, match="1 ids belong to other shards") as raised:
        client.lookup("item", [*mine[:3], IDS[shard_of(IDS, 3) == 2][0]], map_version=9, shard=1, shards=3)
    assert raised.value.code == "bad_request"


def test_a_lookup_for_an_epoch_that_is_being_published_waits_for_it(client):
    # The fixture's server waits too briefly to publish meanwhile.
    patient = native_server(epoch_wait_ms=20_000)
    patient.set_place(1, 0, 1)
    table = table_of()
    patient.publish(1, [("item", table.capsule, False)])
    asker = WireClient(address_of(patient))
    answered = []
    thread = threading.Thread(target=lambda: answered.append(asker.lookup("item", [3], epoch=2)))
    thread.start()
    missing = select.poll()
    missing.register(patient.epoch_missing_fd, select.POLLIN)
    assert missing.poll(10_000), "the server did not say that an epoch is missing"
    patient.publish(2, [("item", table.capsule, False)])
    thread.join(10)
    assert (answered[0][0] == rows_of(np.array([3]), 5)).all()
    asker.close()
    patient.stop(0)


def test_a_lookup_past_its_budget_is_ended(client):
    with pytest.raises(Refused) as raised:
        client.lookup("item", np.zeros(1 << 20, np.int64), budget_us=1)
    assert raised.value.code == "expired"


def test_a_stream_has_a_bound_of_ids_in_flight():
    small = native_server(bounds=(4, 100, 1, 0))
    small.set_place(1, 0, 1)
    small.publish(1, [("item", table_of().capsule, False)])
    client = WireClient(address_of(small))
    with pytest.raises(Refused) as raised:
        client.lookup("item", np.arange(101))
    assert raised.value.code == "overloaded"
    assert (client.lookup("item", np.arange(100))[1] == HIT).all()
    assert small.server_counters()["refusals"][5] == 1
    client.close()
    small.stop(0)


def test_a_server_has_a_bound_of_streams():
    small = native_server(streams_max=1)
    small.set_place(1, 0, 1)
    small.publish(1, [("item", table_of().capsule, False)])
    first, second = WireClient(address_of(small)), WireClient(address_of(small))
    first.lookup("item", [1])
    with pytest.raises(fl.FlightUnavailableError, match="maximum of 1 streams"):
        second.lookup("item", [1])
    assert first.lookup("item", [1])[1] == [HIT]
    for client in (first, second):
        client.close()
    small.stop(0)


def test_an_epoch_is_answered_until_it_is_retired(server, client):
    server.publish(2, [("item", table_of().capsule, False)])
    assert server.epochs() == [1, 2]
    assert client.lookup("item", [1], epoch=1)[1] == [HIT]
    assert server.retire(1) and not server.retire(1)
    with pytest.raises(Refused) as raised:
        client.lookup("item", [1], epoch=1)
    assert raised.value.code == "unknown_epoch"
    assert client.lookup("item", [1], epoch=2)[1] == [HIT]


def test_a_table_that_does_not_hold_the_epoch_says_unavailable(server, client):
    table = Table("item", 5)
    server.publish(4, [("item", table.capsule, False)])
    assert (client.lookup("item", [1, 2], epoch=4)[1] == 4).all()


def test_a_blocking_table_is_answered_too(server, client):
    server.publish(2, [("item", table_of().capsule, True)])
    assert (client.lookup("item", IDS[:50], epoch=2)[0] == rows_of(IDS[:50], 5)).all()


def test_counters_count(server, client):
    client.lookup("item", [1, 2, 10**12])
    client.lookup("item", IDS)
    client.end()
    with pytest.raises((StopIteration, EOFError)):
        client.receive()
    counters = server.table_counters()["item"]
    assert counters["lookups"] == 2 and sum(counters["latency"]) == 2
    assert counters["rows"] == [2 + IDS.size, 0, 1, 0, 0, 0] and counters["bytes"] == (3 + IDS.size) * 20
    assert server.server_counters()["streams"] == 1


@pytest.mark.parametrize(("batch", "words"), [
    (pa.record_batch([pa.array([1.0, 2.0])], ["id"]), "expected int64"),
    (pa.record_batch([pa.array([1, 2]), pa.array([1, 2])], ["id", "more"]), "number of columns"),
    (pa.record_batch([pa.array([1, None])], ["id"]), "nulls"),
    (pa.record_batch([pa.array([1])], ["id"]), "number of ids"),
    (pa.record_batch([pa.array(["a", "b"])], ["id"]), "expected int64"),
])
def test_a_batch_that_holds_no_ids_is_refused(client, batch, words):
    client.open(batch.schema)
    client.send(lookup_header("item", 2, lookup=77), batch)
    answer = client.receive()
    assert (answer.code, answer.lookup) == ("bad_request", 77) and words in answer.message


def test_a_message_without_a_batch_is_refused(client):
    client.send(lookup_header("item", 2, lookup=78), None)
    answer = client.receive()
    assert (answer.code, answer.lookup) == ("bad_request", 78)
    client.send(b"", pa.record_batch([pa.array([1])], IDS_SCHEMA))
    assert client.receive().code == "bad_request"
    assert client.lookup("item", [1])[1] == [HIT]


def test_a_server_that_stops_ends_its_streams(server, client):
    client.lookup("item", [1])
    server.stop(1_000)
    with pytest.raises((fl.FlightUnavailableError, fl.FlightCancelledError, StopIteration, fl.FlightInternalError)):
        client.receive()


@pytest.mark.parametrize("wire", ["f32", "int8"])
def test_a_lookup_of_several_calls_reads_no_more_cold_rows_than_one(server, tmp_path, wire):
    dim, allowed = 1024, 100
    ids = np.arange(20_000)
    tier = Tier(ram_bytes_max=1 << 20, directory=tmp_path, cold_reads_max=allowed, keeper=False, direct=False)
    table = Table("wide", dim, dtype="int8", tier=tier)
    for part in np.array_split(ids, 10):
        table.upsert(part, np.zeros((part.size, dim), np.float32))
    table.publish(1, 0)
    server.publish(2, [("wide", table.capsule, True)])
    table.publish(2, 0)
    client = WireClient(address_of(server))
    _, status = client.lookup("wide", ids, wire=wire, epoch=2)
    client.close()
    assert (status == COLD).sum() == allowed and (status == DEADLINE).sum() > 0


def test_a_lookup_whose_epoch_is_retired_meanwhile_is_refused(server, client):
    dim, n = 256, 100_000
    table = table_of(dim)
    table.publish(3, 0)
    server.publish(2, [("wide", table.capsule, False)])
    number = client.ask("wide", np.zeros(n), epoch=2)
    # Far more than what is sent before it is read, so that most of the answer is yet to be looked up.
    first = client.receive()
    assert first.code == "ok" and first.first == 0
    assert server.retire(2)
    table.retire(1)
    table.retire(2)
    answers = []
    while not answers or (answers[-1].code == "ok" and answers[-1].first + answers[-1].count < n):
        answers.append(client.receive())
    assert {answer.lookup for answer in answers} == {number}
    assert all(set(answer.statuses) == {HIT} for answer in answers[:-1])
    assert answers[-1].code == "unknown_epoch" and "retired meanwhile" in answers[-1].message
