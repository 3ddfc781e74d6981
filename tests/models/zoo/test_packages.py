"""Zoo models as packages: the frozen graph scores as the framework does, bytes repeat, and the service takes them."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lambda_svc.client import RankingClient
from models import zoo
from models.package import read_manifest
from models.zoo.requests import draw_request

from ..served_package import ServedPackage

CANDIDATES = 100

DIGESTS = """
import sys, tempfile
from models import zoo
from models.export import export
from models.package import read_manifest
with tempfile.TemporaryDirectory() as folder:
    for name in reversed(zoo.NAMES):
        zoo.dense(zoo.NAMES[0], "small", seed=9)
        path = export(zoo.get(name, "small").servable(seed=5), folder, 1)
        print("digest", name, sorted((f, e.sha256) for f, e in read_manifest(path).files.items()))
"""

SERVE = """
import sys
from lambda_svc.config import load
from lambda_svc.server import RankingServer, load_plans
config = load(sys.argv[1])
with RankingServer(config, load_plans(config)) as server:
    print("port", server.port, "tensorflow" in sys.modules, flush=True)
    sys.stdin.read()
"""


def environment():
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3]), "PYTHONHASHSEED": "77"}


@pytest.mark.parametrize("name", zoo.NAMES)
def test_the_frozen_graph_scores_as_the_framework_does(zoo_repository, name):
    served = ServedPackage(zoo_repository / f"{name}_small" / "1")
    entry = zoo.get(name, "small")
    assert served.golden_error() <= 1e-6
    assert {t.name: (t.rows + 1, t.dim) for t in served.manifest.tables} == {
        f.source: (f.rows, f.dim) for f in entry.fields if f.looked_up}
    for output in served.manifest.graph.outputs:
        scores = served.golden[f"score:{output.head}"].to_numpy()
        assert len(np.unique(scores)) > 80 and 0.02 < scores.std() < 0.4, "scores must differ to prove anything"
    assert {i.side for i in served.manifest.graph.inputs} >= {"user", "item"}
    assert all(i.shape[0] == (-1 if i.side == "item" else 1) for i in served.manifest.graph.inputs)
    assert served.manifest.notes["weights"] == "random"


def test_packages_repeat_in_another_process_and_order(zoo_repository):
    run = subprocess.run([sys.executable, "-c", DIGESTS], capture_output=True, text=True, env=environment())
    assert run.returncode == 0, run.stderr
    theirs = {line.split()[1]: line for line in run.stdout.splitlines() if line.startswith("digest")}
    for name in zoo.NAMES:
        manifest = read_manifest(zoo_repository / f"{name}_small" / "1")
        ours = f"digest {name} {sorted((f, e.sha256) for f, e in manifest.files.items())}"
        assert theirs[name] == ours


def test_the_service_serves_them_all(zoo_repository, tmp_path):
    entries = {name: zoo.get(name, "small") for name in zoo.NAMES}
    heads = {name: [o.head for o in read_manifest(zoo_repository / e.name / "1").graph.outputs]
             for name, e in entries.items()}
    scenarios = "".join(f"  {e.definition.scenario}: {{model: {e.name}, formula: '{' * '.join(heads[name])}'}}\n"
                        for name, e in entries.items())
    config = tmp_path / "service.yaml"
    config.write_text(f"repository: {zoo_repository}\nserver: {{listen: '127.0.0.1:0'}}\nscenarios:\n{scenarios}")
    server = subprocess.Popen([sys.executable, "-c", SERVE, str(config)], stdin=subprocess.PIPE, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    try:
        line = server.stdout.readline().split()
        assert line[:1] == ["port"], server.stderr.read()
        assert line[2] == "False", "the service imported tensorflow"
        with RankingClient(f"127.0.0.1:{line[1]}") as client:
            for name, entry in entries.items():
                request = draw_request(entry.fields, CANDIDATES, np.random.default_rng(3))
                answer = client.rank(entry.definition.scenario, 1, request.candidate_ids, user=request.user,
                                     context=request.context, items=request.item, timeout_s=60)
                product = np.prod([answer.heads[head].astype(np.float64) for head in heads[name]], axis=0)
                np.testing.assert_allclose(answer.rank_scores, product, rtol=1e-6)
                key = next(field.source for field in entry.fields if field.kind == "key")
                asked, answered = answer.coverage[f"table/{key}"]
                assert asked >= CANDIDATES and 0.9 < answered / asked < 1.0, "a few ids are unknown"
                assert answer.message.bytes_copied == 0 and len(answer.candidate_ids) == CANDIDATES
    finally:
        server.stdin.close()
        server.wait(30)
        server.stdout.close()
        server.stderr.close()
