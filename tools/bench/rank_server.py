"""The ranking server under measurement: run as a process of its own, told over standard input.

usage: python -m tools.bench.rank_server CONFIG

Prints `ready on port N`; then reads lines: `busy` starts one thread that only computes in Python, `quiet` ends it, each
answered by the same word once it holds; the end of input stops the server.
"""

from __future__ import annotations

import sys
import threading

from lambda_svc import config as config_file
from lambda_svc.server import RankingServer, load_plans


class BusyThread:
    """A thread that never waits: what a careless callback or a metrics dump does to an interpreter."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """Returns once the thread has ended."""
        self._stop.set()
        self._thread.join()

    def _spin(self) -> None:
        self._started.set()
        total = 0
        while not self._stop.is_set():
            total += sum(range(1000))


def main(config_path: str) -> None:
    """Serves and obeys until standard input closes."""
    config = config_file.load(config_path)
    sys.setswitchinterval(config.server.switch_interval_us / 1e6)
    busy: BusyThread | None = None
    with RankingServer(config, load_plans(config)) as server:
        print(f"ready on port {server.port}", flush=True)
        for line in sys.stdin:
            word = line.strip()
            if word == "busy" and busy is None:
                busy = BusyThread()
            elif word == "quiet" and busy is not None:
                busy.stop()
                busy = None
            print(word, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
