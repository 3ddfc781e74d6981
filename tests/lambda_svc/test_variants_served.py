"""Packages whose graphs were rewritten: the user's part runs once, and scores are those of the plain graph."""

from __future__ import annotations

import numpy as np
import pytest

from feature_store import Column
from lambda_svc import config as config_file
from lambda_svc.errors import EngineUnavailable, PackageRejected
from lambda_svc.request import SIDES
from lambda_svc.server import load_plans

CANDIDATES = 150
ENGINES = [("tensorflow", "f32"), ("openvino", "f32"), ("tensorflow", "bf16"), ("openvino", "bf16")]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """The zoo's models with attention, with experts, and with batch norm, at their small size."""
    from models import zoo
    from models.export import export

    folder = tmp_path_factory.mktemp("repository")
    for name in ("din", "din_long", "two_tower"):
        export(zoo.get(name, "small").servable(), folder, 1)
    return folder


def plan_of(repository, tmp_path, model: str, engine: str):
    """The plan of a zoo model under `engine`, a YAML mapping; golden scores are checked on the way."""
    from models import zoo

    heads = zoo.get(model, "small").servable().heads
    path = tmp_path / "config.yaml"
    path.write_text(f"repository: {repository}\nwork_dir: {tmp_path / 'run'}\narena_bytes_max: 67108864\n"
                    "server: {listen: '127.0.0.1:0'}\n"
                    f"engine: {engine}\nscenarios:\n  rank: {{model: {model}_small, formula: {' + '.join(heads)}, "
                    "slice_rows: 64, candidates_max: 1000}\n")
    return load_plans(config_file.load(path))["rank"]


def ranked(plan, model: str):
    """Scores of all heads [heads, CANDIDATES] of one random request, in the order of its candidates."""
    from models import zoo
    from models.zoo.requests import draw_request

    request = draw_request(zoo.get(model, "small").fields, CANDIDATES, np.random.default_rng(3))
    columns = []
    for side_index, side in enumerate(SIDES):
        given = getattr(request, side)
        for name, (index, feature) in plan.spec.features[side_index].items():
            values = given[name] if side == "item" else [given[name]]
            column = Column.of(feature, values if isinstance(values, list) else list(values))
            columns.append((side_index, index, column.values, column.row_offsets, column.byte_offsets))
    result = plan.pipeline.rank(user_id=1, candidate_ids=request.candidate_ids, columns=columns)
    assert result.slices == -(-CANDIDATES // 64) and result.bytes_copied == 0
    return result.heads[:, np.argsort(result.positions)]


@pytest.mark.parametrize("model", ["din", "din_long", "two_tower"])
@pytest.mark.parametrize(("kind", "precision"), ENGINES)
def test_the_best_variant_gives_the_plain_graph_s_scores(repository, tmp_path, model, kind, precision):
    plain = plan_of(repository, tmp_path, model, "{variant: plain}")
    assert plain.wire.variant == "plain"
    try:
        best = plan_of(repository, tmp_path, model, f"{{kind: {kind}, precision: {precision}}}")
    except EngineUnavailable as error:
        pytest.skip(str(error))
    assert best.wire.variant == "user_once" and best.model.graphs.user is not None
    np.testing.assert_allclose(ranked(best, model), ranked(plain, model), rtol=0,
                               atol=1e-6 if precision == "f32" else 2e-2)


def test_a_variant_that_is_not_there_is_named(repository, tmp_path):
    with pytest.raises(PackageRejected, match="no variant 'fast'; it has plain, user_once; set engine.variant to one"):
        plan_of(repository, tmp_path, "din", "{variant: fast}")
