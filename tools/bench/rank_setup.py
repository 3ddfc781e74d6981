"""What `bench rank` measures, made in a process of its own because making it imports tensorflow.

usage: python -m tools.bench.rank_setup FOLDER quick|full

Leaves in FOLDER: repository/, features/, service.yaml and one_thread.yaml (the demo's model and config), saved_model/
(the same model uncut, as the framework saves it) and stock/N.npz (client-tiled inputs of that model for N candidates).
Weights do not change the work per request, so `quick` trains on a tenth of the rows.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from feature_store import Column, Extractor, FeatureCache

USER = 0  # row of the user table that every request is about
COUNTS = (1, 256, 1682)
CONTEXT = {"hour": 20.0, "weekday": 5.0}
SCENARIO = "explore_rank"
CONFIG = """\
repository: repository
work_dir: run{threads}
server: {{listen: "127.0.0.1:0"}}
engine: {{intra_op_threads: {threads}}}
user_features: {{path: features/users.parquet}}
item_features: {{path: features/items.parquet}}
scenarios:
  {scenario}: {{model: {model}, formula: liked, candidates_max: 5000, deadline_ms: 60000}}
"""


def gather_sides(schema, slots, folder: Path, user_id: int, item_ids: np.ndarray):
    """Slot values of one user (1 row), the context (1 row) and items (n rows), by side."""
    context = {name: Column.of(schema.feature(name), np.float32([value])) for name, value in CONTEXT.items()}
    caches = {side: FeatureCache.from_parquet(schema, side, folder / f"features/{side}s.parquet")
              for side in ("user", "item")}
    return {
        "user": Extractor(schema, slots, "user", caches["user"]).gather(np.array([user_id])),
        "context": Extractor(schema, slots, "context").gather(None, context),
        "item": Extractor(schema, slots, "item", caches["item"]).gather(item_ids),
    }


def main(folder: Path, quick: bool) -> None:
    """Fills `folder`."""
    from models.export import export
    from models.features import features_for
    from models.inputs import SCHEMA, SLOTS
    from models.movielens import load
    from models.push import push
    from models.stock import stock_inputs
    from models.train import TrainConfig, train
    from models.trained import export_saved_model, servable

    dataset = load()
    trained = train(dataset, TrainConfig(epochs=1, test_share=0.9 if quick else 0.2))
    features = features_for(dataset)
    features.write(folder / "features")
    (folder / "repository").mkdir()
    push(export(servable(trained), folder / "exported", version=1), folder / "repository")
    for name, threads in (("service.yaml", 0), ("one_thread.yaml", 1)):
        text = CONFIG.format(scenario=SCENARIO, model=read_model(folder / "repository"), threads=threads)
        (folder / name).write_text(text)
    export_saved_model(trained, folder / "saved_model")
    (folder / "stock").mkdir()
    user_id = features.users["id"][USER].as_py()
    for count in COUNTS:
        items = np.array(list(features.titles), np.int64)[:count]
        sides = gather_sides(SCHEMA, SLOTS, folder, user_id, items)
        np.savez(folder / f"stock/{count}.npz", **stock_inputs(trained.vocabularies, **sides))


def read_model(repository: Path) -> str:
    """The name of the one model in a repository."""
    [name] = [path.name for path in repository.iterdir() if not path.name.startswith(".")]
    return name


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "quick")
