"""Every real model at hand: frozen, and equal to what the framework computes, at the usual rows_min and at 1."""

import csv

import numpy as np
import pytest
import tensorflow as tf

from models.loaders import FrameworkModel, admit, load_frozen, load_saved_model

from .frozen_run import FrozenRun, assert_equal, ops, unread

TAXI, DEEPFM = "tfx__chicago_taxi_estimator_serving", "DeepCTR__deepfm_criteo_raw_serving"
ROWS = 500
STRINGS = {"company", "payment_type"}
FLOATS = {"dropoff_latitude", "dropoff_longitude", "fare", "pickup_latitude", "pickup_longitude", "trip_miles"}
INTEGERS = {"dropoff_census_tract", "dropoff_community_area", "pickup_census_tract", "pickup_community_area",
            "trip_seconds", "trip_start_day", "trip_start_hour", "trip_start_month", "trip_start_timestamp"}


def example(row):
    """One CSV row as a serialised tf.Example; empty cells are left out."""
    features = tf.train.Features()
    for name, value in row.items():
        if value == "":
            continue
        if name in STRINGS:
            features.feature[name].bytes_list.value.append(value.encode())
        elif name in FLOATS:
            features.feature[name].float_list.value.append(float(value))
        elif name in INTEGERS:
            features.feature[name].int64_list.value.append(int(float(value)))
    return tf.train.Example(features=features).SerializeToString()


@pytest.fixture(scope="module")
def taxi_examples(shared_dir):
    with (shared_dir / "data" / "taxi" / "chicago_taxi_data.csv").open() as file:
        rows = [row for row, _ in zip(csv.DictReader(file), range(ROWS), strict=False)]
    return np.array([example(row) for row in rows], object)


def deepfm_inputs(signature, tables, rows=200):
    """Random inputs of the DeepCTR model: ids inside the tables, numbers around 0."""
    rng = np.random.default_rng(5)
    return {key: rng.normal(size=rows).astype(np.float32) if spec.dtype == "float32"
            else rng.integers(0, tables[key], rows).astype(np.int32) for key, spec in signature.inputs.items()}


def deepfm_tables(saved):
    return {name.split("/")[-2]: variable.shape[0] for name, variable in saved.variables.items()
            if name.startswith("linear/linear_model/C")}


@pytest.mark.parametrize("rows_min", [1_000, 1])
def test_taxi(shared_dir, taxi_examples, rows_min):
    path = shared_dir / "models" / TAXI
    loaded, framework = load_saved_model(path), FrameworkModel(path)
    assert loaded.kind == "v1" and framework.loader == "v2"
    assert sorted(loaded.signatures) == ["classification", "predict", "regression", "serving_default"]
    admit(loaded)
    for name, signature in loaded.signatures.items():
        frozen = loaded.freeze(name, rows_min)
        inputs = dict.fromkeys(signature.inputs, taxi_examples)
        assert_equal(FrozenRun(frozen)(inputs), framework.call(name, inputs))
        assert [one.file for one in frozen.initializers] == ["vocab_compute_and_apply_vocabulary_1_vocabulary",
                                                             "vocab_compute_and_apply_vocabulary_vocabulary"]
        assert not frozen.cuts and len(frozen.kept) == (9 if rows_min == 1 else 2)
        assert all("computed inside the graph" in table.reason for table in frozen.kept)
        assert ops(frozen).isdisjoint({"VarHandleOp", "ReadVariableOp", "PlaceholderWithDefault", "RestoreV2", "If",
                                       "StatefulPartitionedCall", "HistogramSummary"})


@pytest.mark.parametrize("rows_min", [1_000, 1])
def test_deepfm(shared_dir, rows_min):
    path = shared_dir / "models" / DEEPFM
    loaded, framework = load_saved_model(path), FrameworkModel(path)
    admit(loaded)
    inputs = deepfm_inputs(loaded.signature("predict"), deepfm_tables(loaded))
    for name in ("predict", "serving_default"):
        frozen = loaded.freeze(name, rows_min)
        assert_equal(FrozenRun(frozen)(inputs), framework.call(name, inputs))
        assert not unread(frozen) and len(frozen.kept) == (52 if rows_min == 1 else 0)
        assert ops(frozen).isdisjoint({"VariableV2", "VarHandleOp", "ReadVariableOp", "L2Loss", "RandomUniform"})
        assert not frozen.random_ops


@pytest.mark.parametrize("rows_min", [1_000, 1])
@pytest.mark.parametrize("name", [DEEPFM, "vespa__blog_recommendation"])
def test_frozen_graphs(shared_dir, name, rows_min):
    path = shared_dir / "models" / "frozen" / f"{name}.pb"
    loaded = load_frozen(path)
    admit(loaded)
    signature = loaded.signature("serving_default")
    if name == DEEPFM:
        inputs = deepfm_inputs(signature, deepfm_tables(load_saved_model(shared_dir / "models" / DEEPFM)))
    else:
        rng = np.random.default_rng(6)
        inputs = {key: rng.normal(size=(64, *spec.shape[1:])).astype(np.float32)
                  for key, spec in signature.inputs.items()}
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(loaded.graph_def, name="")
    expected = tf.compat.v1.Session(graph=graph).run(
        {key: spec.name for key, spec in signature.outputs.items()},
        {spec.name: inputs[key] for key, spec in signature.inputs.items()})
    assert_equal(FrozenRun(loaded.freeze(rows_min=rows_min))(inputs), expected)


def test_equal_models_give_equal_bytes(shared_dir):
    path = shared_dir / "models" / TAXI
    one, two = (load_saved_model(path).freeze("predict").graph_def.SerializeToString(deterministic=True)
                for _ in range(2))
    assert one == two
