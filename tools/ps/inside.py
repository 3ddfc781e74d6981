"""`ps stats`, `ps get` and `ps why`: looking into a running cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from paramserver.shard_map import shard_of
from tools.ps.cluster import Answer, Cluster
from tools.ps.errors import PsError
from tools.ps.plan.sizing import show_bytes

__all__ = ["get", "parse_ids", "stats", "why"]

_SHOWN_NUMBERS = 4
_STATUSES = ("hit", "cold", "default", "filtered", "unavailable", "deadline")


def stats(cluster: Cluster, as_json: bool) -> int:
    """A line for each table of each replica (at: shard/replica and package version); returns 1 when a replica does not
    answer."""
    answers = cluster.ask(lambda client, _: {**client.action("status"), "stats": client.action("stats")["versions"]})
    failed = [answer for answer in answers if answer.error is not None]
    if as_json:
        print(json.dumps([{"shard": answer.replica.shard, "replica": answer.replica.number,
                           "address": answer.replica.address, "answer": answer.value,
                           "error": None if answer.error is None else str(answer.error)} for answer in answers],
                         indent=2))
        return int(bool(failed))
    console, newest = Console(), cluster.newest()
    said = f"epoch {newest.number} (package version {newest.package_version})" if newest else "no epoch yet"
    console.print(f"{cluster.directory}: map version {cluster.map.version}, {len(cluster.map.shards)} shards, "
                  f"{len(cluster.replicas)} replicas, {said}", highlight=False, soft_wrap=True)
    console.print(_stats_table(answers))
    for answer in failed:
        console.print(f"{answer.replica}: {answer.error}", highlight=False, soft_wrap=True, markup=False)
    return int(bool(failed))


def get(cluster: Cluster, table: str, ids: Sequence[int], epoch: int, as_json: bool) -> int:
    """The rows of some ids as the shards hold them at one epoch, in the order asked for."""
    _expect_epoch(cluster, epoch)
    places = shard_of(_as_ids(ids), len(cluster.map.shards)).tolist()
    rows: dict[int, dict[str, Any]] = {}
    for shard in sorted(set(places)):
        mine = [place for place, at in enumerate(places) if at == shard]
        answer = cluster.ask_one_per_shard("get", [shard], table=table, ids=[ids[place] for place in mine],
                                           epoch=epoch)[0]
        for place, row, status in zip(mine, answer.value["rows"], answer.value["status"], strict=True):
            rows[place] = {"id": ids[place], "shard": shard, "epoch": answer.value["epoch"], "status": status,
                           "row": row}
    found = [rows[place] for place in range(len(ids))]
    if as_json:
        print(json.dumps(found))
        return 0
    shown = Table("id", "status", "shard", "epoch", "row", box=SIMPLE_HEAD)
    for one in found:
        shown.add_row(str(one["id"]), one["status"], str(one["shard"]), str(one["epoch"]), _numbers(one["row"]))
    Console().print(shown)
    return 0


def why(cluster: Cluster, table: str, one: int, epoch: int, as_json: bool) -> int:
    """Where an id lies on each replica of its shard, what was written of it last, and what a lookup answers. Raises
    what the first replica said when none of the shard answers."""
    _expect_epoch(cluster, epoch)
    shard = int(shard_of(_as_ids([one]), len(cluster.map.shards))[0])
    answers = cluster.ask(
        lambda client, _: {**client.action("why", table=table, id=one, epoch=epoch),
                           "answer": client.action("get", table=table, ids=[one], epoch=epoch)},
        [replica for replica in cluster.replicas if replica.shard == shard])
    if all(answer.error is not None for answer in answers):
        answers[0].error.add_note(f"said by {answers[0].replica}")
        for other in answers[1:]:
            answers[0].error.add_note(str(other.error))
        raise answers[0].error
    if as_json:
        print(json.dumps([{"replica": answer.replica.address, "why": answer.value,
                           "error": None if answer.error is None else str(answer.error)} for answer in answers]))
    else:
        console = Console()
        console.print(f"id {one} of table {table}: shard {shard} of {len(cluster.map.shards)}", highlight=False)
        for answer in answers:
            console.print(f"  {answer.replica}: {_reason(answer)}", highlight=False, soft_wrap=True, markup=False)
    return 0


def parse_ids(words: Sequence[str]) -> list[int]:
    """Ids of 64 bits, signed or unsigned. Raises PsError."""
    ids = []
    for word in words:
        try:
            one = int(word, 0)
        except ValueError as error:
            option = ", or an option that --help names" if word.startswith("-") else ""
            raise PsError(f"id: got {word!r}; expected a 64-bit integer, such as 42, -7 or 0xff{option}") from error
        if not -(2**63) <= one < 2**64:
            raise PsError(f"id: got {word!r}; expected a 64-bit integer")
        ids.append(one)
    return ids


def _expect_epoch(cluster: Cluster, epoch: int) -> None:
    if epoch == 0 and cluster.newest() is None:
        raise PsError(f"{cluster.directory}: no epoch yet, so nobody can see a row: `lambda-svc ps publish` makes one")


def _as_ids(ids: Sequence[int]) -> np.ndarray:
    return np.array([one - 2**64 if one >= 2**63 else one for one in ids], np.int64)


def _numbers(row: Sequence[float]) -> str:
    shown = " ".join(f"{number:.5g}" for number in row[:_SHOWN_NUMBERS])
    return shown if len(row) <= _SHOWN_NUMBERS else f"{shown} ... ({len(row)})"


def _reason(answer: Answer) -> str:
    if answer.error is not None:
        return str(answer.error)
    found = answer.value
    status, row = found["answer"]["status"][0], found["answer"]["rows"][0]
    place = {"ram": "in RAM", "base": "cold, in the snapshot's slots", "spill": "cold, in the spill file",
             "pending": f"not admitted yet: {found.get('pending')} delta(s) contained it",
             "absent": "not here, or expired"}.get(found["kind"], found["kind"])
    words = [place]
    if found.get("sequence") is not None:
        words.append(f"written by sequence {found['sequence']}" if found["sequence"] else "from the snapshot")
    if found.get("expires_s"):
        words.append(f"expires {datetime.fromtimestamp(found['expires_s'], UTC):%Y-%m-%d %H:%M:%S} UTC")
    words += [f"{name} {found[name]}" for name in ("frequency",) if found.get(name) is not None]
    meaning = {"default": "the table's default row", "filtered": "the default row, until it is admitted",
               "cold": "read from the cold tier", "hit": "its row"}.get(status, "the default row")
    return f"{', '.join(words)}; a lookup at epoch {found['epoch']} answers `{status}`, {meaning}: {_numbers(row)}"


def _stats_table(answers: Sequence[Answer]) -> Table:
    shown = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False, collapse_padding=True)
    for column in ("at", "table", "rows", "epoch", "sequence", "lag", "RAM", "disk"):
        shown.add_column(column, no_wrap=True)
    shown.add_column("answered")
    for answer in answers:
        who = f"{answer.replica.shard}/{answer.replica.number}"
        if answer.error is not None:
            shown.add_row(who, "[red]no answer[/]")
            continue
        versions = answer.value["versions"]
        if not versions:
            shown.add_row(who, "none yet")
        for version, tables in versions.items():
            for name, table in tables.items():
                counted = answer.value["stats"].get(version, {}).get(name, {})
                ram = sum(counted.get(field) or 0 for field in ("bytes_index", "bytes_rows", "bytes_undo"))
                shown.add_row(f"{who} v{version}", name, f"{table['rows']:,}", str(answer.value["newest_epoch"]),
                              str(table["sequence"]), str(table["lag"]), show_bytes(ram),
                              show_bytes(table["disk_bytes"] + table["log_bytes"]), _statuses(counted))
    return shown


def _statuses(counted: dict[str, Any]) -> str:
    statuses = counted.get("statuses") or {}
    total = sum(statuses.values())
    if not total:
        return "nothing yet"
    return ", ".join(f"{name} {statuses[name] / total:.1%}" for name in _STATUSES if statuses.get(name))
