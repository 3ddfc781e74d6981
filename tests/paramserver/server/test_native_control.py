"""The control plane's border: JSON and files in, JSON out, failures as Flight's statuses."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from tests.paramserver.server.flight_client import WireClient, failure
from tests.paramserver.server.native_servers import address_of, echo, native_server


@pytest.fixture
def uploads(tmp_path):
    """Where uploads are written."""
    folder = tmp_path / "uploads"
    folder.mkdir()
    return folder


@pytest.fixture
def client(uploads):
    """A client of a server whose control function tells what it was given."""
    def control(action, body, file):
        outcome, reply = echo(action, body, file)
        if action == "upload":
            table = pa.ipc.open_file(file).read_all()
            reply = json.dumps({**json.loads(reply), "rows": table.num_rows,
                                "said": table.schema.metadata[b"said"].decode()})
        return outcome, reply

    server = native_server(uploads, control)
    made = WireClient(address_of(server))
    yield made
    made.close()
    server.stop(0)


def table_of(rows: int) -> pa.Table:
    """An upload with metadata in its schema."""
    return pa.table({"id": np.arange(rows)}).replace_schema_metadata({"said": "hello"})


def test_an_action_is_json_both_ways(client):
    assert client.action("status", a=[1, 2]) == {"action": "status", "body": {"a": [1, 2]}, "file": ""}


@pytest.mark.parametrize(("outcome", "kind"), [(1, fl.FlightServerError), (2, fl.FlightUnavailableError),
                                               (3, fl.FlightInternalError)])
def test_a_failure_carries_its_class_and_message(client, outcome, kind):
    with pytest.raises(kind) as raised:
        client.action("fail", outcome=outcome)
    assert failure(raised.value) == {"error": "DeltaError", "message": "as asked"}


def test_an_exception_of_the_control_function_ends_there(client):
    with pytest.raises(fl.FlightInternalError):
        client.action("raise")
    assert client.action("status")["action"] == "status"


def test_an_oversized_action_is_refused(client):
    with pytest.raises(pa.ArrowInvalid, match="1 MiB"):
        client.action("status", text="x" * (1 << 20))


def test_an_upload_arrives_as_a_file_with_its_metadata_and_is_gone_after(client, uploads):
    reply = client.push(table_of(1_000), more=3)
    assert reply["rows"] == 1_000 and reply["said"] == "hello" and reply["body"] == {"action": "stage", "more": 3}
    assert reply["file"].startswith(str(uploads)) and list(uploads.iterdir()) == []


def test_an_upload_over_the_bound_is_refused_and_its_file_removed(client, uploads):
    with pytest.raises(pa.ArrowInvalid, match="upload_bytes_max"):
        client.push(table_of(1 << 18))
    assert list(uploads.iterdir()) == []
    assert client.push(table_of(5))["rows"] == 5


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_a_download_is_the_file_that_the_control_function_wrote(client, uploads, batches):
    reader = client.connection.do_get(fl.Ticket(json.dumps({"batches": batches}).encode()))
    assert reader.read_all()["id"].to_pylist() == [id for batch in range(batches) for id in (batch, -batch)]
    assert list(uploads.iterdir()) == []


def test_a_download_without_a_file_fails(client):
    with pytest.raises(fl.FlightInternalError):
        list(client.connection.do_get(fl.Ticket(b"{}")))


def test_uploads_beyond_the_bound_are_refused_while_the_others_last(uploads):
    inside, go_on = threading.Event(), threading.Event()

    def control(action, body, file):
        inside.set()
        assert go_on.wait(20)
        return echo(action, body, file)

    server = native_server(uploads, control, transfers_max=1)
    first, second = WireClient(address_of(server)), WireClient(address_of(server))
    with ThreadPoolExecutor(1) as pool:
        pushed = pool.submit(first.push, table_of(5))
        assert inside.wait(20)
        with pytest.raises(fl.FlightUnavailableError, match="maximum of 1 uploads"):
            second.push(table_of(5))
        with pytest.raises(fl.FlightUnavailableError, match="maximum of 1 uploads"):
            second.connection.do_get(fl.Ticket(b"{}")).read_all()
        go_on.set()
        assert pushed.result(20)["action"] == "upload"
    assert second.push(table_of(5))["action"] == "upload"
    first.close()
    second.close()
    server.stop(0)


def test_an_upload_leaves_the_reserve_free(uploads):
    server = native_server(uploads, reserve_bytes=1 << 62)
    made = WireClient(address_of(server))
    with pytest.raises(fl.FlightUnavailableError) as raised:
        made.push(table_of(5))
    assert failure(raised.value)["error"] == "StoreFull" and list(uploads.iterdir()) == []
    made.close()
    server.stop(0)


def test_a_long_download_comes_in_parts(uploads):
    rows = 6 << 20

    def control(action, body, file):
        with pa.OSFile(file, "wb") as sink, pa.ipc.new_file(sink, pa.schema([("id", pa.int64())])) as writer:
            writer.write_batch(pa.record_batch([pa.array(np.arange(rows))], ["id"]))
        return 0, "{}"

    server = native_server(uploads, control)
    made = WireClient(address_of(server))
    batches = [chunk.data for chunk in made.connection.do_get(fl.Ticket(b"{}"))]
    assert len(batches) == 4 and max(batch.nbytes for batch in batches) <= 16 << 20
    assert (np.concatenate([batch.column(0).to_numpy() for batch in batches]) == np.arange(rows)).all()
    made.close()
    server.stop(0)
