"""Step 4: features, tables and model behind a gRPC server, a process of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from lambda_svc.client import RankingClient
from lambda_svc.errors import Unavailable
from tools.demo.offline import Offline
from tools.demo.text import heading

__all__ = ["SCENARIO", "served"]

SCENARIO = "explore_rank"
STOP_S = 30
CONFIG = """\
repository: repository
work_dir: run
server: {{listen: "127.0.0.1:0"}}
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
    config = folder / "service.yaml"
    [model] = [path.name for path in offline.repository.iterdir() if not path.name.startswith(".")]
    config.write_text(CONFIG.format(scenario=SCENARIO, model=model))
    started = time.perf_counter()
    log = (folder / "server.log").open("w+")
    process = subprocess.Popen(
        [sys.executable, "-m", "tools.cli", "serve", str(config)], stdout=log, stderr=subprocess.PIPE, text=True
    )
    try:
        with console.status("   starting"):
            port = _wait_ready(process)
        console.print(
            f"   ready in {time.perf_counter() - started:.1f} s on port {port}: checksums verified, golden rows scored",
            highlight=False,
        )
        with RankingClient(f"127.0.0.1:{port}") as client:
            client.wait_ready(10)
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=STOP_S)
        log.close()


def _wait_ready(process: subprocess.Popen) -> int:
    """The port, once the server says that it is ready."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        ready = re.search(r"ready on port (\d+)", line)
        if ready:
            return int(ready[1])
    raise Unavailable("the server did not start:\n" + "".join(lines[-10:]))
