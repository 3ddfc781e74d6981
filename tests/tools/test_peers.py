"""Peers: what is not installed is missing with its reason, and a runner is driven line by line."""

import numpy as np
import pytest

from tools.bench import peers as bench_peers
from tools.peers import Batches, Peer, PeerMissing
from tools.peers.protocol import Spec, filled, ids_of

RUNNER = """#!/bin/sh
test -n "$GLIBC_TUNABLES" || exit 1
echo "WARNING: a library's own"
echo '{"ready": true, "note": "fake", "bytes": 10, "huge_bytes": 5}'
while read turn; do
  test "$turn" = 2 && { echo "out of luck" >&2; exit 3; }
  echo "{\\"cpu_s\\": 0.5, \\"wall_s\\": 0.25, \\"sum\\": $turn}"
done
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LAMBDA_SVC_PEERS", str(tmp_path))
    return tmp_path


def batches(folder):
    return Batches.drawn(folder, 1000, 100, 3)


def test_a_peer_that_is_not_installed_is_missing(folder):
    with pytest.raises(PeerMissing, match=r"not installed: run tools/peers/install.sh maps"):
        Peer("absl_flat_hash_map", 1000, 32, batches(folder))


def test_the_installer_s_reason_is_told(folder):
    (folder / "fbgemm.missing").write_text("pip found no torch\n")
    with pytest.raises(PeerMissing, match="pip found no torch: run tools/peers/install.sh fbgemm"):
        Peer("fbgemm", 1000, 32, batches(folder))


def test_a_runner_is_asked_batch_by_batch_and_its_last_words_are_kept(folder):
    (folder / "maps").mkdir()
    (folder / "maps.installed").touch()
    runner = folder / "maps" / "runner"
    runner.write_text(RUNNER)
    runner.chmod(0o755)
    with Peer("absl_flat_hash_map", 1000, 32, batches(folder)) as peer:
        assert (peer.note, peer.memory["huge_bytes"]) == ("fake", 5)
        assert peer.run(1) == {"cpu_s": 0.5, "wall_s": 0.25, "sum": 1}
        with pytest.raises(PeerMissing, match="out of luck"):
            peer.run(2)


def test_the_bench_reports_missing_peers_and_fails_nobody(folder, monkeypatch):
    monkeypatch.setattr(bench_peers, "Table", lambda *_, **__: _NoTable())
    figures = bench_peers.run(True)
    assert {figure.missing is not None for figure in figures} == {True}
    assert len(figures) == len(bench_peers.QUICK_PEERS)


class _NoTable:
    def upsert(self, *_):
        """Takes nothing: no peer is here to be compared with."""

    def __len__(self):
        return 500_000


def test_rows_of_a_peer_tell_their_number():
    numbers, rows = next(iter(filled(Spec(2000, 3, 10, 1, ""))))
    assert numbers.tolist() == list(range(2000)) and (rows == (numbers % 1021)[:, None]).all()
    assert len(np.unique(ids_of(numbers))) == 2000
