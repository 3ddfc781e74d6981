"""Messages as a stranger may send them: refused or the stream closed, and the server answers the next client."""

import struct

import grpc
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.paramserver.server.flight_client import IDS as IDS_SCHEMA
from tests.paramserver.server.flight_client import WireClient, lookup_header
from tests.paramserver.server.native_servers import address_of, item_server

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def server():
    """A server that every example meets."""
    made = item_server()
    yield made
    made.stop(0)


def expect_alive(server) -> None:
    """A new client is answered."""
    client = WireClient(address_of(server))
    assert client.lookup("item", [1])[1] == [0]
    client.close()


def varint(number: int) -> bytes:
    """Protobuf's encoding of a number."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def fields(*values: tuple[int, bytes]) -> bytes:
    """Protobuf fields of bytes by number; empty ones are left out."""
    return b"".join(varint(number << 3 | 2) + varint(len(value)) + value for number, value in values if value)


def flight_data(header: bytes, metadata: bytes, body: bytes, descriptor: bytes = b"") -> bytes:
    """The protobuf message FlightData."""
    return fields((1, descriptor), (2, header), (3, metadata), (1000, body))


def ipc_parts(message: bytes) -> tuple[bytes, bytes]:
    """Flatbuffer and body of an encapsulated IPC message."""
    (length,) = struct.unpack_from("<i", message, 4)
    return message[8:8 + length], message[8 + length:]


def good_stream(ids: np.ndarray) -> list[bytes]:
    """The messages of a stream with one lookup: the schema, then the ids."""
    batch = pa.record_batch([pa.array(ids)], IDS_SCHEMA)
    schema, _ = ipc_parts(IDS_SCHEMA.serialize().to_pybytes())
    header, body = ipc_parts(batch.serialize().to_pybytes())
    descriptor = varint(1 << 3) + varint(2) + fields((2, b"lookup"))
    return [flight_data(schema, b"", b"", descriptor), flight_data(header, lookup_header("item", ids.size), body)]


def exchange(server, messages: list[bytes]) -> list[bytes]:
    """Send raw messages; whatever comes until the stream ends, well or not."""
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = channel.stream_stream("/arrow.flight.protocol.FlightService/DoExchange")
        came = []
        try:
            came.extend(call(iter(messages), timeout=20))
        except grpc.RpcError as error:
            assert error.code() != grpc.StatusCode.DEADLINE_EXCEEDED
        return came


def test_the_raw_messages_are_those_of_the_wire(server):
    assert len(exchange(server, good_stream(np.arange(3)))) == 2


@QUICK
@given(data=st.data())
def test_damaged_messages_close_the_stream_or_are_refused(server, data):
    messages = [bytearray(message) for message in good_stream(np.arange(20))]
    for _ in range(data.draw(st.integers(1, 4))):
        message = data.draw(st.sampled_from(messages))
        at = data.draw(st.integers(0, len(message) - 1))
        message[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        last = messages[-1]
        del last[data.draw(st.integers(0, len(last))):]
    exchange(server, [bytes(message) for message in messages])
    expect_alive(server)


@QUICK
@given(metadata=st.binary(max_size=300), ids=st.lists(st.integers(-2**63, 2**63 - 1), max_size=5))
def test_any_metadata_gets_an_answer(server, metadata, ids):
    client = WireClient(address_of(server))
    client.send(metadata, pa.record_batch([pa.array(ids, pa.int64())], IDS_SCHEMA))
    assert client.receive().code == "bad_request"
    client.close()
    expect_alive(server)


@QUICK
@given(garbage=st.lists(st.binary(max_size=200), max_size=4))
def test_garbage_is_survived(server, garbage):
    exchange(server, garbage)
    expect_alive(server)
