"""MovieLens-100K, read out of a wheel on PyPI, or a generated stand-in of the same shape.

The data's terms forbid redistribution, so nothing of it is part of this project: it is fetched by the user's own pip
into the user's cache and read there, inside the wheel.
"""

import hashlib
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from .errors import DatasetError, SourceUnavailableError
from .generated import generate

__all__ = ["Dataset", "cache_dir", "generated_dataset", "load", "read_wheel"]

REQUIREMENT = "recbole==1.2.1"
WHEEL_FILE = "recbole-1.2.1-py3-none-any.whl"
WHEEL_SHA256 = "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407"
FOLDER = "recbole/dataset_example/ml-100k/ml-100k"
DOWNLOAD_TIMEOUT_S = 120
MEMBER_BYTES_MAX = 64 << 20


@dataclass(frozen=True)
class Dataset:
    """Ratings with the users and items they are about.

    Attributes:
        origin: where it came from, in words fit to print; says so when it was generated, and why.
        ratings: user_id int64, item_id int64, rating float32 (1 to 5), timestamp int64 (Unix seconds); ascending by
            (timestamp, user_id, item_id).
        users: user_id int64, age float32, gender, occupation and zip_code binary; ascending by user_id.
        items: item_id int64, title string, year float32 (null when unknown), genres list<binary>; ascending by item_id.
    """

    origin: str
    ratings: pa.Table
    users: pa.Table
    items: pa.Table

    def column(self, name: str) -> np.ndarray:
        """A column of `ratings` as a numpy array [n]."""
        return self.ratings[name].to_numpy()


def cache_dir() -> Path:
    """Where fetched data is kept: $XDG_CACHE_HOME/lambda-svc, or ~/.cache/lambda-svc."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "lambda-svc"


def load(source: Literal["auto", "movielens", "generated"] = "auto", seed: int = 0) -> Dataset:
    """The dataset. `auto` fetches MovieLens-100K (2 MB, once) and falls back to the generated set, saying why in
    `origin`.

    `seed` only matters for generated data. Raises SourceUnavailableError with source="movielens" when it cannot be had.
    """
    if source == "generated":
        return generated_dataset(seed=seed)
    if source not in ("auto", "movielens"):
        raise DatasetError(f"source is {source!r}; expected 'auto', 'movielens' or 'generated'")
    try:
        return read_wheel(_fetch())
    except SourceUnavailableError as error:
        if source == "movielens":
            raise
        return generated_dataset(seed=seed, why=f"MovieLens-100K cannot be had: {error}")


def read_wheel(path: Path | str) -> Dataset:
    """Reads MovieLens-100K in place out of the recbole wheel at `path`. Raises SourceUnavailableError when it is not
    that very wheel."""
    try:
        raw = Path(path).read_bytes()
        if hashlib.sha256(raw).hexdigest() != WHEEL_SHA256:
            raise SourceUnavailableError(f"{path} is not the wheel that was published; delete it and try again")
        with zipfile.ZipFile(path) as wheel:
            ratings, users, items = (_read_tsv(wheel, kind) for kind in ("inter", "user", "item"))
    except (OSError, zipfile.BadZipFile, KeyError, ValueError) as error:
        raise SourceUnavailableError(f"{path} cannot be read: {error}") from error
    return Dataset(f"MovieLens-100K, out of {WHEEL_FILE} of PyPI", _ratings(ratings), _users(users), _items(items))


def generated_dataset(
    ratings: int = 100_000, users: int = 943, items: int = 1_682, seed: int = 0, why: str = "as asked"
) -> Dataset:
    """A generated set of any size; the defaults have MovieLens-100K's. Raises DatasetError when it would be too
    dense."""
    if not 0 < ratings <= users * items // 2:
        most = users * items // 2
        raise DatasetError(f"{ratings} ratings of {users} users, {items} items: expected 1 to {most}, half the pairs")
    return Dataset(f"generated with seed {seed} ({why})", *generate(ratings, users, items, seed))


def _fetch() -> Path:
    folder = cache_dir()
    path = folder / WHEEL_FILE
    if path.exists():
        return path
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--only-binary", ":all:", "--dest", str(folder), REQUIREMENT]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        result = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False,
                                stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceUnavailableError(f"pip could not fetch {REQUIREMENT}: {error}") from error
    if result.returncode != 0 or not path.exists():
        last = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise SourceUnavailableError(f"pip could not fetch {REQUIREMENT}: {last}")
    return path


def _read_tsv(wheel: zipfile.ZipFile, kind: str) -> dict[str, list[str]]:
    """Columns by name, without the `:type` suffix that recbole adds."""
    info = wheel.getinfo(f"{FOLDER}.{kind}")
    if info.file_size > MEMBER_BYTES_MAX:
        raise ValueError(f"{info.filename} is {info.file_size} bytes, at most {MEMBER_BYTES_MAX} are read")
    lines = wheel.read(info).decode("utf-8").splitlines()
    names = [name.split(":")[0] for name in lines[0].split("\t")]
    rows = [line.split("\t") for line in lines[1:] if line]
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def _ratings(columns: dict[str, list[str]]) -> pa.Table:
    table = pa.table({
        "user_id": np.array(columns["user_id"], dtype=np.int64),
        "item_id": np.array(columns["item_id"], dtype=np.int64),
        "rating": np.array(columns["rating"], dtype=np.float32),
        "timestamp": np.array(columns["timestamp"], dtype=np.int64),
    })
    return table.sort_by([("timestamp", "ascending"), ("user_id", "ascending"), ("item_id", "ascending")])


def _users(columns: dict[str, list[str]]) -> pa.Table:
    words = {name: [v.encode() for v in columns[name]] for name in ("gender", "occupation", "zip_code")}
    return pa.table({
        "user_id": np.array(columns["user_id"], dtype=np.int64),
        "age": np.array(columns["age"], dtype=np.float32),
        **{name: pa.array(values, pa.binary()) for name, values in words.items()},
    }).sort_by("user_id")


def _items(columns: dict[str, list[str]]) -> pa.Table:
    years = [float(y) if y.isdigit() else None for y in columns["release_year"]]
    genres = [[g.encode() for g in text.split() if g != "unknown"] for text in columns["class"]]
    return pa.table({
        "item_id": np.array(columns["item_id"], dtype=np.int64),
        "title": pa.array(columns["movie_title"], pa.string()),
        "year": pa.array(years, pa.float32()),
        "genres": pa.array(genres, pa.list_(pa.binary())),
    }).sort_by("item_id")
