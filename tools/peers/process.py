"""Starts a peer's runner and drives it batch by batch."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from tools.peers.protocol import Spec

__all__ = ["Batches", "Peer", "PeerMissing", "found"]

CHECKOUT = Path(__file__).resolve().parent.parent.parent
SOURCES = Path(__file__).resolve().parent
#: Has glibc ask for huge pages under every allocation of a peer, which ours does of itself.
_HUGE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "MALLOC_CONF": "thp:always"}
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
#: Peer -> (environment under build/peers/, variant of its runner).
_PEERS = {
    "fbgemm": ("fbgemm", "f32"), "fbgemm_int8": ("fbgemm", "int8"),
    "fbgemm_int8_rows": ("fbgemm", "int8_rows"), "tfra_cuckoo": ("tfra", ""),
    "tf_lookup_mutable": ("tf_lookup", "mutable"), "tf_lookup_dense": ("tf_lookup", "dense"),
    "boost_concurrent_flat_map": ("maps", "boost_concurrent"), "boost_unordered_flat_map": ("maps", "boost_flat"),
    "absl_flat_hash_map": ("maps", "absl_flat"), "redis_mget": ("redis", ""),
}


class PeerMissing(Exception):
    """A peer cannot be measured here; the message says why and what to install."""


@dataclass(frozen=True)
class Batches:
    """Row numbers to look up, the same for every peer: int64[turns, batch] in a file that runners read."""

    path: Path
    numbers: np.ndarray

    @classmethod
    def drawn(cls, folder: Path, rows: int, batch: int, turns: int, seed: int = 11) -> Batches:
        """Uniform row numbers, written to a file in `folder`."""
        numbers = np.random.default_rng(seed).integers(0, rows, (turns, batch))
        path = folder / "batches.i64"
        numbers.tofile(path)
        return cls(path, numbers)


def found() -> Path:
    """Where peers are installed: $LAMBDA_SVC_PEERS, else build/peers in the checkout."""
    return Path(os.environ.get("LAMBDA_SVC_PEERS") or CHECKOUT / "build" / "peers")


class Peer:
    """A running peer, its table filled. `memory` holds "bytes" and "huge_bytes" of its process, `note` what differs.

    Raises PeerMissing when it is not installed, or does not start and fill its table."""

    def __init__(self, name: str, rows: int, dim: int, batches: Batches, *, bag: int = 1, row_bytes: int = 0) -> None:
        environment, variant = _PEERS[name]
        folder = found()
        if not (folder / f"{environment}.installed").exists():
            reason = folder / f"{environment}.missing"
            said = reason.read_text(encoding="utf-8").strip() if reason.exists() else "not installed"
            raise PeerMissing(f"{said}: run tools/peers/install.sh {environment}")
        self.name = name
        self._server: subprocess.Popen | None = None
        batch = batches.numbers.shape[1]
        spec = Spec(rows, dim, batch, bag, str(batches.path), variant)
        if environment == "redis":
            port = self._start_redis(folder / "debian")
            command = [str(folder / "redis" / "runner"), port, str(rows), str(row_bytes), str(batch), spec.batches]
        elif environment == "maps":
            command = [str(folder / "maps" / "runner"), variant, str(rows), str(dim), str(batch), spec.batches]
        else:
            command = [_python(folder, environment), str(SOURCES / f"{environment}.py"), json.dumps(asdict(spec))]
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
                                         text=True, env={**_bare(), **_HUGE, **_ONE_THREAD})
        try:
            self.memory = self._answer()
        except PeerMissing:
            self.close()
            raise
        self.note = str(self.memory.get("note", ""))

    def run(self, turn: int) -> dict:
        """Looks batch `turn` up; returns {"cpu_s", "wall_s", "sum"}. Raises PeerMissing when the peer died."""
        try:
            print(turn, file=self._process.stdin, flush=True)
        except OSError as error:
            raise PeerMissing(f"{self.name} ended: {self._last_words()}") from error
        return self._answer()

    def close(self) -> None:
        """Ends the runner, and the server that it had; waits for both."""
        for process in (self._process, self._server):
            if process is not None and process.poll() is None:
                process.terminate()
        for process in (self._process, self._server):
            if process is not None:
                process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def _answer(self) -> dict:
        for line in self._process.stdout:
            if line.startswith("{"):  # libraries print warnings of their own
                return json.loads(line)
        self._process.wait()
        raise PeerMissing(f"{self.name} did not start or ended: {self._last_words()}")

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else f"exit code {self._process.returncode}"

    def _start_redis(self, debian: Path) -> str:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        libraries = debian / "usr" / "lib" / "x86_64-linux-gnu"
        self._server = subprocess.Popen(
            [str(debian / "usr" / "bin" / "redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", "",
             "--appendonly", "no", "--disable-thp", "no", "--daemonize", "no"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**_bare(), **_HUGE, "LD_LIBRARY_PATH": str(libraries)})
        give_up = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 0.5).close()
                return str(port)
            except OSError as error:
                if self._server.poll() is not None or time.monotonic() > give_up:
                    raise PeerMissing(f"redis-server does not listen: {error}") from error


def _python(folder: Path, environment: str) -> str:
    said = folder / environment / "python"
    return said.read_text(encoding="utf-8").strip() if said.exists() else str(folder / environment / "bin" / "python")


def _bare() -> dict[str, str]:
    """This process's environment without what would have a peer import our Python or another allocator."""
    return {name: value for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "LD_PRELOAD", "PYTHONHOME")}
