"""Step 4: features, tables and model behind a gRPC server, a process of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from rich.console import Console

from lambda_svc.client import RankingClient
from lambda_svc.errors import Unavailable
from tools.demo.offline import Offline
from tools.demo.text import heading

__all__ = ["SCENARIO", "served"]

SCENARIO = "explore_rank"
DEFAULT_PORT = 8500  # of the config that is kept; the demo's own server takes a free port
STOP_S = 30
CONFIG = """\
repository: repository
work_dir: run
server: {{listen: "127.0.0.1:{port}"}}
user_features: {{path: features/users.parquet}}
item_features: {{path: features/items.parquet}}
scenarios:
  {scenario}:
    model: {model}
    formula: "0.7 * liked + 0.3 * engaged"
    candidates_max: 5000
"""


@contextmanager
def served(folder: Path, offline: Offline, console: Console) -> Iterator[RankingClient]:
    """Serves what the offline job pushed; yields a connected client. Raises Unavailable when no server starts."""
    heading(console, 4, "Load features and tables, start the server")
    offline.features.write(folder / "features")
    [model] = [path.name for path in offline.repository.iterdir() if not path.name.startswith(".")]
    config = folder / "demo.yaml"
    config.write_text(CONFIG.format(scenario=SCENARIO, model=model, port=0))
    (folder / "service.yaml").write_text(CONFIG.format(scenario=SCENARIO, model=model, port=DEFAULT_PORT))
    started = time.perf_counter()
    with (folder / "server.log").open("w") as log, _Server(config, log) as server:
        with console.status("   starting"):
            port = server.wait_ready()
        console.print(
            f"   ready in {time.perf_counter() - started:.1f} s on port {port}: checksums verified, golden rows scored",
            highlight=False,
        )
        with RankingClient(f"127.0.0.1:{port}") as client:
            client.wait_ready(10)
            yield client


class _Server:
    """`lambda-svc serve` as a process of its own; what it logs is copied into `log` as long as it runs."""

    def __init__(self, config: Path, log: TextIO) -> None:
        self._log = log
        self._lines: list[str] = []
        self._settled = threading.Event()  # ready, or ended
        self._port: int | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.cli", "serve", str(config)], stdout=log, stderr=subprocess.PIPE, text=True
        )
        self._copier = threading.Thread(target=self._copy_log)
        self._copier.start()

    def __enter__(self) -> _Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(STOP_S)
        self._copier.join()

    def wait_ready(self) -> int:
        """The port, once the server says that it is ready. Raises Unavailable when it ends instead."""
        self._settled.wait()
        if self._port is None:
            raise Unavailable("the server did not start:\n" + "".join(self._lines[-10:]))
        return self._port

    def _copy_log(self) -> None:
        for line in self._process.stderr:
            self._log.write(line)
            ready = re.search(r"ready on .*?(\d+)\s*$", line)
            if ready and self._port is None:
                self._port = int(ready[1])
                self._settled.set()
            elif self._port is None:
                self._lines.append(line)
        self._settled.set()
