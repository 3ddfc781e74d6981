"""The package holds what the training framework computes: graph, tables, golden rows, and the uncut path beside it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from feature_store import Column, Extractor, FeatureCache
from models.errors import ConfigError
from models.export import build, export, serving_function
from models.passes import captured_variables, cut, freeze
from models.features import TestRequest
from models.movielens_golden import GOLDEN_ROWS_MIN, UNKNOWN_IDS, UNKNOWN_OCCUPATION
from models.inputs import SCHEMA, SLOTS
from models.package import PackageExistsError
from models.stock import load_vocabularies, stock_inputs
from models.tables import DTYPE_KEY
from models.train import TrainConfig, evaluate, train
from models.trained import export_saved_model, servable
from models.zoo import DinMmoe, DinMmoeConfig

from .graph_session import run_graph
from .served_package import ServedPackage

HEADS = ("liked", "engaged")


@pytest.fixture(scope="session")
def served(tiny_package):
    return ServedPackage(tiny_package)


@pytest.fixture(scope="session")
def golden(served):
    return served.golden


def test_golden_scores_come_back(served, golden):
    assert len(golden) == served.manifest.golden.rows >= GOLDEN_ROWS_MIN
    assert served.golden_error() <= min(served.manifest.golden.tolerance.values()) == 1e-6


def test_golden_rows_hold_what_real_data_lacks(golden, tiny_trained):
    ids = set(golden["item:movie_id"].to_pylist())
    assert set(UNKNOWN_IDS) <= ids
    genres, histories = golden["item:genres"].to_pylist(), golden["user:history_item"].to_pylist()
    assert list(UNKNOWN_IDS) in histories and 50 in map(len, histories)
    assert UNKNOWN_OCCUPATION in golden["user:occupation"].to_pylist()
    assert [] in genres and any(b"Telenovela" in g for g in genres) and [] in histories
    assert len(set(golden["score:liked"].to_pylist())) > 100


def test_the_graph_holds_no_table_and_no_variable(served, tiny_trained):
    sizes = {table.name: (table.rows + 1, table.dim) for table in served.manifest.tables}
    assert set(sizes) == {"item", "genre", "occupation", "gender_occupation"}
    shapes = [tuple(tf.make_ndarray(n.attr["value"].tensor).shape) for n in served.graph_def.node if n.op == "Const"]
    assert not set(shapes) & set(sizes.values())
    assert {n.op for n in served.graph_def.node}.isdisjoint({"ReadVariableOp", "VarHandleOp", "NoOp", "ResourceGather"})
    placeholders = {f"{n.name}:0" for n in served.graph_def.node if n.op == "Placeholder"}
    assert placeholders == {i.name for i in served.manifest.graph.inputs}


def test_every_attribute_is_one_of_its_op(served):
    for node in served.graph_def.node:
        known = {attr.name for attr in op_def_registry.get(node.op).attr}
        assert set(node.attr) <= known, (node.name, node.op)


def test_tables_hold_trained_rows_by_raw_id(served, tiny_package, tiny_trained):
    known, default = served.tables["item"]
    weights = tiny_trained.model.item.embeddings.numpy()
    vocabulary = tiny_trained.vocabularies["item"]
    assert sorted(known) == vocabulary.ids.tolist()
    np.testing.assert_array_equal(np.array([known[i] for i in vocabulary.ids]), weights[:-1])
    np.testing.assert_array_equal(default, weights[-1])
    schema = pq.read_schema(tiny_package / "tables/item.parquet")
    assert schema.metadata[DTYPE_KEY] == b"f32" and str(schema.field("row").type).startswith("fixed_size_list<")


def test_notes_say_what_it_was_trained_on(served):
    assert served.manifest.notes["purpose"] == "test" and "generated" in served.manifest.notes["dataset"]


def test_equal_exports_give_equal_bytes_and_versions_stay(tiny_trained, tiny_package, tmp_path):
    DinMmoe({"item": 3, "genre": 3, "occupation": 3, "gender_occupation": 3}, DinMmoeConfig())
    again = export(servable(tiny_trained), tmp_path, 1, notes={"purpose": "test"})
    for path in [p for p in tiny_package.rglob("*") if p.is_file()]:
        assert path.read_bytes() == (again / path.relative_to(tiny_package)).read_bytes(), path.name
    with pytest.raises(PackageExistsError):
        export(servable(tiny_trained), tmp_path, 1)


GRAPH_OF_A_SEED = """
import hashlib
import keras, numpy as np
from models.export import Servable, build
from models.tensors import tensors
from models.zoo import DinMmoe, DinMmoeConfig
from models.zoo.din_mmoe import HEADS
from models.inputs import INTERFACE

def digest():
    keras.utils.set_random_seed(7)
    tables = {"item": 30, "genre": 5, "occupation": 6, "gender_occupation": 7}
    model = DinMmoe(tables, DinMmoeConfig(attention_units=(4,), experts=2, expert_units=(4,), tower_units=(4,)))
    dtypes = {"f32": np.float32, "i64": np.int64, "i32": np.int32}
    shapes = {e: [1 if d is None else d for d in e.shape] for e in INTERFACE.inputs}
    model(tensors({e.name: np.zeros(shape, dtypes[e.dtype]) for e, shape in shapes.items()}))
    graph = build(Servable("m", INTERFACE, HEADS, model.serve, {}, None)).graph_def
    return hashlib.sha256(graph.SerializeToString(deterministic=True)).hexdigest()
