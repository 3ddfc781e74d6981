"""A gRPC server of one method, bytes in and bytes out, for the helper processes of a benchmark."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc

__all__ = ["serve_until_closed"]

MESSAGE_BYTES_MAX = 256 << 20


def serve_until_closed(service: str, method: str, handle: Callable[[bytes, grpc.ServicerContext], bytes]) -> None:
    """Serves /service/method on a free port, prints `ready on port N`, and returns when standard input closes."""
    server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.max_receive_message_length", MESSAGE_BYTES_MAX)])
    handler = grpc.unary_unary_rpc_method_handler(handle)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"ready on port {port}", flush=True)
    sys.stdin.read()
    server.stop(0).wait()
