"""HTTP beside the RPC port: metrics, health and status, on threads of its own. Only reads; answers GET and HEAD."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from urllib.parse import urlsplit

from lambda_svc.errors import ConfigError

__all__ = ["Endpoint", "Page"]

CONNECTIONS_MAX = 32  # at once; more are closed unanswered
PATIENCE_S = 10.0  # for a client that says nothing
log = logging.getLogger("lambda_svc")


@dataclass(frozen=True)
class Page:
    """An answer over HTTP."""

    body: bytes
    kind: str = "text/plain; charset=utf-8"
    status: int = 200

    @classmethod
    def json(cls, document: object) -> Page:
        """The document as JSON."""
        return cls(json.dumps(document, indent=1).encode(), "application/json")


class Endpoint:
    """An HTTP server of `pages` by path, on HOST:PORT; port 0 takes a free one, see `port`.

    Each page is a function of the query string. Raises ConfigError when the address cannot be listened on.
    """

    def __init__(self, listen: str, pages: dict[str, Callable[[str], Page]]) -> None:
        host, _, port = listen.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        try:
            family = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0][0]
            self._server = _server_class(family)((host, int(port)), _handler_class(pages))
        except OSError as error:
            raise ConfigError(f"server.http: cannot listen on {listen}: {error.strerror or error}") from None
        self.port: int = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Answers no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = CONNECTIONS_MAX

    def __init__(self, *arguments) -> None:
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        super().__init__(*arguments)

    def server_bind(self) -> None:
        # The library's own looks the host up in DNS, which can take long, for a name that nobody asks for.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def process_request(self, request, client_address) -> None:
        """A thread for the connection, if there may be one more."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request, client_address) -> None:
        """Serves the connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request, client_address) -> None:
        """Whoever breaks off is no news; a defect of a page is, and has been answered."""
        log.debug("an HTTP connection ended early", exc_info=True)


def _server_class(family: socket.AddressFamily) -> type[_Server]:
    return type("_Server", (_Server,), {"address_family": family})


def _handler_class(pages: dict[str, Callable[[str], Page]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE_S
        server_version, sys_version = "lambda-svc", ""

        def do_GET(self) -> None:
            """The page at the path."""
            page = _answer(pages, self.path)
            self.send_response(page.status)
            self.send_header("Content-Type", page.kind)
            self.send_header("Content-Length", str(len(page.body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("X-Frame-Options", "DENY")
            self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(page.body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are no news."""

    return Handler


def _answer(pages: dict[str, Callable[[str], Page]], target: str) -> Page:
    parts = urlsplit(target)
    page = pages.get(parts.path)
    if page is None:
        return Page(f"no such page; there are: {' '.join(pages)}\n".encode(), status=404)
    try:
        return page(parts.query)
    except Exception:
        log.exception("the page %s failed", parts.path)
        return Page(b"this page failed; the server's log says why\n", status=500)
