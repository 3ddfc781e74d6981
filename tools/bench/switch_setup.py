"""What `bench switch` publishes, made in a process of its own because making it imports tensorflow.

usage: python -m tools.bench.switch_setup FOLDER

Leaves in FOLDER: features/, service.yaml, and made/A and made/B, two versions of the demo's model from other seeds.
Weights do not change the work per request, so both are trained on a tenth of the rows.
"""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["SCENARIO"]

SCENARIO = "explore_rank"
CONFIG = """\
repository: repository
work_dir: run
repository_poll_s: 0.1
server: {{listen: "127.0.0.1:0"}}
user_features: {{path: features/users.parquet}}
item_features: {{path: features/items.parquet}}
scenarios:
  {scenario}: {{model: {model}, formula: liked, candidates_max: 2000, deadline_ms: 60000}}
"""


def main(folder: Path) -> None:
    """Fills `folder`."""
    from models.export import export
    from models.features import features_for
    from models.movielens import load
    from models.train import TrainConfig, train
    from models.trained import servable

    dataset = load()
    features_for(dataset).write(folder / "features")
    for name, seed in (("A", 1), ("B", 2)):
        trained = train(dataset, TrainConfig(epochs=1, test_share=0.9), seed=seed)
        export(servable(trained), folder / "made" / name, version=1)
    [model] = [path.name for path in (folder / "made" / "A").iterdir()]
    (folder / "repository" / model).mkdir(parents=True)
    (folder / "service.yaml").write_text(CONFIG.format(scenario=SCENARIO, model=model))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
