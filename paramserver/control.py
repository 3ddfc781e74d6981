"""The control plane's client: named actions with JSON arguments, and deltas pushed to one shard's server."""

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.flight as flight

from paramserver import errors
from paramserver.delta import Delta, arrow_of
from paramserver.errors import ConfigError, RemoteError, SequenceGap, Unauthenticated

__all__ = ["ControlClient", "read_pem", "read_token"]

#: Rows of one message of a pushed delta.
_ROWS_PER_MESSAGE = 65_536
# A stream that breaks while it is written is an OSError of Arrow's.
_FLIGHT_ERRORS = (pa.ArrowException, flight.FlightError, OSError)
# Behind these words comes what only gRPC's authors can read.
_DEBUG_TEXT = ". gRPC client debug context"


class ControlClient:
    """One server of a shard, by its address (grpc://HOST:PORT or grpc+tls://HOST:PORT). token: a bearer token. tls_ca:
    PEM file of the authority that signed the server's certificate, the system's when None. tls_name: the name in the
    certificate, when it is not the address's. timeout_s: of one call. Thread-safe; nothing is sent before a call."""

    def __init__(self, address: str, token: str | None = None, *, tls_ca: str | Path | None = None,
                 tls_name: str | None = None, timeout_s: float = 60.0) -> None:
        self.address = address
        headers = [(b"authorization", b"Bearer " + token.encode())] if token else []
        self._options = flight.FlightCallOptions(timeout=timeout_s, headers=headers)
        options: dict[str, Any] = {"tls_root_certs": read_pem(tls_ca)} if tls_ca else {}
        if tls_name:
            options["override_hostname"] = tls_name
        # A connection of its own: failures of others to the same address do not make this one wait.
        options["generic_options"] = [("grpc.use_local_subchannel_pool", 1)]
        try:
            self._client = flight.FlightClient(address, **options)
        except pa.ArrowException as error:
            raise RemoteError(f"{address}: {error}") from error

    def action(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Run an action: its result. Raises the error that the server names, RemoteError when the server cannot be
        reached or gives no such answer."""
        try:
            body = json.dumps(arguments).encode()
            results = list(self._client.do_action(flight.Action(name, body), self._options))
        except _FLIGHT_ERRORS as error:
            raise _typed(self.address, error) from error
        return _result(self.address, [result.body.to_pybytes() for result in results])

    def push(self, delta: Delta, *, split: bool = False) -> dict[str, Any]:
        """Send a delta to be staged, durably, before this returns: {"state": "applied", "already" or "held", ...}.
        split: the server takes the part of its shard; otherwise the delta must be that part already. Raises what the
        server names (DeltaError and its kinds, SequenceGap with `missing`, StoreFull ...) and RemoteError."""
        command = json.dumps({"action": "stage", "split": split}).encode()
        table = arrow_of(delta)
        try:
            writer, reader = self._client.do_put(flight.FlightDescriptor.for_command(command), table.schema,
                                                 self._options)
            with writer:
                writer.write_table(table, max_chunksize=_ROWS_PER_MESSAGE)
                writer.done_writing()
                answer = reader.read()
        except _FLIGHT_ERRORS as error:
            raise _typed(self.address, error) from error
        return _result(self.address, [] if answer is None else [answer.to_pybytes()])

    def close(self) -> None:
        """Let the connection go."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


def read_pem(path: str | Path) -> bytes:
    """The bytes of a PEM file. Raises ConfigError."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"tls_ca: {path}: {error.strerror}") from error


def read_token(path: str | Path | None) -> str | None:
    """The first token of a token file (one a line; blank lines and those that begin with # are none), None for no file.
    Raises ConfigError."""
    if path is None:
        return None
    try:
        lines = Path(path).read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"token_file: {path}: {why}") from error
    tokens = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not tokens:
        raise ConfigError(f"token_file: {path} holds no token, expected one a line")
    return tokens[0]


def _result(address: str, bodies: list[bytes]) -> dict[str, Any]:
    try:
        (body,) = bodies
        result = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RemoteError(f"{address}: the answer is no JSON object: {error}") from error
    if not isinstance(result, dict):
        raise RemoteError(f"{address}: the answer is {type(result).__name__}, expected a JSON object")
    return result


def _typed(address: str, error: Exception) -> Exception:
    """The error that a server named, or RemoteError."""
    try:
        said = json.loads(getattr(error, "extra_info", b"") or b"")
        kind = getattr(errors, said["error"]) if said["error"] in errors.__all__ else RemoteError
        if isinstance(error, flight.FlightUnauthenticatedError):
            kind = Unauthenticated
        message = f"{address}: {said['message']}"
        if kind is SequenceGap:
            return SequenceGap(message, (int(said["missing"][0]), int(said["missing"][1])))
        return kind(message)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        kind = Unauthenticated if isinstance(error, flight.FlightUnauthenticatedError) else RemoteError
        return kind(f"{address}: {str(error).partition(_DEBUG_TEXT)[0]}")
