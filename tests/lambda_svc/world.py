"""A small world for service tests: features, tables, a graph, and a plain numpy reference of the whole request path.

The reference starts from raw features and ends at head probabilities in float64, so a served score is checked against
code that shares nothing with the native path but the string hash.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from feature_store import Clip, Feature, Hash64, Log1p, Schema, Slot
from feature_store.reference import xxh64
from models.package import Golden, Graph, GraphInput, GraphOutput, Source, TableFile, write_package
from paramserver import Table

def raw_id(text: bytes) -> int:
    """The id of a string after Hash64, as int64."""
    hashed = xxh64(text)
    return hashed - 2**64 if hashed >= 2**63 else hashed


MODEL, HISTORY = "tiny", 8
OCCUPATIONS = [b"baker", b"pilot", b"\xff\xfenot utf-8"]
GENRES = [b"drama", b"comedy", b"noir", b"western"]
SCHEMA = Schema((
    Feature("age", "user", "f32", default=30.0),
    Feature("occupation", "user", "bytes"),
    Feature("history", "user", "i64", "sequence", HISTORY),
    Feature("hour", "context", "i64", default=12),
    Feature("item", "item", "i64", "key"),
    Feature("genres", "item", "bytes", "multi", 6),
    Feature("price", "item", "f32", "dense", 1, default=(1.0,)),
    Feature("vector", "item", "f32", "dense", 3),
))
SLOTS = (
    Slot("history", "history"),
    Slot("occupation", "occupation", (Hash64(),)),
    Slot("age", "age", (Clip(0, 120), Log1p())),
    Slot("hour", "hour"),
    Slot("item", "item"),
    Slot("genres", "genres", (Hash64(),)),
    Slot("price", "price", (Log1p(),)),
    Slot("vector", "vector"),
)


def _input(name: str, side: str, shape: tuple[int, ...], kind: str, slot: str, dtype="f32", table=None, mode=None):
    source = Source(kind=kind, slot=slot, table=table, mode=mode)
    return GraphInput(name=f"{name}:0", dtype=dtype, shape=shape, side=side, source=source)


GRAPH = Graph(
    file="graph/item.pb",
    inputs=(
        _input("history_rows", "user", (1, HISTORY, 4), "rows", "history", table="item"),
        _input("history_length", "user", (1,), "lengths", "history", "i32"),
        _input("occupation_rows", "user", (1, 4), "rows", "occupation", table="occupation"),
        _input("age", "user", (1,), "values", "age"),
        _input("hour", "context", (1,), "values", "hour", "i64"),
        _input("item_rows", "item", (-1, 4), "rows", "item", table="item"),
        _input("genre_rows", "item", (-1, 4), "pooled", "genres", table="genre", mode="mean"),
        _input("price", "item", (-1, 1), "values", "price"),
        _input("vector", "item", (-1, 3), "values", "vector"),
    ),
    outputs=(GraphOutput(head="liked", name="liked:0"), GraphOutput(head="engaged", name="engaged:0")),
)


@dataclass
class World:
    """Seeded users, items, tables and weights. `items` ids are spread over all 64 bits, 0 and -1 among them."""

    seed: int = 7
    items_n: int = 200
    users: dict[int, dict] = field(default_factory=dict)
    items: dict[int, dict] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        item_ids = [0, -1, -(2**63), 2**63 - 1, *(int(i) for i in rng.integers(-(2**63), 2**63 - 1, self.items_n - 4))]
        for item_id in item_ids:
            self.items[item_id] = {
                "item": item_id,
                "genres": [GENRES[g] for g in rng.choice(4, rng.integers(0, 4), replace=False)],
                "price": np.float32([rng.gamma(2.0)]),
                "vector": rng.normal(size=3).astype(np.float32),
            }
        for user_id in range(20):
            history = [int(i) for i in rng.choice(item_ids, rng.integers(0, HISTORY + 1))]
            self.users[user_id] = {
                "age": float(rng.integers(10, 90)), "occupation": OCCUPATIONS[user_id % 3], "history": history
            }
        self.tables = {
            "item": self._table(rng, item_ids),
            "genre": self._table(rng, [raw_id(g) for g in GENRES]),
            "occupation": self._table(rng, [raw_id(o) for o in OCCUPATIONS[:2]]),
        }
        self.weights = {
            "w1": rng.normal(size=(22, 16)).astype(np.float32) / 4, "b1": rng.normal(size=16).astype(np.float32) / 4,
            "w2": rng.normal(size=(16, 2)).astype(np.float32) / 2, "b2": rng.normal(size=2).astype(np.float32) / 2,
        }

    @staticmethod
    def _table(rng, ids) -> dict:
        rows = rng.normal(size=(len(ids), 4)).astype(np.float32)
        return {"rows": dict(zip(ids, rows)), "default": rng.normal(size=4).astype(np.float32)}

    def row(self, table: str, row_id: int) -> np.ndarray:
        """float64 [4]: the table's row, or its default row."""
        return np.float64(self.tables[table]["rows"].get(row_id, self.tables[table]["default"]))

    def user(self, user_id: int) -> dict:
        """Raw features of a user, the schema's defaults for an unknown one."""
        return self.users.get(user_id, {"age": 30.0, "occupation": b"", "history": []})

    def item(self, item_id: int) -> dict:
        """Raw features of an item, the schema's defaults for an unknown one."""
        unknown = {"item": item_id, "genres": [], "price": np.float32([1.0]), "vector": np.zeros(3, np.float32)}
        return self.items.get(item_id, unknown)

    def score(self, user: dict, hour: int, items: list[dict]) -> dict[str, np.ndarray]:
        """The reference: head probabilities float64 [n]."""
        history = [self.row("item", i) for i in user["history"]]
        mean = np.mean(history, 0) if history else np.zeros(4)
        occupation = self.row("occupation", raw_id(user["occupation"]))
        age = np.log1p(np.clip(np.float32(user["age"]), 0, 120), dtype=np.float64)
        user_part = np.concatenate([mean, occupation, [age], [hour / 24]])
        rows = []
        for item in items:
            genres = [self.row("genre", raw_id(g)) for g in item["genres"]]
            pooled = np.mean(genres, 0) if genres else np.zeros(4)
            price = np.log1p(np.float64(item["price"]))
            rows.append(np.concatenate([user_part, self.row("item", item["item"]), pooled, price, item["vector"]]))
        w = {name: value.astype(np.float64) for name, value in self.weights.items()}
        both = np.array(rows).reshape(len(items), 22)
        logits = np.maximum(both @ w["w1"] + w["b1"], 0) @ w["w2"] + w["b2"]
        scores = 1 / (1 + np.exp(-logits))
        return {"liked": scores[:, 0], "engaged": scores[:, 1]}

    def score_ids(self, user_id: int, item_ids, hour: int = 12) -> dict[str, np.ndarray]:
        """The reference for stored features."""
        return self.score(self.user(user_id), hour, [self.item(int(i)) for i in item_ids])

    def write_features(self, folder: Path) -> None:
        """users.parquet and items.parquet."""
        names = ("age", "occupation", "history")
        users = {"id": list(self.users), **{k: [u[k] for u in self.users.values()] for k in names}}
        types = {"id": pa.int64(), "age": pa.float32(), "occupation": pa.binary(), "history": pa.list_(pa.int64())}
        pq.write_table(pa.table({k: pa.array(v, types[k]) for k, v in users.items()}), folder / "users.parquet")
        items = list(self.items.values())
        columns = {"id": pa.array(list(self.items), pa.int64()), **item_arrays(items)}
        pq.write_table(pa.table(columns), folder / "items.parquet")

    def write_package(self, repository: Path, version: int = 1) -> Path:
        """A version of the package in `repository`, golden rows from the reference."""
        def fill(folder: Path) -> None:
            (folder / "graph").mkdir()
            (folder / "graph/item.pb").write_bytes(graph_def(self.weights, repository))
            (folder / "tables").mkdir()
            for name, table in self.tables.items():
                native = Table(name, 4, default_row=table["default"])
                native.upsert(np.array(list(table["rows"]), np.int64), np.array(list(table["rows"].values())))
                native.save(folder / f"tables/{name}.parquet")
            self._write_golden(folder / "golden.arrow")

        tables = [
            TableFile(name=name, file=f"tables/{name}.parquet", dim=4, dtype="f32", rows=len(table["rows"]))
            for name, table in self.tables.items()
        ]
        golden = Golden(file="golden.arrow", rows=40, tolerance={"liked": 1e-6, "engaged": 1e-6})
        return write_package(
            repository, model=MODEL, version=version, schema=SCHEMA, slots=SLOTS, graph=GRAPH, tables=tables,
            golden=golden, fill=fill,
        )

    def _write_golden(self, path: Path) -> None:
        groups = []
        for group, user_id in enumerate([0, 1, 2, 999]):
            ids = [*list(self.items)[group * 9 : group * 9 + 9], 12345]
            user, items = self.user(user_id), [{**self.item(i), "item": i} for i in ids]
            scores = self.score(user, 5 + group, items)
            columns = {"group": pa.array([group] * 10, pa.int32())}
            columns |= {
                "user:age": pa.array([user["age"]] * 10, pa.float32()),
                "user:occupation": pa.array([user["occupation"]] * 10, pa.binary()),
                "user:history": pa.array([user["history"]] * 10, pa.list_(pa.int64())),
                "context:hour": pa.array([5 + group] * 10, pa.int64()),
            }
            columns |= {f"item:{name}": array for name, array in item_arrays(items).items()}
            columns |= {f"score:{head}": pa.array(s.astype(np.float32)) for head, s in scores.items()}
            groups.append(pa.table(columns))
        table = pa.concat_tables(groups)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)


