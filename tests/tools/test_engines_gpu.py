"""`bench gpu` where there is none, and the same placement on logical devices of the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MEASURE = """
import json, sys
from tools.engines.gpu import measure
print(json.dumps([[f.name, f.value, f.missing] for f in measure(True, sys.argv[1])]))
"""


def measured(device: str) -> dict[str, tuple[float | None, str | None]]:
    """{figure: (value, why it is missing)}, in a process of its own: sessions size TensorFlow's devices once."""
    done = subprocess.run([sys.executable, "-c", MEASURE, device], capture_output=True, text=True, check=True)
    return {name: (value, missing) for name, value, missing in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="a GPU is here: this test is of hosts without")
def test_without_a_gpu_every_engine_is_missing_with_its_own_words():
    found = measured("gpu")
    absent = {name: missing for name, (value, missing) in found.items() if value is None}
    assert len(absent) == 6 and set(found) - set(absent) == {"gpu.cpu_ms/model=din,n=500,engine=openvino"}
    assert all("GPU:0" in text or "ExecutionProvider" in text for text in absent.values())


def test_the_same_placement_on_the_cpu_keeps_products_on_their_lane_and_scores_equal():
    found = {name: value for name, (value, _) in measured("cpu").items()}
    for lanes in (1, 4):
        key = f"model=din,n=500,engine=tensorflow,lanes={lanes}"
        assert found[f"gpu.products_elsewhere/{key}"] == 0
        assert found[f"gpu.nodes_on_device/{key}"] >= 30 * lanes
        assert found[f"gpu.score_difference/{key}"] <= 1e-6
        assert found[f"gpu.requests_s/{key}"] > 0
