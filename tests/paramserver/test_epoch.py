"""Epoch files: read back as written, whole or absent, one publisher a number, and every damaged one by name."""

import json
import os
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from paramserver import durable
from paramserver.epoch import (
    EPOCHS_FOLDER,
    Epoch,
    epoch_numbers,
    newest_epoch,
    prune_epochs,
    read_epoch,
    read_epochs,
    write_epoch,
)
from paramserver.errors import EpochError, StoreDamaged, StoreError, StoreFull


def test_epochs_come_back_in_order(tmp_path):
    assert (read_epochs(tmp_path), newest_epoch(tmp_path), epoch_numbers(tmp_path)) == ([], None, [])
    first, second = Epoch(1, 7, {"user": 0, "item": 3}), Epoch(12, 7, {"item": 2, "user": 0}, {"item": 3})
    path = write_epoch(tmp_path, first)
    write_epoch(tmp_path, second)
    assert path == tmp_path / EPOCHS_FOLDER / "00000000000000000001.json"
    assert read_epochs(tmp_path) == [first, second] and read_epochs(tmp_path, after=1) == [second]
    assert newest_epoch(tmp_path) == read_epoch(tmp_path, 12) == second
    assert sorted(os.listdir(tmp_path / EPOCHS_FOLDER)) == ["00000000000000000001.json", "00000000000000000012.json"]
    with pytest.raises(EpochError, match="no such epoch"):
        read_epoch(tmp_path, 2)


def test_a_number_is_published_once(tmp_path):
    write_epoch(tmp_path, Epoch(5, 1, {"t": 1}))
    for number in (5, 4):
        with pytest.raises(EpochError, match="take 6"):
            write_epoch(tmp_path, Epoch(number, 1, {"t": 1}))
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda i: attempt(tmp_path, Epoch(6, i, {"t": i})), range(8)))
    winner = [i for i, outcome in enumerate(outcomes) if outcome is None]
    assert len(winner) == 1 and read_epoch(tmp_path, 6).package_version == winner[0]
    assert all("epoch 6" in str(outcome) for outcome in outcomes if outcome is not None)


def attempt(cluster, epoch):
    try:
        write_epoch(cluster, epoch)
    except EpochError as error:
        return error


def test_an_interrupted_publisher_has_published_nothing(tmp_path, monkeypatch):
    def interrupted(temporary, path):
        assert temporary.read_bytes()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(durable, "link_into_place", interrupted)
        write_epoch(tmp_path, Epoch(1, 1, {"t": 1}))
    # What a killed one leaves behind is not seen either.
    (tmp_path / EPOCHS_FOLDER / ".00000000000000000001.json.ab.tmp").write_text("{")
    assert read_epochs(tmp_path) == []
    write_epoch(tmp_path, Epoch(1, 1, {"t": 1}))


def test_no_space_is_store_full(tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "write_synced", full)
    with pytest.raises(StoreFull, match="not published"):
        write_epoch(tmp_path, Epoch(1, 1, {"t": 1}))


def test_a_cluster_that_cannot_be_read_is_a_store_error(tmp_path):
    (tmp_path / EPOCHS_FOLDER).write_text("")
    with pytest.raises(StoreError, match="Not a directory"):
        epoch_numbers(tmp_path)


@pytest.mark.parametrize(("edit", "says"), [
    ({"number": 2}, "number is 2, expected 1"), ({"number": 0}, "number is 0"), ({"number": 2**63}, "number is"),
    ({"number": 1.0}, "number is 1.0"), ({"package_version": "1"}, "package_version is '1'"),
    ({"package_version": True}, "package_version is True"), ({"sequences": {}}, "sequences is empty"),
    ({"sequences": []}, r"sequences is \[\]"), ({"sequences": {"t": -1}}, r"sequences\['t'\] is -1"),
    ({"sequences": {"../t": 1}}, "table is '../t'"), ({"more": 1}, "expected the fields"),
    ({"abandoned": {"t": 1}}, r"abandoned\['t'\] is 1, expected above"), ({"abandoned": {"u": 9}}, "expected above"),
])
def test_a_wrong_epoch_names_its_field_and_its_file(tmp_path, edit, says):
    path = write_epoch(tmp_path, Epoch(1, 1, {"t": 1}))
    path.write_text(json.dumps({"number": 1, "package_version": 1, "sequences": {"t": 1}} | edit))
    with pytest.raises(StoreDamaged, match=says) as raised:
        read_epoch(tmp_path, 1)
    assert str(path) in str(raised.value)


def test_damaged_epoch_files_give_only_typed_errors(tmp_path):
    rng = random.Random(3)
    path = write_epoch(tmp_path, Epoch(1, 7, {"user": 12, "item": 3}))
    good, outcomes = path.read_bytes(), set()
    for _ in range(500):
        raw = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        path.write_bytes(raw[: rng.randint(0, len(raw))] if rng.random() < 0.3 else raw)
        try:
            read_epoch(tmp_path, 1)
        except StoreDamaged as error:
            outcomes.add(type(error))
    assert outcomes == {StoreDamaged}


def test_epochs_that_nobody_holds_are_removed_but_rollbacks_and_the_newest_of_each_version(tmp_path):
    for epoch in (Epoch(1, 4, {"item": 1}), Epoch(2, 4, {"item": 2}), Epoch(3, 4, {"item": 1}, {"item": 2}),
                  Epoch(4, 4, {"item": 3}), Epoch(5, 5, {"item": 0}), Epoch(6, 5, {"item": 1})):
        write_epoch(tmp_path, epoch)
    assert prune_epochs(tmp_path, 2) == [1]
    assert prune_epochs(tmp_path, 99) == [2, 5]
    assert epoch_numbers(tmp_path) == [3, 4, 6]


def test_an_epoch_whose_name_may_not_last_is_called_published(tmp_path, monkeypatch):
    def fails(folder):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(durable, "sync_folder", fails)
    with pytest.raises(StoreError, match="^published, but .*epochs could not be synced"):
        write_epoch(tmp_path, Epoch(1, 4, {"item": 1}))
    assert epoch_numbers(tmp_path) == [1]
