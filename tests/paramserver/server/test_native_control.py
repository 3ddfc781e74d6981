"""The control plane's border: JSON and files in, JSON out, failures as Flight's statuses."""

import json

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
