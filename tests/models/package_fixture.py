"""A tiny valid package, for tests that need one without training a model."""

from pathlib import Path

from feature_store.schema import Feature, Schema
from feature_store.transforms import Slot
from models.package import Golden, Graph, GraphInput, GraphOutput, Source, TableFile, write_package

SCHEMA = Schema((
    Feature("age", "user", "f32"),
    Feature("item_id", "item", "i64"),
))
SLOTS = (Slot("age", "age"), Slot("item", "item_id"))
GRAPH = Graph(
    file="graph/item.pb",
    inputs=(
        GraphInput(name="age:0", dtype="f32", shape=(1,), side="user", source=Source(kind="values", slot="age")),
        GraphInput(name="item_rows:0", dtype="f32", shape=(-1, 4), side="item",
                   source=Source(kind="rows", slot="item", table="item")),
    ),
    outputs=(GraphOutput(head="liked", name="liked:0"),),
)
TABLES = (TableFile(name="item", file="tables/item.parquet", dim=4, dtype="f32", rows=3),)
GOLDEN = Golden(file="golden.arrow", rows=2, tolerance={"liked": 1e-6})
FILES = {
    "graph/item.pb": b"\x0a\x0f\x0a\x05liked\x12\x06MatMul",  # one node, name and op
    "tables/item.parquet": b"table bytes" * 10,
    "golden.arrow": b"golden",
    "assets/deep/vocabulary.txt": b"a\nb\n",
}


def fill(directory: Path) -> None:
    """Writes FILES below `directory`."""
    for name, content in FILES.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def write(repository: Path, version: int = 1, **changes) -> Path:
    """Publishes the tiny package; keyword arguments replace write_package's."""
    arguments = dict(model="tiny", version=version, schema=SCHEMA, slots=SLOTS, graph=GRAPH, tables=TABLES,
                     golden=GOLDEN, fill=fill, notes={"auc": 0.5})
    return write_package(repository, **{**arguments, **changes})
