"""The control plane: named actions with JSON arguments, and deltas that are pushed or fetched.

An action's arguments and its result are JSON objects; what goes wrong is {"error": the class of paramserver/errors.py,
"message": ..., and for a SequenceGap "missing": [first, last]}. Actions run beside lookups and never on their threads.
"""

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict, ValidationError, validate_call

from paramserver.delta import read_delta, write_delta
from paramserver.errors import CallerError, EpochError, OperatingError, OptionError, SequenceGap, UnknownTable
from paramserver.status import RowStatus
from paramserver.store import ShardStore

__all__ = ["Control"]

_OK, _CALLER, _OPERATING, _INTERNAL = range(4)  # ControlOutcome of csrc/flight/control.h


class Control:
    """The actions of one shard's server. store: what they act on. changed: called after whatever may let an epoch be
    shown. about: gives the server's own part of `status`. Thread-safe."""

    def __init__(self, store: ShardStore, *, changed: Callable[[], None], about: Callable[[], dict[str, Any]],
                 keys_per_get_max: int) -> None:
        self._store, self._changed, self._about = store, changed, about
        self._keys_per_get_max = keys_per_get_max
        self._actions: dict[str, Callable[..., dict[str, Any]]] = {
            "status": self._status, "stats": self._stats, "tables": self._describe, "get": self._get,
            "why": self._why, "lease": self._lease, "snapshot": self._snapshot, "add_snapshot": self._add_snapshot,
            "retire": self._retire, "expire": self._expire, "checkpoint": self._checkpoint,
        }
        self._transfers: dict[str, dict[str, Callable[..., dict[str, Any]]]] = {
            "upload": {"stage": self._stage}, "download": {"next_delta": self._next_delta},
        }

    def __call__(self, action: str, body: bytes, file: str) -> tuple[int, str]:
        """Run an action; or, with a file, take it (`action` is "upload") or write it ("download"), as the action that
        `body` names. Returns the outcome and JSON."""
        try:
            arguments = _arguments(body)
            if file:
                run = _named(action, self._transfers[action], arguments.pop("action", None))
                arguments["file"] = file
            else:
                run = _named("action", self._actions, action)
            return _OK, json.dumps(_call(run, arguments), default=_plain)
        except Exception as error:
            return _failure(error)

    def _status(self) -> dict[str, Any]:
        return {**self._about(), **self._store.status()}

    def _stats(self) -> dict[str, Any]:
        return {"versions": {str(version): {name: _stats_of(table) for name, table in tables.items()}
                             for version, tables in self._tables().items()}}

    def _describe(self) -> dict[str, Any]:
        """What a client must know to ask for the newest epoch's tables."""
        newest = max(self._store.epochs(), key=lambda held: held.number, default=None)
        tables = self._store.tables(newest.package_version) if newest else {}
        return {"epoch": newest.number if newest else 0,
                "tables": {name: {"dim": table.dim, "dtype": table.dtype, "ttl_s": table.ttl_s,
                                  "default_row": table.default_row.tolist()}
                           for name, table in tables.items()}}

    def _get(self, table: str, ids: list[int], epoch: int = 0) -> dict[str, Any]:
        keys = _ids(ids, self._keys_per_get_max)
        number, found = self._table(table, epoch)
        status = np.empty(keys.size, np.uint8)
        rows = found.lookup(keys, status=status, epoch=number)
        return {"epoch": number, "table": table, "rows": rows.tolist(),
                "status": [RowStatus(value).name.lower() for value in status]}

    def _why(self, table: str, id: int, epoch: int = 0) -> dict[str, Any]:
        key = int(_ids([id], 1)[0])
        number, found = self._table(table, epoch)
        return {"epoch": number, "table": table, "id": key, **found.why(key, epoch=number)}

    def _lease(self, epoch: int, ttl_s: float, holder: str = "caller") -> dict[str, Any]:
        self._store.lease(epoch, ttl_s, holder)
        return {"epoch": epoch, "ttl_s": ttl_s}

    def _snapshot(self, directory: str, epoch: int = 0) -> dict[str, Any]:
        written = self._store.snapshot(_absolute("directory", directory), epoch)
        return {"directory": directory, "epoch": written.number, "package_version": written.package_version}

    def _add_snapshot(self, package_version: int, tables: dict[str, str],
                      base_sequences: dict[str, int] | None = None, time_s: int = 0) -> dict[str, Any]:
        paths = {name: _absolute(f"tables.{name}", path) for name, path in tables.items()}
        result = self._store.add_snapshot(package_version, paths, base_sequences=base_sequences, time_s=time_s)
        self._changed()
        return dict(result)

    def _retire(self, package_version: int) -> dict[str, Any]:
        self._store.retire(package_version)
        self._changed()
        return {"package_version": package_version}

    def _expire(self) -> dict[str, Any]:
        gone = self._store.expire()
        self._changed()
        return {"epochs": gone}

    def _checkpoint(self, package_version: int) -> dict[str, Any]:
        return {"epoch": self._store.checkpoint(package_version)}

    def _stage(self, file: str, split: bool = False) -> dict[str, Any]:
        delta = read_delta(file)
        mine = delta.split(self._store.shards)[self._store.shard] if split else delta
        state = self._store.stage(mine)
        self._changed()
        return {"state": state, "table": delta.table, "sequence": delta.sequence, "ids": int(mine.ids.size),
                "deletes": int(mine.deletes.size)}

    def _next_delta(self, file: str, package_version: int, table: str, after: int) -> dict[str, Any]:
        """The delta that follows a sequence, for a replica that lacks it; an empty file when there is none."""
        delta = self._store.next_delta(package_version, table, after)
        if delta is None:
            with pa.ipc.new_file(file, pa.schema([])):
                return {"sequence": 0}
        write_delta(file, delta)
        return {"sequence": delta.sequence}

    def _tables(self) -> dict[int, dict[str, Any]]:
        return {version: self._store.tables(version) for version in self._store.versions()}

    def _table(self, name: str, epoch: int) -> tuple[int, Any]:
        """The table of an epoch (0: the newest), and the epoch's number."""
        epochs = {held.number: held for held in self._store.epochs()}
        number = epoch or max(epochs, default=0)
        if number not in epochs:
            raise EpochError(f"epoch is {epoch or 'the newest'}, held here are {sorted(epochs) or 'none yet'}")
        tables = self._store.tables(epochs[number].package_version)
        if name not in tables:
            raise UnknownTable(f"no table {name!r} in epoch {number}; there are {', '.join(sorted(tables))}")
        return number, tables[name]


