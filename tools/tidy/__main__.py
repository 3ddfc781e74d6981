"""Runs every rule over the source tree that holds this file, or over the folder given. With --write-protos it first
writes what the .proto files generate."""

import sys
import time
from pathlib import Path

from tools.tidy import Tree, check, proto

if __name__ == "__main__":
    start = time.perf_counter()
    folders = [argument for argument in sys.argv[1:] if argument != "--write-protos"]
    tree = Tree(Path(folders[0]) if folders else Path(__file__).resolve().parents[2])
    if "--write-protos" in sys.argv:
        proto.write(tree)
    problems = check(tree)
    for problem in problems:
        print(problem)
    verdict = f"{len(problems)} problem(s)" if problems else "tidy"
    print(f"tidy: {len(tree.files)} files, {verdict}, {time.perf_counter() - start:.1f} s")
    sys.exit(1 if problems else 0)
