"""A package served by each engine: the same golden scores, the plan names who computed them."""

from __future__ import annotations

import pytest

from lambda_svc import config as config_file
from lambda_svc.errors import PackageRejected
from lambda_svc.server import load_plans
from tests.lambda_svc.world import config_text


def plans_of(world_dir, tmp_path, engine: str):
    """The plans of the world's scenario under `engine`, a YAML mapping; golden scores are checked on the way."""
    text = config_text(world_dir).replace("work_dir: run", f"work_dir: {tmp_path / 'run'}")
    path = world_dir / f"config-{tmp_path.name}.yaml"
    path.write_text(f"{text}engine: {engine}\n")
    return load_plans(config_file.load(path))


@pytest.mark.parametrize("kind", ["tensorflow", "openvino"])
def test_each_engine_serves_the_package_and_is_named(world_dir, tmp_path, kind):
    plan = plans_of(world_dir, tmp_path, f"{{kind: {kind}, streams: 2}}")["rank"]
    assert plan.wire.engine.startswith(f"{kind} ") and plan.wire.precision == "f32"


def test_a_package_without_onnx_is_not_for_onnx_runtime(world_dir, tmp_path):
    with pytest.raises(PackageRejected, match=r"has no graph/item\.onnx, which engine onnxruntime loads; export"):
        plans_of(world_dir, tmp_path, "{kind: onnxruntime}")