def _arguments(body: bytes) -> dict[str, Any]:
    try:
        arguments = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise OptionError(f"the arguments are not JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise OptionError(f"the arguments are {type(arguments).__name__}, expected an object")
    return arguments


def _named(kind: str, known: Mapping[str, Callable[..., Any]], name: Any) -> Callable[..., Any]:
    if not isinstance(name, str) or name not in known:
        raise OptionError(f"{kind} is {name!r:.100}, expected one of {', '.join(sorted(known))}")
    return known[name]


def _call(run: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call with arguments checked against the signature: names and plain types. Raises OptionError with every problem.
    """
    try:
        checked = validate_call(run, config=ConfigDict(strict=True))
        return checked(**arguments)
    except ValidationError as error:
        problems = (f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}"
                    for item in error.errors(include_url=False, include_input=False))
        raise OptionError(f"the arguments do not fit: {'; '.join(problems)}") from error


def _ids(values: list[Any], ids_max: int) -> np.ndarray:
    """int64[n] of integers from -2**63 to 2**64 - 1: every 64-bit pattern is an id. Raises OptionError."""
    if not 1 <= len(values) <= ids_max:
        raise OptionError(f"ids has {len(values)} entries, expected 1 to {ids_max}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not -2**63 <= value < 2**64:
            raise OptionError(f"ids holds {value!r:.100}, expected integers of 64 bits")
    return np.array([value - 2**64 if value >= 2**63 else value for value in values], np.int64)


def _absolute(name: str, path: str) -> Path:
    """A path of the server's machine. Raises OptionError unless it is absolute: the server's own folder is no base."""
    if not Path(path).is_absolute():
        raise OptionError(f"{name} is {path!r}, expected an absolute path on the server's machine")
    return Path(path)


def _stats_of(table: Any) -> dict[str, Any]:
    stats, tier = table.stats(), table.tier_stats()
    return {"bytes": stats.bytes, **asdict(stats), **({"tier": asdict(tier)} if tier is not None else {})}


def _plain(value: Any) -> Any:
    """What json does not know by itself."""
    return value.item() if isinstance(value, np.generic) else str(value)


def _failure(error: Exception) -> tuple[int, str]:
    name, outcome = type(error).__name__, _INTERNAL
    if isinstance(error, CallerError):
        outcome = _CALLER
    elif isinstance(error, OperatingError):
        outcome = _OPERATING
    else:
        traceback.print_exception(error, file=sys.stderr)
        name = "ProgrammerError"
    said: dict[str, Any] = {"error": name, "message": str(error)}
    if isinstance(error, SequenceGap):
        said["missing"] = list(error.missing)
    return outcome, json.dumps(said)
