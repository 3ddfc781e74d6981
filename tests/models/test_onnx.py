"""Packages that also hold ONNX models, served by ONNX Runtime; and what ONNX has no word for."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from models import zoo
from models.errors import GraphError
from models.export import export
from models.onnx import convert
from models.package import read_manifest

SERVE = """
import sys
from lambda_svc import config
from lambda_svc.server import load_plans
for name, plan in load_plans(config.load(sys.argv[1])).items():
    print(name, plan.wire.engine.split()[0], plan.wire.variant)
assert "tensorflow" not in sys.modules
"""


def frozen(function, shape) -> bytes:
    graph = tf.Graph()
    with graph.as_default():
        tf.identity(function(tf.compat.v1.placeholder(tf.float32, shape, name="x")), name="y")
    return graph.as_graph_def()


@pytest.mark.parametrize("variant", ["plain", "best"])
def test_onnx_runtime_serves_the_package_within_its_golden_tolerance(tmp_path, variant):
    folder = export(zoo.get("din", "small").servable(seed=3), tmp_path / "repository", 1, onnx=True)
    files = {file for file in read_manifest(folder).files if file.startswith("graph/")}
    assert files == {f"graph/{name}{suffix}" for name in ("item", "user_once/item", "user_once/user")
                     for suffix in (".pb", ".onnx")}
    head = read_manifest(folder).graph.outputs[0].head
    config = {"repository": str(tmp_path / "repository"), "work_dir": str(tmp_path / "run"),
              "engine": {"kind": "onnxruntime", "variant": variant},
              "scenarios": {"rank": {"model": "din_small", "formula": head}}}
    (tmp_path / "service.yaml").write_text(json.dumps(config))
    done = subprocess.run([sys.executable, "-c", SERVE, tmp_path / "service.yaml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["rank", "onnxruntime", "plain" if variant == "plain" else "user_once"]


def test_log1p_is_written_in_words_that_onnx_has():
    import onnxruntime

    model = convert(frozen(lambda x: tf.math.log1p(tf.math.log1p(x)), [None]), ["x:0"], ["y:0"])
    x = np.array([0.0, 1e-9, 1e-3, 0.5, 7.0, 1e6, -0.5, -1.0, -3.0, np.inf], np.float32)
    got = onnxruntime.InferenceSession(model).run(None, {"x:0": x})[0]
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got, np.log1p(np.log1p(x.astype(np.float64))), rtol=2e-6, atol=1.3e-7)


def test_an_operation_that_onnx_lacks_is_named():
    with pytest.raises(GraphError, match="the target lacks Betainc"):
        convert(frozen(lambda x: tf.math.betainc(x, x, x), [None]), ["x:0"], ["y:0"])
