"""`ps push-delta`, `ps publish` and `ps rollback`: what changes what readers see."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from paramserver.delta import read_delta
from paramserver.epoch import Epoch
from paramserver.errors import EpochError
from paramserver.publish import previous_state
from tools.ps.cluster import Cluster
from tools.ps.errors import PsError
from tools.ps.progress import bar

__all__ = ["parse_sequences", "publish", "push_deltas", "rollback"]

_POLL_S = 0.05


def push_deltas(cluster: Cluster, files: Sequence[Path], require: str) -> int:
    """Stages the deltas of the files, in the order given, on every replica of the shards of their ids."""
    console, publisher = Console(), cluster.publisher(require)
    with bar("deltas", len(files)) as tell:
        for done, path in enumerate(files, 1):
            delta = read_delta(path)
            said = publisher.push_delta(delta)
            tell(done)
            counts = {word: sum(1 for answer in said.values() if answer == word)
                      for word in ("applied", "already", "held")}
            words = ", ".join(f"{word} on {n}" for word, n in counts.items() if n)
            console.print(f"{path}: {delta}: {delta.ids.size:,} rows, {delta.deletes.size:,} deletes: {words}",
                          highlight=False, soft_wrap=True)
            if counts["held"]:
                console.print(f"  held: package version {delta.base_version} does not serve there yet; the delta waits "
                              f"for `lambda-svc ps load --version {delta.base_version}`", highlight=False,
                              soft_wrap=True)
            for name, answer in said.items():
                if answer not in counts:
                    console.print(f"  {name}: {answer}", highlight=False, soft_wrap=True)
    return 0


def publish(cluster: Cluster, version: int | None, sequences: dict[str, int], require: str, wait_s: float) -> int:
    """Publishes the next epoch: of the package version given, else the newest one's, else the newest that all serve.
    Tables not named in `sequences` take the highest sequence that every replica has staged."""
    staged = _staged(cluster, require)
    if version is None:
        newest = cluster.newest()
        version = newest.package_version if newest else max(staged, default=None)
    if version not in staged:
        raise PsError(f"package version {version} does not serve on every replica, {sorted(staged) or 'none'} do: load "
                      "it with `lambda-svc ps load`")
    unknown = set(sequences) - set(staged[version])
    if unknown:
        raise PsError(f"--sequence: no table {', '.join(sorted(unknown))} in package version {version}; its tables are "
                      f"{', '.join(sorted(staged[version]))}")
    epoch = cluster.publisher(require).publish(version, {**staged[version], **sequences})
    return _shown(cluster, epoch, "published", wait_s)


def rollback(cluster: Cluster, to_epoch: int | None, require: str, wait_s: float) -> int:
    """Publishes a new epoch that shows what an older one shows. When none is named, that is the newest one of another
    state that was not rolled back itself."""
    epochs = cluster.epochs()
    if to_epoch is None:
        before = previous_state(epochs) if epochs else None
        if before is None:
            raise EpochError(f"none of {len(epochs)} epoch(s) shows an older state that was not rolled back: there is "
                             "nothing to roll back to")
        to_epoch = before.number
    epoch = cluster.publisher(require).rollback(to_epoch)
    return _shown(cluster, epoch, f"rolled back to epoch {to_epoch} as", wait_s)


def parse_sequences(options: Sequence[str]) -> dict[str, int]:
    """TABLE=NUMBER options as a mapping. Raises PsError."""
    found = {}
    for option in options:
        name, sign, number = option.partition("=")
        if not sign or not number.isdigit():
            raise PsError(f"--sequence: got {option!r}; expected TABLE=NUMBER")
        found[name] = int(number)
    return found


def _staged(cluster: Cluster, require: str) -> dict[int, dict[str, int]]:
    """For each package version that every replica serves, the highest sequence of each table that all have staged."""
    answers = cluster.ask(lambda client, _: client.action("status"))
    statuses = [answer.value for answer in answers if answer.error is None]
    failed = [answer for answer in answers if answer.error is not None]
    shards = {answer.replica.shard for answer in answers if answer.error is None}
    if failed and (require == "all" or len(shards) < len(cluster.map.shards)):
        error = failed[0].error
        error.add_note(f"said by {failed[0].replica}; --require one_per_shard leaves replicas behind that are down")
        raise error
    common = set.intersection(*(set(status["versions"]) for status in statuses))
    return {int(version): {table: min(status["versions"][version][table]["sequence"] for status in statuses)
                           for table in statuses[0]["versions"][version]} for version in common}


def _shown(cluster: Cluster, epoch: Epoch, what: str, wait_s: float) -> int:
    console = Console()
    sequences = ", ".join(f"{table} at {sequence}" for table, sequence in epoch.sequences.items())
    console.print(f"{what} epoch {epoch.number}: package version {epoch.package_version}, {sequences}",
                  highlight=False, soft_wrap=True)
    give_up = time.monotonic() + wait_s
    with bar("replicas that show it", len(cluster.replicas)) as tell:
        while True:
            answers = cluster.ask(lambda client, _: client.action("status"))
            behind = [answer.replica for answer in answers
                      if answer.error is not None or answer.value["newest_epoch"] < epoch.number]
            tell(len(answers) - len(behind))
            if not behind or time.monotonic() > give_up:
                break
            time.sleep(_POLL_S)
    if behind:
        console.print(f"not shown yet by {', '.join(map(str, behind))}; it will be once they have caught up",
                      highlight=False, soft_wrap=True)
        return 1
    console.print(f"shown by all {len(cluster.replicas)} replicas", highlight=False)
    return 0
