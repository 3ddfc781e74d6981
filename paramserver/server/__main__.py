"""Runs one shard's server until SIGTERM or SIGINT: `python -m paramserver.server CONFIG [--json]`.

One line on standard output says that it is ready, and where; with --json it is a JSON object.
"""

import argparse
import json
import signal
import sys
import threading

from paramserver.errors import ParamServerError
from paramserver.server import ShardProcess, load_config

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Serve. Returns the exit status: 0 after a signal, 1 when it could not start."""
    parser = argparse.ArgumentParser(prog="python -m paramserver.server", description="Serve one shard.")
    parser.add_argument("config", help="the configuration, YAML")
    parser.add_argument("--json", action="store_true", help="say that it is ready as a JSON object")
    given = parser.parse_args(arguments)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    try:
        process = ShardProcess(load_config(given.config))
    except ParamServerError as error:
        print(f"paramserver: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(_ready(process, given.json), flush=True)
    ended.wait()
    process.stop()
    return 0


def _ready(process: ShardProcess, as_json: bool) -> str:
    about = process.about()
    if as_json:
        return json.dumps({"ready": True, **about})
    config = process.config
    metrics = f", metrics on http://{about['metrics']}/metrics" if about["metrics"] else ""
    return (f"paramserver: shard {config.shard} of {config.shards}, replica {config.replica}, serves epoch "
            f"{about['serving_epoch']} on {about['address']}{metrics}")


if __name__ == "__main__":
    sys.exit(main())
