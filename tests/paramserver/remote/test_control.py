"""The control plane's client: results, and the typed errors that servers name."""

import json

import numpy as np
import pytest
from paramserver import errors
from paramserver.control import ControlClient, read_token
from paramserver.delta import Delta, read_delta
from paramserver.errors import ConfigError, DeltaError, ProgrammerError, RemoteError, SequenceGap, Unauthenticated

from tests.paramserver.server.native_servers import address_of, native_server


def client_of(server, **options):
    return ControlClient(address_of(server), **options)


@pytest.fixture
def serve(tmp_path):
    """serve(control) starts a server whose control function is `control(action, body, file)`."""
    started = []

    def start(control, **options):
        started.append(native_server(tmp_path, control, **options))
        return started[-1]

    yield start
    for server in started:
        server.stop(0)


def failing(outcome, **said):
    return lambda action, body, file: (outcome, json.dumps(said))


def test_an_action_takes_json_and_gives_json(serve):
    server = serve(lambda action, body, file: (0, json.dumps({"action": action, **json.loads(body)})))
    with client_of(server) as client:
        assert client.action("why", table="item", id=-5) == {"action": "why", "table": "item", "id": -5}


@pytest.mark.parametrize("name", ["UnknownTable", "RetiredVersion", "StoreFull", "OptionError", "EpochError"])
def test_a_named_error_is_raised_as_what_it_is(serve, name):
    server = serve(failing(1, error=name, message="as asked"))
    with client_of(server) as client, pytest.raises(getattr(errors, name), match=r"grpc://.*: as asked"):
        client.action("get")


def test_a_gap_says_what_is_missing(serve):
    server = serve(failing(2, error="SequenceGap", message="send them first", missing=[3, 8]))
    with client_of(server) as client, pytest.raises(SequenceGap) as caught:
        client.action("stage")
    assert caught.value.missing == (3, 8)


@pytest.mark.parametrize("said", [{"error": "SystemExit", "message": "x"}, {"error": "ParamServerErrors"}, {},
                                  {"error": ["a"], "message": 1}, {"error": "SequenceGap", "message": "x"}])
def test_an_error_that_nobody_knows_is_a_remote_error(serve, said):
    with client_of(serve(failing(1, **said))) as client, pytest.raises(RemoteError):
        client.action("get")


def test_a_bug_of_the_server_is_told_as_such(serve):
    server = serve(failing(3, error="ProgrammerError", message="please report"))
    with client_of(server) as client, pytest.raises(ProgrammerError, match="please report"):
        client.action("get")


@pytest.mark.parametrize("answer", ["[]", "1", "{", "null"])
def test_an_answer_that_is_no_object_is_a_remote_error(serve, answer):
    with client_of(serve(lambda *_: (0, answer))) as client, pytest.raises(RemoteError, match="JSON object"):
        client.action("get")


def test_nobody_there_is_a_remote_error_that_names_the_address():
    with ControlClient("grpc://127.0.0.1:1", timeout_s=2) as client, pytest.raises(RemoteError, match="127.0.0.1:1"):
        client.action("status")
    with pytest.raises(RemoteError, match="nonsense"):
        ControlClient("nonsense")


def delta_of(n, m=2, dim=3):
    return Delta(table="item", base_version=1, sequence=4, ids=np.arange(n), rows=np.ones((n, dim), np.float32),
                 deletes=np.arange(-m, 0), time_s=7)


@pytest.mark.parametrize("n", [0, 1, 200_000])
def test_a_pushed_delta_arrives_whole(serve, n):
    seen = []

    def take(action, body, file):
        seen.append((json.loads(body), read_delta(file)))
        return 0, json.dumps({"state": "applied"})

    server = serve(take, upload_bytes_max=1 << 30)
    with client_of(server) as client:
        assert client.push(delta_of(n), split=True) == {"state": "applied"}
    ((command, arrived),) = seen
    assert command == {"action": "stage", "split": True}
    assert arrived.checksum == delta_of(n).checksum


def test_a_refused_delta_raises_why(serve):
    server = serve(failing(1, error="DeltaError", message="never"))
    with client_of(server) as client, pytest.raises(DeltaError, match="never"):
        client.push(delta_of(3))
    small = serve(lambda *_: (0, "{}"), upload_bytes_max=1 << 10)
    with client_of(small) as client, pytest.raises(RemoteError, match="upload"):
        client.push(delta_of(100_000))


def test_a_token_is_sent(serve):
    server = serve(lambda *_: (0, "{}"), tokens=["t" * 20], control_tokens=["c" * 20])
    with client_of(server, token="c" * 20) as client:
        assert client.action("status") == {}
    for token in (None, "x" * 20):
        with client_of(server, token=token) as client, pytest.raises(Unauthenticated, match="bearer token"):
            client.action("status")


def test_token_files(tmp_path):
    file = tmp_path / "tokens"
    file.write_text("# ours\n\nabc\ndef\n")
    assert read_token(file) == "abc" and read_token(None) is None
    file.write_text("# none\n")
    with pytest.raises(ConfigError, match="no token"):
        read_token(file)
    with pytest.raises(ConfigError, match="nowhere"):
        read_token(tmp_path / "nowhere")
