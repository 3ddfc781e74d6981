"""Tokens and TLS."""

import shutil
import subprocess
from pathlib import Path

import pyarrow.flight as fl
import pytest

from tests.paramserver.server.flight_client import WireClient
from tests.paramserver.server.native_servers import address_of, native_server, table_of

LOOKUP, CONTROL = "lookup-token-0123", "control-token-456"


def with_table(**options):
    """A server with tables and these options."""
    server = native_server(**options)
    server.set_place(1, 0, 1)
    server.publish(1, [("item", table_of().capsule, False)])
    return server


@pytest.fixture
def server():
    """A server that asks for tokens."""
    made = with_table(tokens=[LOOKUP, "another-token-789"], control_tokens=[CONTROL])
    yield made
    made.stop(0)


@pytest.mark.parametrize("token", [None, "", "wrong", LOOKUP[:-1], LOOKUP + "x", "Bearer " + LOOKUP])
def test_a_bad_token_is_refused(server, token):
    client = WireClient(address_of(server), token)
    with pytest.raises(fl.FlightUnauthenticatedError, match="bearer token"):
        client.lookup("item", [1])
    with pytest.raises(fl.FlightUnauthenticatedError, match="bearer token"):
        client.action("status")
    assert server.server_counters()["calls_unauthenticated"] == 2
    assert server.server_counters()["streams"] == 0
    client.close()


def test_the_tokens_of_lookups_do_not_control(server):
    for token in (LOOKUP, "another-token-789"):
        client = WireClient(address_of(server), token)
        assert client.lookup("item", [1])[1] == [0]
        with pytest.raises(fl.FlightUnauthenticatedError):
            client.action("status")
        client.close()


def test_the_tokens_of_control_look_up_too(server):
    client = WireClient(address_of(server), CONTROL)
    assert client.lookup("item", [1])[1] == [0]
    assert client.action("status")["action"] == "status"
    client.close()


def test_without_control_tokens_those_of_lookups_control():
    server = with_table(tokens=[LOOKUP])
    client = WireClient(address_of(server), LOOKUP)
    assert client.action("status")["action"] == "status"
    client.close()
    server.stop(0)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> dict[str, Path]:
    """A CA, and a certificate for localhost and one for a client that it signed."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command to make certificates with")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test CA")
    for name in ("server", "client"):
        (folder / f"{name}.ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-out", f"{name}.pem", "-days", "2", "-extfile", f"{name}.ext")
    return {path.name: path for path in folder.iterdir()}


def test_lookups_over_tls(certificates):
    pem = {name: path.read_text() for name, path in certificates.items()}
    server = with_table(certificate=pem["server.pem"], key=pem["server.key"], tokens=[LOOKUP])
    client = WireClient(address_of(server, "grpc+tls"), LOOKUP, tls_root_certs=pem["ca.pem"])
    assert client.lookup("item", [1])[1] == [0]
    client.close()
    plain = WireClient(address_of(server), LOOKUP)
    with pytest.raises(fl.FlightUnavailableError):
        plain.lookup("item", [1])
    plain.close()
    server.stop(0)


def test_a_client_without_a_certificate_is_turned_away_where_one_is_asked_for(certificates):
    pem = {name: path.read_text() for name, path in certificates.items()}
    server = with_table(certificate=pem["server.pem"], key=pem["server.key"], client_ca=pem["ca.pem"])
    known = WireClient(address_of(server, "grpc+tls"), tls_root_certs=pem["ca.pem"], cert_chain=pem["client.pem"],
                       private_key=pem["client.key"])
    assert known.lookup("item", [1])[1] == [0]
    known.close()
    unknown = WireClient(address_of(server, "grpc+tls"), tls_root_certs=pem["ca.pem"])
    with pytest.raises(fl.FlightUnavailableError):
        unknown.lookup("item", [1])
    unknown.close()
    server.stop(0)
