"""The HTTP endpoint by itself: addresses, methods, defects of a page, and connections that say nothing."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from lambda_svc.config import ServerConfig
from lambda_svc.errors import ConfigError
from lambda_svc.observe import endpoint as endpoint_module
from lambda_svc.observe.endpoint import Endpoint, Page
from tests.lambda_svc.live_worlds import until


def _broken(_: str) -> Page:
    raise ZeroDivisionError("a defect")


@pytest.fixture
def endpoint():
    """Two pages."""
    made = Endpoint("127.0.0.1:0", {"/": lambda query: Page.json({"query": query}), "/broken": _broken})
    yield made
    made.stop()


def fetch(endpoint: Endpoint, path: str, method: str = "GET"):
    request = Request(f"http://127.0.0.1:{endpoint.port}{path}", method=method)
    try:
        with urlopen(request, timeout=20) as answer:
            return answer.status, answer.headers, answer.read()
    except HTTPError as error:
        return error.code, error.headers, error.read()


def test_pages_get_their_query_and_carry_headers_against_scripts(endpoint):
    status, headers, body = fetch(endpoint, "/?a=1&b=%3C")
    assert status == 200 and json.loads(body) == {"query": "a=1&b=%3C"}
    assert headers["Content-Security-Policy"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
    assert headers["Content-Type"] == "application/json" and "Python" not in headers["Server"]


def test_head_has_no_body_and_other_methods_are_refused(endpoint):
    status, headers, body = fetch(endpoint, "/", "HEAD")
    assert status == 200 and body == b"" and int(headers["Content-Length"]) > 0
    assert fetch(endpoint, "/", "POST")[0] == 501


def test_an_unknown_page_names_those_there_are_and_not_what_was_asked(endpoint):
    status, _, body = fetch(endpoint, "/<script>")
    assert status == 404 and body == b"no such page; there are: / /broken\n"


def test_a_defect_of_a_page_is_logged_and_the_next_one_is_served(endpoint, caplog):
    assert fetch(endpoint, "/broken")[0] == 500
    assert "ZeroDivisionError: a defect" in caplog.text
    assert fetch(endpoint, "/")[0] == 200


def test_silent_connections_are_bounded_and_end(monkeypatch):
    monkeypatch.setattr(endpoint_module, "CONNECTIONS_MAX", 2)
    monkeypatch.setattr(endpoint_module, "PATIENCE_S", 0.5)
    crowded = Endpoint("127.0.0.1:0", {"/": lambda _: Page(b"here")})
    try:
        with closing(socket.create_connection(("127.0.0.1", crowded.port))) as first, \
                closing(socket.create_connection(("127.0.0.1", crowded.port))) as second, \
                closing(socket.create_connection(("127.0.0.1", crowded.port), timeout=20)) as third:
            assert third.recv(1) == b"", "one too many is closed"
            first.settimeout(20)
            second.settimeout(20)
            assert first.recv(1) == b"" and second.recv(1) == b"", "silence ends a connection"
        until(lambda: crowded._server._free._value == 2)
        assert fetch(crowded, "/")[2] == b"here"
    finally:
        crowded.stop()


def test_an_address_in_use_is_named(endpoint):
    with pytest.raises(ConfigError, match=rf"server\.http: cannot listen on 127\.0\.0\.1:{endpoint.port}: "):
        Endpoint(f"127.0.0.1:{endpoint.port}", {})
    with pytest.raises(ConfigError, match=r"server\.http: cannot listen on no\.such\.host\.invalid:0: "):
        Endpoint("no.such.host.invalid:0", {})


@pytest.mark.parametrize("wrong", ["8501", "127.0.0.1", "127.0.0.1:99999", ":8501"])
def test_the_configuration_wants_a_host_and_a_port_or_nothing(wrong):
    with pytest.raises(ValueError, match="HOST:PORT with a port of 0 to 65535"):
        ServerConfig(http=wrong)
    with pytest.raises(ValueError, match="HOST:PORT"):
        ServerConfig(listen="")
    assert ServerConfig(http="").http == "" and ServerConfig(http="[::1]:8501").http == "[::1]:8501"
