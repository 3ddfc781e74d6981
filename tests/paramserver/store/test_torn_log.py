"""The log's tail cut off: the store opens, drops whole deltas that were not acknowledged as synced, and goes on."""

import shutil

import pytest
from paramserver.epoch import Epoch, write_epoch

from tests.paramserver.store.making import VERSION, delta_of, expected, large_delta, open_store, rows_at, serving

CUTS = range(1, 43)


def written(folder, make):
    """The directory, as a crash would leave it, of a store with four deltas and the epoch of three."""
    with serving(folder / "live") as store:
        for sequence in (1, 2, 3):
            store.stage(make(sequence))
        store.publish(Epoch(1, VERSION, {"item": 3}))
        store.stage(make(4))
        shutil.copytree(folder / "live", folder / "whole")
    return [make(sequence) for sequence in (1, 2, 3, 4)]


def cut(directory, n):
    tail = max((directory / "log").glob("*.log"), key=lambda path: int(path.stem))
    raw = tail.read_bytes()
    assert len(raw) > n
    tail.write_bytes(raw[:-n])


@pytest.mark.parametrize(("make", "cuts"), [(delta_of, CUTS), (large_delta, CUTS[::8])])
def test_a_tail_cut_by_1_to_42_bytes_costs_the_last_delta_only(tmp_path, make, cuts):
    deltas = written(tmp_path, make)
    for n in cuts:
        directory = tmp_path / str(n)
        shutil.copytree(tmp_path / "whole", directory)
        cut(directory, n)
        with open_store(directory) as store:
            assert store.tables(VERSION)["item"].sequence == 3
            assert rows_at(store) == expected(deltas[:3])
            assert store.stage(deltas[3]) == "applied" and store.stage(make(5)) == "applied"
        with open_store(directory) as store:
            store.publish(Epoch(2, VERSION, {"item": 5}))
            assert rows_at(store) == expected([*deltas, make(5)])
        shutil.rmtree(directory)


def test_every_cut_of_the_log_leaves_whole_deltas(tmp_path):
    deltas = written(tmp_path, delta_of)
    size = max((tmp_path / "whole" / "log").glob("*.log"), key=lambda path: int(path.stem)).stat().st_size
    left = []
    for n in range(45, size, 97):
        directory = tmp_path / str(n)
        shutil.copytree(tmp_path / "whole", directory)
        cut(directory, n)
        with open_store(directory) as store:
            sequence = store.tables(VERSION)["item"].sequence
            left.append(sequence)
            store.publish(Epoch(7, VERSION, {"item": sequence}))
            assert rows_at(store) == expected(deltas[:sequence])
        shutil.rmtree(directory)
    assert left == sorted(left, reverse=True) and set(left) >= {0, 1, 2, 3}


def test_an_epoch_whose_record_was_cut_off_is_adopted_again(tmp_path):
    with serving(tmp_path / "shard") as store:
        store.stage(delta_of(1))
        write_epoch(tmp_path / "cluster", Epoch(1, VERSION, {"item": 1}))
        assert store.adopt(tmp_path / "cluster") == [1]
        shutil.copytree(tmp_path / "shard", tmp_path / "crashed")
    cut(tmp_path / "crashed", 3)
    with open_store(tmp_path / "crashed") as store:
        assert store.epochs() == [] and store.adopt(tmp_path / "cluster") == [1]
        assert rows_at(store) == expected([delta_of(1)])
