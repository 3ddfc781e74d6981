"""Equal models give equal bytes, in three fresh processes, one of which built another model first."""

import hashlib
import os
import subprocess
import sys

BUILD = """
import hashlib, sys
import keras, tensorflow as tf
from models.zoo import dense
from models.passes.chain import apply
if sys.argv[2] == "other":
    dense("cross", "small")
    keras.layers.Dense(3)(tf.zeros([1, 2]))
graph = apply(dense(sys.argv[1], "small")[0])
for name, one in graph.graphs().items():
    print(name, hashlib.sha256(one.SerializeToString(deterministic=True)).hexdigest())
print(graph.inputs, graph.heads, graph.shared)
"""


def digest(model: str, first: str, hash_seed: str) -> str:
    done = subprocess.run([sys.executable, "-c", BUILD, model, first], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONHASHSEED": hash_seed, "TF_CPP_MIN_LOG_LEVEL": "3"})
    return hashlib.sha256(done.stdout.encode()).hexdigest()


def test_three_processes():
    """The model with all of attention, experts, gates and towers."""
    found = {digest("din_long", "alone", "1"), digest("din_long", "alone", "2"), digest("din_long", "other", "3")}
    assert len(found) == 1
