"""The bare executable behind an empty RPC: run as a process of its own.

usage: python -m tools.bench.bare_server FOLDER

What is left of a served request once there is nothing to parse, gather, look up, order or pack: a gRPC server of the
same kind, one thread of whose pool runs the executable on ready-made feeds, in the server's slices. The request is the
number of candidates, four little-endian bytes; the answer is empty. Prints `ready on port N`; ends with its standard
input.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from lambda_svc.config import load
from models.package import read_manifest
from tools.bench.bytes_server import serve_until_closed
from tools.bench.rank_feeds import in_slices, load_bare, package_of, ready_feeds
from tools.bench.rank_setup import COUNTS, SCENARIO

METHOD = ("lambda_svc.bench.Bare", "Run")


def main(folder: Path) -> None:
    """Serves until standard input closes."""
    package = package_of(folder)
    manifest = read_manifest(package)
    executable = load_bare(package, manifest).executable
    slice_rows = load(folder / "service.yaml").scenarios[SCENARIO].slice_rows
    slices = {}
    for count in COUNTS:
        feeds = ready_feeds(package, manifest, folder, 1, np.arange(1, count + 1))
        slices[count] = in_slices(manifest, feeds, count, slice_rows)

    def run(request: bytes, _context) -> bytes:
        for feeds, rows in slices[int.from_bytes(request, "little")]:
            executable.run(feeds, rows)
        return b""

    serve_until_closed(*METHOD, run)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
