"""Runs every rule over the source tree that holds this file, or over the folder given."""

import sys
import time
from pathlib import Path

from tools.tidy import Tree, check

if __name__ == "__main__":
    start = time.perf_counter()
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    tree = Tree(root)
    problems = check(tree)
    for problem in problems:
        print(problem)
    verdict = f"{len(problems)} problem(s)" if problems else "tidy"
    print(f"tidy: {len(tree.files)} files, {verdict}, {time.perf_counter() - start:.1f} s")
    sys.exit(1 if problems else 0)
