"""Server processes as tests start them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from paramserver import Table
from paramserver.epoch import Epoch, write_epoch

READY_S = 60


class RunningServer:
    """`python -m paramserver.server` on a configuration; `about` is what its ready line says."""

    def __init__(self, folder: Path, config: dict[str, Any], name: str = "server") -> None:
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        self.errors = folder / f"{name}.err"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen([sys.executable, "-m", "paramserver.server", str(path), "--json"],
                                            stdout=subprocess.PIPE, stderr=errors, text=True,
                                            env={**os.environ, "PYTHONUNBUFFERED": "1"})
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the server did not start: {self.errors.read_text()}"
        self.about: dict[str, Any] = json.loads(line)

    @property
    def address(self) -> str:
        """Where it listens."""
        return self.about["address"]

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=60)
        self.process.stdout.close()
        return status

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(timeout=60)
        self.process.stdout.close()


def rows_of(ids: np.ndarray, dim: int, sequence: int = 0) -> np.ndarray:
    """Rows that any test can tell: float32[n, dim], exact in f16."""
    return ((ids[:, None] % 509) + np.arange(dim) % 7 + sequence * 0.5).astype(np.float32)


def table_file(path: Path, ids: np.ndarray, dim: int, dtype: str = "f32") -> Path:
    """A Parquet file of a table with rows_of(ids)."""
    table = Table(path.stem, dim, dtype=dtype, default_row=np.full(dim, -1, np.float32))
    table.upsert(ids, rows_of(ids, dim))
    table.save(path)
    return path


def make_cluster(folder: Path, addresses: list[list[str]] | None = None, version: int = 1) -> Path:
    """A cluster's directory; a first map is written when addresses are given."""
    cluster = folder / "cluster"
    cluster.mkdir(exist_ok=True)
    (cluster / "epochs").mkdir(exist_ok=True)
    if addresses is not None and not (cluster / "shards.json").exists():
        write_map(cluster, addresses, version)
    return cluster


def write_map(cluster: Path, addresses: list[list[str]], version: int) -> None:
    """Write the shard map in one step."""
    temporary = cluster / ".shards.json"
    temporary.write_text(json.dumps({"version": version, "shards": [{"replicas": a} for a in addresses]}))
    temporary.rename(cluster / "shards.json")


def publish(cluster: Path, number: int, version: int, **sequences: int) -> None:
    """Publish an epoch."""
    write_epoch(cluster, Epoch(number, version, sequences))
