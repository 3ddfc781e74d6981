"""The control actions of a running server."""

from urllib.request import urlopen

import numpy as np
import pyarrow.flight as fl
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.paramserver.server.conftest import DIMS, IDS
from tests.paramserver.server.flight_client import failure
from tests.paramserver.server.servers import rows_of
from tests.paramserver.server.test_process import served


def test_status_tells_server_and_store(shared):
    server, client = shared
    served(client, 1)
    status = client.action("status")
    assert status["address"] == server.address and status["pid"] == server.process.pid
    assert status["map_version"] == 1 and status["serving_epoch"] == status["newest_epoch"] == 1
    assert status["versions"]["7"]["item"]["rows"] == IDS.size
    assert [epoch["number"] for epoch in status["epochs"]] == [1]


def test_get_and_why_tell_about_ids(shared):
    _, client = shared
    served(client, 1)
    got = client.action("get", table="user", ids=[3, 2**64 - 5, 10**15])
    assert got["epoch"] == 1 and got["status"] == ["hit", "hit", "default"]
    assert np.array_equal(np.array(got["rows"][:2], np.float32), rows_of(np.array([3, -5]), DIMS["user"]))
    assert client.action("why", table="user", id=3)["id"] == 3


def test_stats_tell_of_every_table(shared):
    _, client = shared
    stats = client.action("stats")["versions"]["7"]
    assert set(stats) == set(DIMS) and stats["item"]["rows"] == IDS.size


def test_a_snapshot_can_be_written(shared, tmp_path):
    _, client = shared
    served(client, 1)
    written = client.action("snapshot", directory=str(tmp_path / "copy"))
    assert written["epoch"] == 1 and (tmp_path / "copy").is_dir()
    with pytest.raises(fl.FlightUnavailableError) as raised:
        client.action("snapshot", directory=str(tmp_path / "copy"))
    assert failure(raised.value)["error"] == "StoreError"


@pytest.mark.parametrize(("action", "arguments", "error", "words"), [
    ("no such", {}, "OptionError", "expected one of"),
    ("get", {"table": "item"}, "OptionError", "ids"),
    ("get", {"table": "item", "ids": [1], "more": 2}, "OptionError", "more"),
    ("get", {"table": "item", "ids": [1.5]}, "OptionError", "ids.0"),
    ("get", {"table": "item", "ids": [2**64]}, "OptionError", "64 bits"),
    ("get", {"table": "item", "ids": []}, "OptionError", "1 to 1000"),
    ("get", {"table": "item", "ids": [1], "epoch": 9}, "EpochError", "held here are"),
    ("get", {"table": "nothing", "ids": [1]}, "UnknownTable", "item, user"),
    ("lease", {"epoch": 9, "ttl_s": 3}, "EpochError", "not held"),
    ("lease", {"epoch": True, "ttl_s": 3}, "OptionError", "epoch"),
    ("snapshot", {"directory": "here"}, "OptionError", "absolute"),
    ("retire", {"package_version": 7}, "EpochError", "newest"),
])
def test_what_an_action_cannot_do_is_told(shared, action, arguments, error, words):
    _, client = shared
    served(client, 1)
    with pytest.raises(fl.FlightServerError) as raised:
        client.action(action, **arguments)
    said = failure(raised.value)
    assert said["error"] == error and words in said["message"]


@pytest.mark.parametrize("body", [b"[]", b"{", b"\xff", b"3", b"[" * 100_000])
def test_arguments_that_are_no_object_are_told(shared, body):
    _, client = shared
    with pytest.raises(fl.FlightServerError) as raised:
        list(client.connection.do_action(fl.Action("status", body)))
    assert failure(raised.value)["error"] == "OptionError"


def test_metrics_can_be_scraped(shared):
    server, client = shared
    served(client, 1)
    before = scraped(server)
    client.lookup("item", [1, 2, 10**12])
    after = scraped(server)
    rows, lookups = ("paramserver_rows_total", (("status", "default"), ("table", "item"))), lookups_of("total")
    assert after[rows] == before[rows] + 1 and after[lookups] == before[lookups] + 1
    buckets = [value for (name, labels), value in after.items()
               if name == "paramserver_lookup_seconds_bucket" and ("table", "item") in labels]
    assert max(buckets) == after[lookups] == after["paramserver_lookup_seconds_count", (("table", "item"),)]
    assert after["paramserver_epoch", ()] == 1
    assert after["paramserver_table_rows", (("table", "item"), ("version", "7"))] == IDS.size
    assert after["paramserver_table_bytes", (("table", "item"), ("version", "7"))] > IDS.size * 32 * 4
    assert after["paramserver_lag", (("table", "item"), ("version", "7"))] == 0


def lookups_of(kind):
    """The key of a counter of table "item"."""
    return f"paramserver_lookups_{kind}", (("table", "item"),)


def scraped(server):
    """Every sample by name and labels."""
    with urlopen(f"http://{server.about['metrics']}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text) for sample in family.samples}
