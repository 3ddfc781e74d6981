"""Tokens and TLS, as a Cluster is told of them: lookups and control alike."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from paramserver import RowStatus
from paramserver.errors import ConfigError, RemoteError
from paramserver.remote import Cluster

from tests.paramserver.server.native_servers import IDS, address_of, native_server, table_of
from tests.paramserver.server.servers import make_cluster, publish, rows_of

DIM = 5
TOKEN = "a-token-of-many-characters"


def cluster_of(folder, scheme="grpc", **options):
    """A server of one shard, and its cluster's directory."""
    server = native_server(**options)
    server.set_place(1, 0, 1)
    server.publish(1, [("item", table_of().capsule, False)])
    directory = make_cluster(folder, [[address_of(server, scheme)]])
    publish(directory, 1, 1, item=0)
    return server, directory


def look(directory, **options):
    """Rows and statuses of a lookup, and what the stream says."""
    with Cluster(directory, **options) as cluster:
        status = np.empty(20, np.uint8)
        rows = cluster.table("item", DIM).lookup(IDS[:20], status=status)
        return rows, set(status.tolist()), cluster.lanes()[0].problem


def test_lookups_bring_the_token(tmp_path):
    server, directory = cluster_of(tmp_path, tokens=[TOKEN])
    rows, statuses, _ = look(directory, token=TOKEN)
    assert statuses == {RowStatus.HIT}
    np.testing.assert_array_equal(rows, rows_of(IDS[:20], DIM))
    for token in (None, "another-token-of-many"):
        _, statuses, problem = look(directory, token=token)
        assert statuses <= {RowStatus.UNAVAILABLE, RowStatus.DEADLINE} and "token" in problem.lower()
    server.stop(0)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Path:
    """A folder with ca.pem, and server.pem and server.key that it signed for the name `shard`."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command to make certificates with")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "rsa:2048", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test CA")
    openssl("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=shard")
    (folder / "names").write_text("subjectAltName=DNS:shard")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out",
            "server.pem", "-days", "2", "-extfile", "names")
    return folder


def test_lookups_over_tls(certificates, tmp_path):
    server, directory = cluster_of(tmp_path, "grpc+tls", certificate=(certificates / "server.pem").read_text(),
                                   key=(certificates / "server.key").read_text())
    rows, statuses, _ = look(directory, tls_ca=certificates / "ca.pem", tls_name="shard")
    assert statuses == {RowStatus.HIT}
    np.testing.assert_array_equal(rows, rows_of(IDS[:20], DIM))
    with Cluster(directory, tls_ca=certificates / "ca.pem", tls_name="shard") as cluster, cluster.control(0) as control:
        assert control.action("status")["action"] == "status"
    # Somebody else's certificate is nobody.
    _, statuses, problem = look(directory, tls_ca=certificates / "ca.pem", tls_name="other", deadline_ms=3000)
    assert statuses <= {RowStatus.UNAVAILABLE, RowStatus.DEADLINE} and problem
    with Cluster(directory, tls_ca=certificates / "ca.pem", tls_name="other") as cluster, \
            cluster.control(0) as control, pytest.raises(RemoteError):
        control.action("status")
    server.stop(0)


def test_a_ca_file_that_is_not_there_is_told(tmp_path):
    directory = make_cluster(tmp_path, [["grpc+tls://127.0.0.1:1"]])
    with pytest.raises(ConfigError, match=r"tls_ca: .*nowhere\.pem"):
        Cluster(directory, tls_ca=tmp_path / "nowhere.pem")
