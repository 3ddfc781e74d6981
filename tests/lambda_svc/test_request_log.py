"""The request log and explain: what was served can be scored again, to the digit, whatever has changed since."""

from __future__ import annotations

import shutil
import threading
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner


from lambda_svc import request_log
from lambda_svc.client import RankingClient
from lambda_svc.config import RequestLogConfig
from lambda_svc.errors import NotFound, PackageRejected
from lambda_svc.explain import explain, find_request
from lambda_svc.request_log import RequestLog
from lambda_svc.server import RankingServer, load_plans
from tests.lambda_svc.live_worlds import WORLDS, configured
from tests.lambda_svc.world import MODEL
from tools.cli import app


@pytest.fixture
def logged(home):
    """(config, answers by request id): every request logged; one with stored features, one that brings its own."""
    config = configured(home, "request_log: {folder: kept, share: 1.0}\n")
    ids = [*list(WORLDS[1].items)[:150], 999_999]
    with RankingServer(config, load_plans(config)) as server, RankingClient(f"127.0.0.1:{server.port}") as client:
        client.wait_ready(10)
        answers = {"plain": client.rank("rank", 3, ids, timeout_s=20, top_k=40),
                   "brought": client.rank("rank", 4, ids, timeout_s=20, user={"age": 77.0, "history": ids[:5]},
                                          context={"hour": 3}, formula="engaged",
                                          items={"price": np.arange(151, dtype=np.float32)[:, None]})}
    return config, {name: (a.message.request_id, a) for name, a in answers.items()}


@pytest.mark.parametrize("name", ["plain", "brought"])
def test_a_logged_request_scores_the_same_when_features_have_changed_since(logged, home, name):
    config, answers = logged
    request_id, answer = answers[name]
    (home / "users.parquet").unlink()
    request = find_request(config.request_log.folder, request_id)
    again = explain(config, request)
    assert again.difference <= 1e-6 and again.version == 1
    np.testing.assert_array_equal(request.positions, answer.positions)
    for head, scores in answer.heads.items():
        np.testing.assert_array_equal(request.heads[head], scores)
        np.testing.assert_allclose(again.heads[head][answer.positions], scores, atol=1e-6, rtol=0)
    statuses = again.statuses["item", "item"]
    assert len(statuses) == 151 and set(statuses[:150]) == {0} and statuses[150] != 0


def test_another_version_is_scored_on_the_same_features(logged, home):
    config, answers = logged
    WORLDS[2].write_package(home / "repository", 2)
    request = find_request(config.request_log.folder, answers["plain"][0])
    beside = explain(config, request, 2)
    expected = WORLDS[2].score_ids(3, request.candidate_ids)
    for head, scores in expected.items():
        np.testing.assert_allclose(beside.heads[head], scores, atol=1e-6, rtol=0)
    assert beside.difference is None
    shutil.rmtree(home / "repository" / MODEL / "1")
    with pytest.raises(NotFound, match=r"version: got 1; published of 'tiny' are \[2\]"):
        explain(config, request)


def test_a_tampered_score_is_noticed(logged):
    config, answers = logged
    request = find_request(config.request_log.folder, answers["plain"][0])
    moved = {head: scores + np.float32(1e-3) for head, scores in request.heads.items()}
    assert explain(config, type(request)(request.fields, request.slots, moved, request.positions,
                                         request.rank_scores)).difference > 9e-4


def test_a_slot_that_was_not_logged_is_named(logged):
    config, answers = logged
    request = find_request(config.request_log.folder, answers["plain"][0])
    slots = {key: value for key, value in request.slots.items() if key[1] != "genres"}
    with pytest.raises(PackageRejected, match="slot 'genres' was not logged"):
        explain(config, type(request)(request.fields, slots, request.heads, request.positions, request.rank_scores))


def test_a_file_whose_writer_died_gives_what_was_whole(logged):
    config, answers = logged
    [path] = config.request_log.folder.glob("*.arrow")
    whole = path.read_bytes()
    for cut in (0, 10, len(whole) // 3, len(whole) - 9):
        path.write_bytes(whole[:cut])
        try:
            find_request(config.request_log.folder, answers["plain"][0])
        except NotFound as error:
            assert "1 files" in str(error)
    path.write_bytes(whole[:-8])  # without the mark of the end
    assert find_request(config.request_log.folder, answers["brought"][0])


def test_what_finds_the_queue_full_is_dropped_and_counted(tmp_path, monkeypatch):
    kept = RequestLog(RequestLogConfig(folder=tmp_path, share=1.0, queue_max=2))
    hold = threading.Event()
    monkeypatch.setattr(request_log, "_row", lambda served: hold.wait(20) and None)
    for _ in range(50):
        kept.offer(SimpleNamespace(), SimpleNamespace(request_id="x"), SimpleNamespace())
    assert kept.dropped >= 47
    hold.set()
    kept.close()
    assert kept.written == 0


def test_a_share_is_logged_and_the_oldest_files_go(logged, tmp_path, monkeypatch):
    config, answers = logged
    row = find_request(config.request_log.folder, answers["plain"][0]).fields
    monkeypatch.setattr(request_log, "_row", lambda served: dict(row))
    monkeypatch.setattr(request_log, "_BATCH_ROWS", 1)
    kept = RequestLog(RequestLogConfig(folder=tmp_path / "many", share=0.5, queue_max=10_000, file_bytes_max=65_536,
                                       files_max=3))
    for _ in range(400):
        kept.offer(SimpleNamespace(), SimpleNamespace(request_id="x"), SimpleNamespace())
    kept.close()
    assert 130 < kept.written < 270 and kept.dropped == kept.failed == 0
    files = sorted((tmp_path / "many").glob("*.arrow"))
    assert len(files) == 3 and all(pa.ipc.open_stream(f.read_bytes()).read_all().num_rows for f in files)


def test_the_command_line_shows_scores_features_and_another_version(logged, home):
    config, answers = logged
    WORLDS[2].write_package(home / "repository", 2)
    path, run = str(home / "config.yaml"), CliRunner().invoke
    shown = run(app, ["explain", path, answers["plain"][0], "--top", "3", "--beside", "2"])
    assert shown.exit_code == 0 and "the same, within" in shown.output and "v2 liked" in shown.output
    one = run(app, ["explain", path, answers["plain"][0], "--candidate", "999999"])
    assert "not stored" in one.output and "default" in one.output and "occupation" in one.output
    assert "not among" in run(app, ["explain", path, answers["plain"][0], "--candidate", "5"]).output
    missing = run(app, ["explain", path, "nobody"])
    assert missing.exit_code == 1 and "request_id: got 'nobody'" in missing.output
    (home / "config.yaml").write_text((home / "config.yaml").read_text().replace("request_log", "# request_log"))
    assert "has no request_log" in run(app, ["explain", path, "nobody"]).output
