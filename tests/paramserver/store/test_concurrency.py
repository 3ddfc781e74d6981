"""A store beside itself: lookups, leases and numbers wait for no writer, and writers of many threads take turns."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from paramserver.epoch import Epoch
from paramserver.errors import SequenceGap, StoreError

from tests.paramserver.store.making import VERSION, delta_of, expected, rows_at, serving


@pytest.fixture
def store(tmp_path):
    with serving(tmp_path / "shard") as store:
        yield store


def test_whoever_does_not_write_does_not_wait(store, monkeypatch):
    store.stage(delta_of(1))
    store.publish(Epoch(1, VERSION, {"item": 1}))
    writing, goes_on = threading.Event(), threading.Event()
    append = store._log.append

    def slow(delta):
        writing.set()
        assert goes_on.wait(30)
        append(delta)

    monkeypatch.setattr(store._log, "append", slow)
    with ThreadPoolExecutor(1) as pool:
        staged = pool.submit(store.stage, delta_of(2))
        assert writing.wait(30)
        # What is applied but not yet in the log is not told: a publisher would rely on it.
        assert store.status()["versions"][str(VERSION)]["item"]["sequence"] == 1
        store.lease(1, 5.0)
        assert [epoch.number for epoch in store.epochs()] == [1] and store.versions() == [VERSION]
        assert rows_at(store) == expected([delta_of(1)])
        assert not staged.done()
        goes_on.set()
        assert staged.result(30) == "applied"
    assert store.status()["versions"][str(VERSION)]["item"]["sequence"] == 2


def test_many_threads_stage_the_same_deltas_once(store):
    outcomes, lock = {}, threading.Lock()

    def push(_):
        for sequence in range(1, 11):
            while True:
                try:
                    outcome = store.stage(delta_of(sequence))
                except SequenceGap:
                    continue
                break
            with lock:
                outcomes.setdefault(sequence, []).append(outcome)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(push, range(4)))
    assert all(sorted(said) == ["already"] * 3 + ["applied"] for said in outcomes.values()) and len(outcomes) == 10


def test_epochs_are_whole_while_they_are_published_and_rolled_back(store):
    """Every row of an epoch is of one delta; what a lookup by number sees never changes."""
    ids = np.arange(200)
    stop, wrong = threading.Event(), []

    def read():
        while not stop.is_set():
            epoch = store.epochs()[-1] if store.epochs() else None
            if epoch is not None:
                try:
                    store.lease(epoch.number, 60.0, threading.current_thread().name)
                except StoreError:
                    continue
                seen = store.tables(VERSION)["item"].lookup(ids, epoch=epoch.number)
                want = delta_of(epoch.sequences["item"], ids=ids).rows
                if not np.array_equal(seen, want):
                    wrong.append(epoch)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for sequence in range(1, 31):
        store.stage(delta_of(sequence, ids=ids))
        store.publish(Epoch(sequence, VERSION, {"item": sequence}))
    for number in range(31, 36):
        store.publish(Epoch(number, VERSION, {"item": 60 - number}))
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []
