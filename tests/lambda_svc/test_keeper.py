"""Live model changes: what the repository holds comes to serve by itself, whole, and what is broken does not."""

from __future__ import annotations

import re
import shutil
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from lambda_svc.client import RankingClient
from lambda_svc.errors import InvalidRequest, LambdaError, NotFound
from lambda_svc.lifecycle import Keeper
from lambda_svc.server import RankingServer
from tests.lambda_svc.live_worlds import WORLDS, configured, later_world, until
from tests.lambda_svc.world import MODEL

@contextmanager
def serving(config):
    """(keeper, client) of a server that watches."""
    keeper = Keeper(config)
    with RankingServer(config, keeper.load()) as server, RankingClient(f"127.0.0.1:{server.port}") as client:
        client.wait_ready(10)
        keeper.start(server.ranking.switch)
        try:
            yield keeper, client
        finally:
            keeper.stop()


def check(answer, user: int, ids) -> int:
    """The version of an answer, whose scores are wholly that version's."""
    version = answer.message.plan.version
    expected = WORLDS[version].score_ids(user, ids)
    for head, scores in expected.items():
        np.testing.assert_allclose(answer.heads[head][np.argsort(answer.positions)], scores, atol=1e-6, rtol=0)
    return version


@dataclass
class Load:
    """Threads that ask all the time; `seen` are versions in the order of their answers, `failed` what went wrong."""

    client: RankingClient
    seen: list[int] = field(default_factory=list)
    failed: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(user,)) for user in range(3)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, user: int) -> None:
        ids = list(WORLDS[1].items)[user:user + 70]
        while not self._stop.is_set():
            try:
                self.seen.append(check(self.client.rank("rank", user, ids, timeout_s=20), user, ids))
            except (LambdaError, AssertionError) as error:
                self.failed.append(error)


def test_a_pushed_version_comes_to_serve_under_load_and_no_answer_mixes_two(home):
    with serving(configured(home)) as (keeper, client), Load(client) as load:
        until(lambda: len(load.seen) > 20, "no answers")
        for version in (2, 3):
            WORLDS[version].write_package(home / "repository", version)
            until(lambda version=version: load.seen[-1] == version or load.failed, f"version {version} does not serve")
        until(lambda: [s.version for s in keeper.status()] == [3], "versions 1 and 2 are not let go of")
    assert not load.failed and set(load.seen) == {1, 2, 3}
    assert not (home / "run/packages" / MODEL / "1").exists() and (home / "run/packages" / MODEL / "3").exists()


def damaged(home: Path, kind: str) -> None:
    """Version 2, broken in one way."""
    folder = WORLDS[2].write_package(home / "repository", 2)
    if kind == "half":
        (folder / "tables/item.parquet").rename(home / "late.parquet")
    elif kind == "flipped":
        data = bytearray((folder / "tables/item.parquet").read_bytes())
        data[100] ^= 1
        (folder / "tables/item.parquet").write_bytes(data)
    else:  # whole, but with scores that are another model's
        shutil.rmtree(folder)
        liar = later_world(-1.5)
        liar.score = WORLDS[1].score
        liar.write_package(home / "repository", 2)


@pytest.mark.parametrize(("kind", "reason"), [
    ("half", r"tables/item\.parquet"), ("flipped", r"tables/item\.parquet"), ("shifted", "head 'liked' differs"),
])
def test_a_broken_version_is_kept_out_told_and_tried_again(home, kind, reason):
    damaged(home, kind)
    keeper = Keeper(configured(home))
    assert keeper.load()["rank"].stable.wire.version == 1
    [before, failed] = keeper.status()
    assert (before.state, failed.version, failed.state, failed.attempts) == ("serving", 2, "failed", 1)
    assert re.search(reason, failed.reason)
    keeper.look()
    assert keeper.status()[1].attempts == 1, "it waits before it tries again"


def test_a_version_whose_files_come_late_serves_in_the_end(home):
    damaged(home, "half")
    with serving(configured(home)) as (keeper, client), Load(client) as load:
        until(lambda: any(s.state == "failed" for s in keeper.status()), "nothing is told")
        assert set(load.seen) <= {1}
        (home / "late.parquet").rename(home / "repository" / MODEL / "2/tables/item.parquet")
        until(lambda: load.seen and load.seen[-1] == 2, "it is not tried again")
    assert not load.failed


def test_tries_grow_apart(home, monkeypatch):
    damaged(home, "flipped")
    keeper, now = Keeper(configured(home)), time.monotonic()
    keeper.load()
    waits = []
    for _ in range(12):
        waits.append(round(keeper.status()[1].retry_in_s))
        now += 400
        monkeypatch.setattr("lambda_svc.lifecycle.keeper.time.monotonic", lambda: now)
        keeper.look()
    assert waits[:9] == [1, 2, 4, 8, 16, 32, 64, 128, 256] and waits[9:] == [300, 300, 300]


def test_a_live_version_s_files_may_be_written_over(home):
    with serving(configured(home)) as (keeper, client):
        package = home / "repository" / MODEL / "1"
        for path in [p for p in package.rglob("*") if p.is_file()]:
            path.write_bytes(b"")
            path.write_bytes(b"something else")
        keeper.look()
        ids = list(WORLDS[1].items)[:50]
        assert check(client.rank("rank", 3, ids, timeout_s=20), 3, ids) == 1


def test_requests_may_name_a_version_or_a_label(home):
    for version in (2, 3):
        WORLDS[version].write_package(home / "repository", version)
    models = f"models: {{{MODEL}: {{versions: latest, latest: 2, labels: {{stable: 2, first: 1, gone: 9}}}}}}"
    with serving(configured(home, models)) as (keeper, client):
        ids = list(WORLDS[1].items)[:5]
        asked = [({}, 2), ({"version": 3}, 3), ({"label": "first"}, 1), ({"label": "stable"}, 2)]
        for which, version in asked:
            assert check(client.rank("rank", 1, ids, **which, timeout_s=20), 1, ids) == version
        with pytest.raises(NotFound, match=r"version: got 8, expected one that serves: \[1, 2, 3\]"):
            client.rank("rank", 1, ids, version=8, timeout_s=20)
        with pytest.raises(NotFound, match=r"label: got 'gone', expected one of \['first', 'stable'\]"):
            client.rank("rank", 1, ids, label="gone", timeout_s=20)
        with pytest.raises(InvalidRequest, match="version: got 1 and label 'first'; expected one of both"):
            client.rank("rank", 1, ids, version=1, label="first", timeout_s=20)


def test_a_version_that_is_taken_back_makes_room_for_the_one_before(home):
    WORLDS[2].write_package(home / "repository", 2)
    keeper = Keeper(configured(home))
    assert keeper.load()["rank"].stable.wire.version == 2
    shutil.rmtree(home / "repository" / MODEL / "2")
    keeper.look()
    assert keeper.routes["rank"].stable.wire.version == 1
    shutil.rmtree(home / "repository" / MODEL / "1")
    keeper.look()
    assert keeper.routes["rank"].stable.wire.version == 1, "what serves goes on when the repository is emptied"