def item_arrays(items: list[dict]) -> dict[str, pa.Array]:
    """Raw item features as Arrow arrays by feature name."""
    types = {
        "item": pa.int64(), "genres": pa.list_(pa.binary()), "price": pa.list_(pa.float32(), 1),
        "vector": pa.list_(pa.float32(), 3),
    }
    return {name: pa.array([item[name] for item in items], kind) for name, kind in types.items()}


_graphs: dict[bytes, bytes] = {}  # by weights: tensorflow takes seconds to start


def graph_def(weights: dict[str, np.ndarray], folder: Path) -> bytes:
    """The frozen graph, made by tensorflow in a process of its own: this process must never import it."""
    key = b"".join(weights[name].tobytes() for name in sorted(weights))
    if key not in _graphs:
        weights_file, out = folder / ".weights.npz", folder / ".item.pb"
        np.savez(weights_file, **weights)
        script = Path(__file__).with_name("world_graph.py")
        done = subprocess.run([sys.executable, script, weights_file, out], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        _graphs[key] = out.read_bytes()
    return _graphs[key]


def config_text(folder: Path, **scenario) -> str:
    """A service config over the world's files in `folder`, with one scenario `rank`."""
    defaults = {"model": MODEL, "formula": "liked + 0.5 * engaged", "slice_rows": 64, "candidates_max": 1000}
    settings = {**defaults, **scenario}
    lines = "".join(f"    {key}: {value}\n" for key, value in settings.items())
    return (
        "repository: repository\nwork_dir: run\narena_bytes_max: 67108864\n"
        "server: {listen: '127.0.0.1:0', rpc_threads: 8, message_bytes_max: 1048576}\n"
        "user_features: {path: users.parquet}\nitem_features: {path: items.parquet}\n"
        f"scenarios:\n  rank:\n{lines}"
    )
