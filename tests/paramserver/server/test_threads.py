"""The server's own threads live through what they meet, and end when they are told to."""

import threading

import pytest

from paramserver.epoch import Epoch, write_epoch
from paramserver.server import catch_up as catch_up_
from paramserver.server.catch_up import CatchUp, Credentials
from paramserver.server.upkeep import Upkeep
from paramserver.server.watcher import ClusterWatcher
from tests.paramserver.server.servers import write_map
from tests.paramserver.store.making import VERSION, delta_of, serving

WAIT_S = 20


class Rounds:
    """Counts calls, and lets a test wait for one of them."""

    def __init__(self, wanted: int) -> None:
        self.count, self._wanted, self.reached = 0, wanted, threading.Event()

    def __call__(self) -> None:
        self.count += 1
        if self.count >= self._wanted:
            self.reached.set()


@pytest.mark.parametrize("error", [PermissionError(13, "no"), OSError(116, "stale"), IndexError("a bug")])
def test_the_watcher_goes_on_after_any_failure(tmp_path, capsys, error):
    rounds = Rounds(3)

    def look():
        rounds()
        raise error

    watcher = ClusterWatcher(tmp_path, look, -1, 10)
    watcher.start()
    assert rounds.reached.wait(WAIT_S)
    watcher.stop()
    assert f"paramserver: {type(error).__name__}" in capsys.readouterr().err


def test_the_watcher_says_the_same_thing_once_and_another_thing_at_once(tmp_path, capsys):
    rounds = Rounds(5)

    def look():
        rounds()
        raise OSError("first" if rounds.count < 4 else "second")

    watcher = ClusterWatcher(tmp_path, look, -1, 10)
    watcher.start()
    assert rounds.reached.wait(WAIT_S)
    watcher.stop()
    said = capsys.readouterr().err
    assert (said.count("first"), said.count("second")) == (1, 1)


def test_catching_up_goes_on_after_a_map_of_other_shards(tmp_path):
    write_map(tmp_path, [["grpc://127.0.0.1:1"]], version=3)
    write_epoch(tmp_path, Epoch(1, VERSION, {"item": 5}))
    with serving(tmp_path / "store", shard=1, shards=2) as store:
        catch_up = CatchUp(store, tmp_path, "grpc://127.0.0.1:2", Credentials(), lambda: None)
        catch_up.start()
        catch_up.wake()
        _until(lambda: catch_up.problem)
        assert "ShardMapError" in catch_up.problem and "map version 3 has 1 shards" in catch_up.problem
        catch_up.stop()


def test_a_delta_may_take_as_long_as_its_bytes_need(monkeypatch):
    asked = []
    monkeypatch.setattr(catch_up_.fl, "FlightCallOptions", lambda timeout, headers: asked.append(timeout))
    for size in (0, 4 << 30):
        Credentials().options(size)
    assert asked[0] == 60 and asked[1] >= 300


def test_upkeep_goes_on_after_any_failure(capsys):
    rounds = Rounds(3)

    class Broken:
        def status(self):
            rounds()
            raise OSError(5, "no status")

    upkeep = Upkeep(Broken(), 0.01, 0)
    upkeep.start()
    assert rounds.reached.wait(WAIT_S)
    upkeep.stop()
    assert "paramserver: OSError" in capsys.readouterr().err


class Log:
    """A store whose log stays as long as a test says, whatever bases are written."""

    def __init__(self, log_bytes: int) -> None:
        self.log_bytes, self.bases, self.rounds, self.seen = log_bytes, 0, 0, threading.Condition()

    def status(self):
        return {"versions": {"7": {"item": {"log_bytes": self.log_bytes}}}}

    def tables(self, _version):
        with self.seen:
            self.rounds += 1
            self.seen.notify_all()
        return {}

    def checkpoint(self, _version, progress):
        self.bases += 1
        progress(1, 2)
        return 1

    def after(self, rounds: int) -> int:
        """How many bases there are once so many more rounds began."""
        with self.seen:
            until = self.rounds + rounds
            assert self.seen.wait_for(lambda: self.rounds >= until, WAIT_S)
        return self.bases


def test_a_log_that_stays_long_is_no_reason_for_base_after_base():
    store = Log(1_000)
    upkeep = Upkeep(store, 0.005, 100)
    upkeep.start()
    assert store.after(5) == 1
    store.log_bytes += 40
    assert store.after(5) == 1
    store.log_bytes += 40
    assert store.after(5) == 2
    upkeep.stop()


def test_a_stop_gives_up_the_base_that_is_being_written(tmp_path):
    with serving(tmp_path / "store") as store:
        store.stage(delta_of(1, (1,)))
        store.publish(Epoch(1, VERSION, {"item": 1}))
        began, moment, real = threading.Event(), threading.Event(), store.checkpoint

        def endless(version, progress):
            def step(done, of):
                began.set()
                while True:
                    progress(done, of)
                    moment.wait(0.01)

            return real(version, step)

        store.checkpoint = endless
        upkeep = Upkeep(store, 0.01, 0)
        upkeep.start()
        assert began.wait(WAIT_S)
        upkeep.stop()
        assert store.status()["versions"][str(VERSION)]["item"]["base_sequence"] == 0
        assert list((tmp_path / "store" / "incoming").iterdir()) == []
        assert real(VERSION) == 1


def _until(done) -> None:
    """Returns once it holds; what it waits for is another thread, which this one lets run."""
    moment = threading.Event()
    for _ in range(WAIT_S * 100):
        if done():
            return
        moment.wait(0.01)
    raise AssertionError("it never came")
