"""Fetching what was missed: whichever replica has a delta whole gives it."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from paramserver.delta import Delta, arrow_of, write_delta
from paramserver.errors import OperatingError
from paramserver.server.catch_up import CatchUp, Credentials
from paramserver.shard_map import ShardMap
from tests.paramserver.server.native_servers import address_of, native_server

DELTA = Delta("item", 1, 1, np.arange(3), np.ones((3, 2), np.float32), np.array([], np.int64))


def status(**said):
    return 0, json.dumps({"versions": {"1": {"item": {"log_bytes": 1000}}}, **said})


def good(action, body, file):
    if not file:
        return status()
    write_delta(file, DELTA)
    return 0, json.dumps({"sequence": 1})


def damaged(action, body, file):
    if not file:
        return status()
    table = arrow_of(DELTA)
    rows = pa.array([[1.0, 9.0]] * 3, table.schema.field("row").type)
    Path(file).unlink(missing_ok=True)
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(pa.table([table.column("id"), rows], schema=table.schema))
    return 0, json.dumps({"sequence": 1})


def speaks_otherwise(action, body, file):
    return 0, json.dumps({"release": "another"})


@pytest.fixture
def fetch(tmp_path):
    """fetch(*controls): the deltas that a replica fetches from servers with these control functions, in that order."""
    started = []

    def run(*controls):
        for number, control in enumerate(controls):
            folder = tmp_path / str(number)
            folder.mkdir()
            started.append(native_server(folder, control))
        shards = (tuple(address_of(server) for server in started),)
        (tmp_path / "shards.json").write_text(ShardMap(1, shards).json())
        store = SimpleNamespace(shard=0, shards=1)
        catch_up = CatchUp(store, tmp_path, "grpc://127.0.0.1:1", Credentials(), lambda: None)
        return list(catch_up._fetched("item", 1, 0, 1))

    yield run
    for server in started:
        server.stop(0)


@pytest.mark.parametrize("bad", [damaged, speaks_otherwise])
def test_a_replica_that_answers_nonsense_does_not_keep_others_from_being_asked(fetch, bad):
    (delta,) = fetch(bad, good)
    assert delta.checksum == DELTA.checksum


def test_when_none_has_it_each_says_why(fetch):
    with pytest.raises(OperatingError, match=r"no replica of shard 0 has delta 1 .*checksum.*versions"):
        fetch(damaged, speaks_otherwise)
