"""A step of `make prove`: trains the demo's model with several seeds and prints test AUCs beside the baselines.

Fails unless the median is at least AUC_MIN and above every baseline.
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import asdict

__all__ = ["main"]

AUC_MIN = 0.74


def main(seeds: list[int]) -> int:
    """Trains once per seed; prints one JSON line per seed and a summary. Returns the exit code."""
    from models.movielens import load
    from models.train import evaluate, train

    aucs, best_baseline = [], 0.0
    dataset = load("movielens")
    for seed in seeds:
        evaluation = evaluate(train(dataset, seed=seed))
        aucs.append(evaluation.auc)
        best_baseline = max(best_baseline, *evaluation.baselines.values())
        print(json.dumps({"seed": seed, **asdict(evaluation)}), flush=True)
    middle = statistics.median(aucs)
    print(f"liked AUC over seeds {seeds}: min {min(aucs):.4f}, median {middle:.4f}, max {max(aucs):.4f}")
    return 0 if middle >= max(AUC_MIN, best_baseline) else 1


if __name__ == "__main__":
    sys.exit(main([int(seed) for seed in sys.argv[1:]]))
