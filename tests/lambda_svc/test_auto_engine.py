"""`engine.kind: auto`: the fastest engine within tolerance, recorded for replicas."""

from __future__ import annotations

import json

import pytest

from lambda_svc import config as config_file
from lambda_svc.errors import PackageRejected
from lambda_svc.lifecycle import auto_engine
from lambda_svc.server import load_plans


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """The small DIN of the zoo."""
    from models import zoo
    from models.export import export

    folder = tmp_path_factory.mktemp("repository")
    export(zoo.get("din", "small").servable(), folder, 1)
    return folder


def plan_of(repository, tmp_path, engine="{kind: auto}"):
    path = tmp_path / "config.yaml"
    path.write_text(f"repository: {repository}\nwork_dir: {tmp_path / 'run'}\narena_bytes_max: 67108864\n"
                    f"server: {{listen: '127.0.0.1:0'}}\nengine: {engine}\n"
                    "scenarios:\n  rank: {model: din_small, formula: click, slice_rows: 64, candidates_max: 1000}\n")
    return load_plans(config_file.load(path))["rank"]


def test_the_fastest_is_chosen_recorded_and_used_again(repository, tmp_path, monkeypatch):
    times = {"tensorflow": 3.0, "openvino": 1.0}
    monkeypatch.setattr(auto_engine, "_times", lambda folder, options: {
        option: times[option.kind] + (option.variant == "plain") for option in options})
    plan = plan_of(repository, tmp_path)
    assert plan.wire.engine.startswith("openvino ") and plan.wire.variant == "user_once"
    [recorded] = json.loads((repository / "din_small" / "engines-1.json").read_text()).values()
    assert recorded == {"kind": "openvino", "precision": "f32", "variant": "best"}
    monkeypatch.setattr(auto_engine, "_fastest", lambda *_: pytest.fail("measured although it was recorded"))
    assert plan_of(repository, tmp_path).wire.engine == plan.wire.engine


def test_other_settings_are_measured_for_themselves(repository, tmp_path, caplog):
    caplog.set_level("INFO")
    plan = plan_of(repository, tmp_path, "{kind: auto, variant: plain}")
    assert plan.wire.variant == "plain" and plan.wire.precision == "f32"
    timed = [r.getMessage() for r in caplog.records if "takes" in r.getMessage()]
    assert len(timed) == 2 and all("plain" in message for message in timed)
    assert any("leaves out onnxruntime" in r.getMessage() for r in caplog.records), "the package has no ONNX graph"


@pytest.mark.parametrize("content", ["no json", "[]", '{"KEY": {"kind": "quantum"}}', '{"KEY": 3}',
                                     '{"KEY": {"kind": "onnxruntime"}}'])
def test_a_record_that_does_not_work_is_replaced(repository, tmp_path, content):
    file = auto_engine.sidecar_file(repository, "din_small", 1)
    plan_of(repository, tmp_path)
    keys = list(json.loads(file.read_text()))
    file.write_text(content.replace("KEY", keys[0]))
    assert plan_of(repository, tmp_path).wire.engine
    assert all(set(entry) == {"kind", "precision", "variant"} for entry in json.loads(file.read_text()).values())


def test_no_engine_at_all(repository, tmp_path, monkeypatch):
    def refuse(*_):
        raise PackageRejected("golden.arrow: head 'click' differs")

    monkeypatch.setattr(auto_engine, "check_golden", refuse)
    with pytest.raises(PackageRejected, match="no engine serves the package: tensorflow f32 best: golden.arrow"):
        plan_of(repository, tmp_path, "{kind: auto, streams: 2}")
