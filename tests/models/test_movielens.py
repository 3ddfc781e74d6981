"""Reading the wheel, refusing others, and the generated stand-in."""

import hashlib
import sys
import zipfile

import numpy as np
import pytest

from models import movielens
from models.baselines import baseline_aucs, past_means
from models.errors import DatasetError, SourceUnavailableError
from models.features import RatedRows

INTER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n2\t10\t4\t900\n1\t11\t2\t800\n1\t10\t5\t800\n"
USER = ("user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token\n"
        "2\t53\tF\tother\t94043\n1\t24\tM\ttechnician\t85711\n")
ITEM = ("item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
        "11\tMis\u00e9rables, Les\tV\tunknown\n10\tToy Story\t1995\tAnimation Children's\n")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "lambda-svc"


@pytest.fixture
def wheel(cache, monkeypatch):
    cache.mkdir()
    path = cache / movielens.WHEEL_FILE
    with zipfile.ZipFile(path, "w") as archive:
        for kind, text in (("inter", INTER), ("user", USER), ("item", ITEM)):
            archive.writestr(f"{movielens.FOLDER}.{kind}", text.encode())
    monkeypatch.setattr(movielens, "WHEEL_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path


def test_reads_the_cached_wheel(wheel):
    dataset = movielens.load("movielens")
    assert "MovieLens" in dataset.origin
    assert dataset.ratings.to_pydict() == {"user_id": [1, 1, 2], "item_id": [10, 11, 10], "rating": [5, 2, 4],
                                           "timestamp": [800, 800, 900]}
    assert dataset.users["occupation"].to_pylist() == [b"technician", b"other"]
    assert dataset.items.to_pylist()[1] == {"item_id": 11, "title": "Mis\u00e9rables, Les", "year": None, "genres": []}
    assert dataset.items["genres"][0].as_py() == [b"Animation", b"Children's"]


def test_a_changed_wheel_is_refused(wheel):
    wheel.write_bytes(wheel.read_bytes() + b"x")
    with pytest.raises(SourceUnavailableError, match="delete it"):
        movielens.load("movielens")
    assert "delete it" in movielens.load("auto").origin


def test_falls_back_saying_why_when_pip_fails(cache, monkeypatch, tmp_path):
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'ERROR: no network here' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    dataset = movielens.load()
    assert dataset.origin.startswith("generated") and "no network here" in dataset.origin
    assert len(dataset.ratings) == 100_000 and len(dataset.users) == 943 and len(dataset.items) == 1_682
    with pytest.raises(SourceUnavailableError, match="no network here"):
        movielens.load("movielens")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    assert "absent" in movielens.load().origin


def test_generated_data_is_seeded_and_learnable():
    one, two, other = movielens.load("generated"), movielens.load("generated"), movielens.load("generated", seed=1)
    assert one.ratings.equals(two.ratings) and one.items.equals(two.items) and one.users.equals(two.users)
    assert not one.ratings.equals(other.ratings)
    rows = RatedRows(one)
    split, liked = rows.split(), rows.labels["liked"]
    aucs = baseline_aucs(rows.item_ids, liked, past_means(rows.moments, 4.0, liked.mean()), split)
    assert 0.5 < aucs["count"] < aucs["item_mean"] < aucs["logistic"]
    shared = len(rows.user_ids) - len(rows.moments.user_ids)
    assert shared > 20_000, "many rows share user and second with another, as in the real data"
    assert np.all(np.diff(rows.timestamps) >= 0)


def test_bad_arguments_are_refused():
    with pytest.raises(DatasetError, match="expected 'auto'"):
        movielens.load("nope")
    with pytest.raises(DatasetError, match="half the pairs"):
        movielens.generated_dataset(100, 10, 10)