print(digest())
"""


def test_graph_bytes_do_not_depend_on_the_process(tiny_trained, capsys):
    exec(compile(GRAPH_OF_A_SEED, "here", "exec"), {})
    here = capsys.readouterr().out.split()[-1]
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "PYTHONHASHSEED": "99"}
    fresh = subprocess.run([sys.executable, "-c", GRAPH_OF_A_SEED], capture_output=True, text=True, check=True,
                           env=environment)
    assert fresh.stdout.split()[-1] == here


def test_uncut_and_cut_agree_exactly(tiny_trained):
    function = serving_function(servable(tiny_trained))
    outputs = [f"{head}:0" for head in HEADS]
    variables, graph_def = captured_variables(function), function.graph.as_graph_def()
    whole = freeze(graph_def, variables, outputs)
    artifacts = build(servable(tiny_trained))
    batch = tiny_trained.examples.batch(np.full(8, tiny_trained.split.test[-1]))
    items = tiny_trained.examples.batch(tiny_trained.split.test[:8])
    feeds = {n: (items[n] if n in ("item", "genres", "genres_segments", "year") else v[:1]) for n, v in batch.items()}
    expected = run_graph(whole, outputs, {f"{name}:0": value for name, value in feeds.items()})
    cut_feeds = {f"{n.name}:0": feeds[n.name] for n in artifacts.graph_def.node
                 if n.op == "Placeholder" and n.name in feeds}
    for c in artifacts.cuts:
        weights = variables[c.variable].read(0, variables[c.variable].shape[0])
        rows = weights[feeds[c.ids]]
        if c.mode == "mean":
            rows = tf.sparse.segment_mean(weights, feeds["genres"], feeds["genres_segments"], num_segments=8).numpy()
        cut_feeds[f"{c.input}:0"] = rows
    for one, two in zip(expected, run_graph(artifacts.graph_def, outputs, cut_feeds), strict=True):
        np.testing.assert_array_equal(one, two)
    assert cut(graph_def, variables, outputs, 10**9).cuts == ()


def test_the_stock_path_gives_the_same_scores(tiny_trained, served, tmp_path):
    directory = export_saved_model(tiny_trained, tmp_path / "saved")
    vocabularies = load_vocabularies(directory)
    request: TestRequest = max(tiny_trained.rows.requests(tiny_trained.split.test), key=lambda r: len(r.item_ids))
    rows = tiny_trained.rows
    user_cache = FeatureCache.from_arrow(SCHEMA, "user", rows.users)
    item_cache = FeatureCache.from_arrow(SCHEMA, "item", rows.items)
    columns = {name: Column.of(SCHEMA.feature(name), [value]) for name, value in request.user.items()}
    user = Extractor(SCHEMA, SLOTS, "user", user_cache).gather(np.array([request.user_id]), columns)
    context = {name: Column.of(SCHEMA.feature(name), [value]) for name, value in request.context.items()}
    context = Extractor(SCHEMA, SLOTS, "context").gather(None, context)
    item = Extractor(SCHEMA, SLOTS, "item", item_cache).gather(request.item_ids)
    inputs = stock_inputs(vocabularies, user, context, item)
    assert inputs["history_item"].shape == (len(request.item_ids), 50)
    signature = tf.saved_model.load(str(directory)).signatures["serving_default"]
    stock = signature(**{name: tf.constant(value) for name, value in inputs.items()})
    direct = tiny_trained.scores(request.rows)
    for head, got in zip(HEADS, served.scores({**user, **context, **item}), strict=True):
        np.testing.assert_allclose(got, stock[head].numpy(), atol=1e-6, rtol=0)
        np.testing.assert_allclose(got, direct[head], atol=1e-6, rtol=0)


def test_configs_are_checked_whole():
    with pytest.raises(ConfigError, match="epochs is 0.*test_share is 1"):
        TrainConfig(epochs=0, test_share=1)
    with pytest.raises(ConfigError, match=r"item_dim is 0.*expert_units\[1\] is -1.*tower_units is empty.*dropout"):
        DinMmoeConfig(item_dim=0, expert_units=(4, -1), tower_units=(), dropout=1)


def test_training_learns_and_repeats(tiny_dataset, tiny_config, tiny_trained):
    steps = []
    again = train(tiny_dataset, tiny_config, seed=3, progress=steps.append)
    assert [(s.epoch, s.step) for s in steps][-1] == (2, steps[-1].steps) and steps[-1].loss < steps[0].loss
    for one, two in zip(tiny_trained.model.get_weights(), again.model.get_weights(), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)
    figures = evaluate(tiny_trained, bootstrap_rounds=20)
    assert figures.interval[0] <= figures.auc <= figures.interval[1]
    assert figures.auc > 0.55 and set(figures.baselines) == {"count", "item_mean", "logistic"}
