"""Serves packages in a process of its own, which must never import tensorflow."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

CODE = """
import json, sys
import numpy as np
from lambda_svc import config
from lambda_svc.client import RankingClient
from lambda_svc.server import RankingServer, load_plans
settings = config.load(sys.argv[1])
with RankingServer(settings, load_plans(settings)) as server, RankingClient(f"127.0.0.1:{server.port}") as client:
    arrays = dict(np.load(sys.argv[2]))
    sides = {side: {name[len(side) + 1:]: value if side == "item" else value[0] for name, value in arrays.items()
                    if name.startswith(f"{side}:")} for side in ("user", "context", "item")}
    n = len(next(iter(sides["item"].values())))
    answer = client.rank("rank", user_id=1, candidate_ids=list(range(n)), timeout_s=60, user=sides["user"],
                         context=sides["context"], items=sides["item"])
assert "tensorflow" not in sys.modules
order = np.argsort(answer.candidate_ids)
heads = {head: scores[order].tolist() for head, scores in answer.heads.items()}
print(json.dumps({"heads": heads, "variant": answer.message.plan.variant, "engine": answer.message.plan.engine,
                  "bytes_copied": answer.message.bytes_copied}))
"""


def serve_once(folder: Path, repository: Path, model: str, formula: str, arrays, saved=None, **engine) -> dict:
    """Starts a server on `model` and ranks once with the features `{"side:name": array}`, one row of users'; `saved`
    says how a SavedModel is served. Returns heads in the order of the candidates, variant, engine and bytes copied."""
    settings = {"repository": str(repository), "work_dir": str(folder / "run"), "server": {"listen": "127.0.0.1:0"},
                "engine": engine, "saved_models": {} if saved is None else {model: saved},
                "scenarios": {"rank": {"model": model, "formula": formula, "slice_rows": 64}}}
    (folder / "service.yaml").write_text(json.dumps(settings))
    np.savez(folder / "request.npz", **arrays)
    done = subprocess.run([sys.executable, "-c", CODE, folder / "service.yaml", folder / "request.npz"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
