"""A server process from start to end: lookups, epochs, deltas, restarts and signals."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import numpy as np
import pyarrow.flight as fl
import pytest

from paramserver.delta import Delta, arrow_of, write_delta
from paramserver.epoch import Epoch, write_epoch
from paramserver.shard_map import shard_of
from tests.paramserver.server.conftest import DIMS, IDS
from tests.paramserver.server.flight_client import Refused, WireClient, failure
from tests.paramserver.server.servers import publish, rows_of, table_file, write_map

HIT, COLD, DEFAULT = 0, 1, 2
SERVED_S = 20


def delta_of(sequence: int, ids: np.ndarray, deletes: list[int] | None = None, version: int = 7) -> Delta:
    """A delta of table "item"."""
    return Delta("item", version, sequence, ids, rows_of(ids, DIMS["item"], sequence),
                 np.array(deletes or [], np.int64))


def served(client: WireClient, epoch: int, ids: Sequence[int] | np.ndarray = (1,), **header: int) -> None:
    """Returns once the epoch is served: each lookup for it waits a moment by itself."""
    deadline = time.monotonic() + SERVED_S
    while True:
        try:
            client.lookup("item", ids, epoch=epoch, **header)
            return
        except Refused as refused:
            assert refused.code in ("unknown_epoch", "shard_map_mismatch"), refused
            assert time.monotonic() < deadline, f"epoch {epoch} was not served: {refused}"


def test_a_snapshot_is_served_once_its_epoch_is_published(serving):
    _, client = serving
    served(client, 1)
    ids = np.array([1, -500, 19_999, 10**12])
    for name, dim in DIMS.items():
        rows, status = client.lookup(name, ids)
        assert (rows[:3] == rows_of(ids[:3], dim)).all() and (rows[3] == -1).all()
        assert list(status) == [HIT, HIT, HIT, DEFAULT]


def test_a_pushed_delta_is_seen_by_its_epoch_only(serving, tmp_path):
    _, client = serving
    served(client, 1)
    delta = delta_of(1, np.array([5, 10**12]), deletes=[6])
    assert client.push(arrow_of(delta)) == {"state": "applied", "table": "item", "sequence": 1, "ids": 2, "deletes": 1}
    assert client.push(arrow_of(delta))["state"] == "already"
    ids = np.array([5, 10**12, 6])
    before = client.lookup("item", ids)
    publish(tmp_path / "cluster", 2, 7, item=1, user=0)
    served(client, 2)
    rows, status = client.lookup("item", ids, epoch=2)
    assert (rows[:2] == rows_of(ids[:2], 32, 1)).all() and list(status) == [HIT, HIT, DEFAULT]
    again = client.lookup("item", ids, epoch=1)
    assert (before[0] == again[0]).all() and list(again[1]) == [HIT, DEFAULT, HIT]


def test_an_epoch_published_before_its_delta_is_served_when_the_delta_comes(serving, tmp_path):
    _, client = serving
    served(client, 1)
    publish(tmp_path / "cluster", 2, 7, item=1, user=0)
    with pytest.raises(Refused, match="epoch 2 is not served"):
        client.lookup("item", [5], epoch=2)
    client.push(arrow_of(delta_of(1, np.array([5]))))
    served(client, 2)
    assert (client.lookup("item", [5], epoch=2)[0] == rows_of(np.array([5]), 32, 1)).all()


def test_what_was_rolled_back_while_a_server_was_away_is_passed_over_at_its_start(serving, start, connect, tmp_path):
    server, client = serving
    client.push(arrow_of(delta_of(1, np.array([5]))))
    publish(tmp_path / "cluster", 2, 7, item=1, user=0)
    served(client, 2)
    assert server.stop() == 0
    write_epoch(tmp_path / "cluster", Epoch(3, 7, {"item": 0, "user": 0}, {"item": 1}))
    client = connect(start())
    served(client, 3)
    # Epoch 2 would be held for minutes, and nothing could be staged until then.
    assert client.push(arrow_of(delta_of(2, np.array([6]))))["state"] == "applied"


def test_epochs_that_were_made_anew_are_not_answered_from_the_old_ones(serving, tmp_path):
    server, client = serving
    served(client, 1)
    epochs = tmp_path / "cluster" / "epochs"
    epochs.rename(tmp_path / "lost")
    publish(tmp_path / "cluster", 1, 8, item=0, user=0)
    deadline = time.monotonic() + SERVED_S
    with pytest.raises(Refused, match="epoch 1 is not served"):
        while time.monotonic() < deadline:
            client.lookup("item", [1], epoch=1)
    epochs.rename(tmp_path / "wrong")
    (tmp_path / "lost").rename(epochs)
    served(client, 1)


def test_a_delta_that_cannot_be_taken_says_why(serving):
    _, client = serving
    with pytest.raises(fl.FlightUnavailableError) as raised:
        client.push(arrow_of(delta_of(3, np.array([5]))))
    assert failure(raised.value)["error"] == "SequenceGap" and failure(raised.value)["missing"] == [1, 2]
    client.push(arrow_of(delta_of(1, np.array([5]))))
    with pytest.raises(fl.FlightServerError) as raised:
        client.push(arrow_of(delta_of(1, np.array([6]))))
    assert failure(raised.value)["error"] == "SequenceConflict"
    broken = arrow_of(delta_of(2, np.array([5])))
    metadata = {**broken.schema.metadata, b"lambda_svc.checksum": b"0" * 32}
    with pytest.raises(fl.FlightServerError) as raised:
        client.push(broken.replace_schema_metadata(metadata))
    assert failure(raised.value)["error"] == "ChecksumError"


def test_everything_is_there_after_a_kill(serving, start, connect, tmp_path):
    server, client = serving
    client.push(arrow_of(delta_of(1, np.array([5]))))
    publish(tmp_path / "cluster", 2, 7, item=1, user=0)
    served(client, 2)
    server.kill()
    again = start()
    assert again.about["serving_epoch"] == 2
    client = connect(again)
    assert (client.lookup("item", [5], epoch=2)[0] == rows_of(np.array([5]), 32, 1)).all()
    assert (client.lookup("item", [5], epoch=1)[0] == rows_of(np.array([5]), 32)).all()


def test_sigterm_during_load_answers_what_is_in_flight_and_exits_cleanly(serving, connect):
    server, client = serving
    served(client, 1)
    stop, outcomes = threading.Event(), []

    def load():
        mine = WireClient(server.address)
        try:
            while not stop.is_set():
                rows, _ = mine.lookup("item", IDS)
                outcomes.append("good" if (rows == rows_of(IDS, 32)).all() else "wrong")
        except Refused as refused:
            outcomes.append(refused.code)
        except (fl.FlightError, OSError, EOFError, StopIteration) as error:
            outcomes.append(type(error).__name__)
        mine.close()

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 20
    while outcomes.count("good") < 20 and time.monotonic() < deadline:
        client.lookup("item", [1])
    assert server.stop() == 0
    stop.set()
    for thread in threads:
        thread.join(20)
    assert outcomes.count("good") >= 20 and "wrong" not in outcomes
    assert set(outcomes) - {"good"} <= {"closing", "FlightUnavailableError", "FlightCancelledError"}
    assert server.errors.read_text() == ""


def test_a_second_server_on_the_directory_fails_at_once(serving, tmp_path):
    second = subprocess.run([sys.executable, "-m", "paramserver.server", str(tmp_path / "server.yaml")],
                            capture_output=True, text=True, timeout=60)
    assert second.returncode == 1
    assert "StoreLocked" in second.stderr and str(tmp_path / "server") in second.stderr


def test_a_port_in_use_is_told(serving, tmp_path):
    server, _ = serving
    config = (tmp_path / "server.yaml").read_text().replace("127.0.0.1:0", server.address.split("//")[1])
    path = tmp_path / "other.yaml"
    path.write_text(config.replace(f"directory: {tmp_path}/server", f"directory: {tmp_path}/other"))
    second = subprocess.run([sys.executable, "-m", "paramserver.server", str(path)], capture_output=True, text=True,
                            timeout=60)
    assert second.returncode == 1 and len(second.stderr.splitlines()) == 1, second.stderr
    assert "cannot listen on 127.0.0.1" in second.stderr and "Address already in use" in second.stderr


def test_a_new_map_version_is_taken_without_a_restart(serving, tmp_path):
    _, client = serving
    served(client, 1)
    write_map(tmp_path / "cluster", [["grpc://127.0.0.1:1", "grpc://127.0.0.1:2"]], version=2)
    served(client, 1, map_version=2)
    with pytest.raises(Refused) as raised:
        client.lookup("item", [1], map_version=1)
    assert raised.value.code == "shard_map_mismatch"


def test_a_map_of_other_shards_is_not_taken(serving, start, connect, tmp_path):
    server, client = serving
    served(client, 1)
    write_map(tmp_path / "cluster", [["grpc://127.0.0.1:1"], ["grpc://127.0.0.1:2"]], version=2)
    # Once the server has seen the new map, which the epoch after it proves, it still has the place of the old one.
    publish(tmp_path / "cluster", 2, 7, item=0, user=0)
    served(client, 2)
    with pytest.raises(Refused) as raised:
        client.lookup("item", [1], map_version=2, shards=2)
    assert raised.value.code == "shard_map_mismatch"
    assert client.lookup("item", [1], epoch=2)[1] == [HIT]
    server.stop()  # whose watcher says what it met once it has looked at everything
    assert "ShardMapError" in server.errors.read_text()


def test_a_shard_takes_its_part_of_a_delta(start, connect, tmp_path):
    server = start(shard=1, shards=3)
    client = connect(server)
    mine = IDS[shard_of(IDS, 3) == 1]
    path = table_file(tmp_path / "item.parquet", mine, DIMS["item"])
    client.action("add_snapshot", package_version=7, tables={"item": str(path)})
    whole = delta_of(1, np.arange(100))
    with pytest.raises(fl.FlightServerError, match="DeltaError"):
        client.push(arrow_of(whole))
    assert client.push(arrow_of(whole), split=True)["ids"] == int((shard_of(whole.ids, 3) == 1).sum())
    publish(tmp_path / "cluster", 1, 7, item=1)
    place = {"map_version": 1, "shard": 1, "shards": 3}
    served_ids = mine[(mine >= 0) & (mine < 100)]
    served(client, 1, served_ids, **place)
    rows, _ = client.lookup("item", served_ids, **place)
    assert (rows == rows_of(served_ids, 32, 1)).all()


def test_a_replica_fetches_what_it_missed_from_the_other(serving, start, connect, files, tmp_path):
    server, client = serving
    other = start("other", replica=1)
    connect(other).action("add_snapshot", package_version=7, tables=files)
    other.kill()
    for sequence in (1, 2, 3):
        client.push(arrow_of(delta_of(sequence, np.array([5, 10**12]), deletes=[6])))
    publish(tmp_path / "cluster", 2, 7, item=3, user=0)
    served(client, 2)
    write_map(tmp_path / "cluster", [[server.address]], version=2)
    back = connect(start("other", replica=1))
    served(back, 2, map_version=2)
    rows, status = back.lookup("item", [5, 10**12, 6], epoch=2, map_version=2)
    assert (rows[:2] == rows_of(np.array([5, 10**12]), 32, 3)).all() and list(status) == [HIT, HIT, DEFAULT]
    assert back.action("status")["catch_up_problem"] == ""


def test_a_replica_that_finds_nobody_to_ask_says_so(serving, tmp_path):
    _, client = serving
    served(client, 1)
    publish(tmp_path / "cluster", 2, 7, item=1, user=0)
    deadline = time.monotonic() + SERVED_S
    while not (problem := client.action("status")["catch_up_problem"]):
        assert time.monotonic() < deadline
    assert "delta 1 of table 'item'" in problem and "grpc://127.0.0.1:1" in problem


def test_long_logs_become_bases_and_expired_rows_go(start, connect, files, tmp_path):
    server = start(tables={"item": {"ttl_s": 1e-3}}, limits={"upkeep_s": 0.05, "log_bytes_max": 0})
    client = connect(server)
    client.action("add_snapshot", package_version=7, tables=files)
    client.push(arrow_of(delta_of(1, np.array([5]))))
    publish(tmp_path / "cluster", 1, 7, item=1, user=0)
    deadline = time.monotonic() + SERVED_S
    while True:
        table = client.action("status")["versions"]["7"]["item"]
        if table["rows"] == 0 and table["base_sequence"] == 1:
            break
        assert time.monotonic() < deadline, table
    assert (client.lookup("item", [5, 7])[1] == DEFAULT).all()
    told = client.action("tables")["tables"]
    assert told["item"]["ttl_s"] == 1e-3 and told["user"]["ttl_s"] == 0


def test_a_table_larger_than_its_ram_is_served(start, connect, files, tmp_path):
    server = start(tables={"item": {"tier": {"ram_bytes_max": 1 << 20, "direct": False}}})
    client = connect(server)
    client.action("add_snapshot", package_version=7, tables=files)
    client.push(arrow_of(delta_of(1, np.array([5]))))
    publish(tmp_path / "cluster", 1, 7, item=1, user=0)
    served(client, 1)
    ids = np.random.default_rng(1).permutation(IDS)
    rows, status = client.lookup("item", ids)
    expected = rows_of(ids, 32)
    expected[ids == 5] = rows_of(np.array([5]), 32, 1)
    assert (rows == expected).all() and set(status) == {HIT, COLD}
    stats = client.action("stats")["versions"]["7"]
    assert stats["item"]["tier"]["rows_cold_read"] >= (status == COLD).sum() and "tier" not in stats["user"]


def test_delta_files_in_a_watched_folder_are_staged(start, connect, files, tmp_path):
    folder = tmp_path / "deltas"
    folder.mkdir()
    server = start(watch_deltas=str(folder))
    client = connect(server)
    client.action("add_snapshot", package_version=7, tables=files)
    write_delta(folder / "1.arrow", delta_of(1, np.array([5])))
    publish(tmp_path / "cluster", 1, 7, item=1, user=0)
    served(client, 1)
    assert (client.lookup("item", [5])[0] == rows_of(np.array([5]), 32, 1)).all()


def test_an_epoch_is_let_go_when_nobody_holds_it(start, connect, files, tmp_path):
    server = start(limits={"hold_s": 0.0})
    client = connect(server)
    client.action("add_snapshot", package_version=7, tables=files)
    publish(tmp_path / "cluster", 1, 7, item=0, user=0)
    served(client, 1)
    client.action("lease", epoch=1, ttl_s=60, holder="a test")
    client.push(arrow_of(delta_of(1, np.array([5]))))
    publish(tmp_path / "cluster", 2, 7, item=1, user=0)
    served(client, 2)
    client.action("expire")
    assert client.lookup("item", [1], epoch=1)[1] == [HIT]
    client.action("lease", epoch=1, ttl_s=0, holder="another")
    assert [epoch["number"] for epoch in client.action("status")["epochs"]] == [1, 2]


def test_a_stopped_process_goes_on_where_it_was(serving):
    server, client = serving
    served(client, 1)
    os.kill(server.process.pid, signal.SIGSTOP)
    number = client.ask("item", [3])
    os.kill(server.process.pid, signal.SIGCONT)
    assert (client.collect(number, 1, "f32")[0] == rows_of(np.array([3]), 32)).all()
