"""Every command that speaks to a running cluster: what it shows, changes and says when it cannot."""

import json

import numpy as np
import pytest

from paramserver.delta import Delta, write_delta
from paramserver.epoch import Epoch, write_epoch

DIM = 16


def delta(folder, sequence, value, ids=(7, 9999), deletes=(), version=1):
    path = folder / f"example-{version}-{sequence}.arrow"
    rows = np.full((len(ids), DIM), value, np.float32)
    write_delta(path, Delta("example", version, sequence, np.array(ids), rows, np.array(deletes, np.int64)))
    return path


def rows_of(ps, cluster, *ids, **options):
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    result = ps("get", "example", *ids, "--cluster", cluster, "--json", *words)
    assert result.exit_code == 0, result.output
    return {one["id"]: (one["status"], one["row"][0]) for one in json.loads(result.output)}


def good(result):
    assert result.exit_code == 0, result.output
    return result.output


def newest(cluster):
    return max(int(path.stem) for path in (cluster / "epochs").glob("*.json"))


def next_sequence(ps, cluster):
    answers = json.loads(good(ps("stats", "--cluster", cluster, "--json")))
    return max(one["answer"]["versions"]["1"]["example"]["sequence"] for one in answers) + 1


def test_stats_shows_every_replica(ps, cluster):
    output = good(ps("stats", "--cluster", cluster))
    assert "2 shards, 4 replicas" in output
    assert all(name in output for name in ("0/0", "0/1", "1/0", "1/1", "example"))
    answers = json.loads(good(ps("stats", "--cluster", cluster, "--json")))
    assert {one["answer"]["versions"]["1"]["example"]["lag"] for one in answers} == {0}


def test_get_shows_rows_in_the_order_asked_for(ps, cluster):
    found = rows_of(ps, cluster, 5000, -1, 1)
    assert list(found) == [5000, -1, 1]
    assert found[5000] == ("hit", 0.5) and found[-1] == ("default", 0.0)


def test_why_tells_where_an_id_lies_on_each_replica(ps, cluster):
    output = good(ps("why", "example", 42, "--cluster", cluster))
    assert output.count("in RAM") == 2 and "answers `hit`, its row" in output
    absent = good(ps("why", "example", -5, "--cluster", cluster))
    assert absent.count("not here") == 2 and "`default`, the table's default row" in absent


def test_two_epochs_differ_by_what_a_delta_wrote(ps, cluster, tmp_path):
    first = newest(cluster)
    sequence = next_sequence(ps, cluster)
    good(ps("push-delta", delta(tmp_path, sequence, 3.0, ids=(11, -3), deletes=(12,)), "--cluster", cluster))
    good(ps("publish", "--cluster", cluster))
    result = ps("diff", first, newest(cluster), "--cluster", cluster, "--json")
    assert result.exit_code == 1, result.output
    tables = json.loads(result.stdout)
    kinds = {kind: sorted(one for table in tables for one in table["ids"][kind])
             for kind in ("added", "removed", "changed")}
    assert kinds == {"added": [-3], "removed": [12], "changed": [11]}
    same = ps("diff", newest(cluster), newest(cluster), "--cluster", cluster)
    assert same.exit_code == 0, same.output


def test_a_snapshot_is_resharded_and_compared(ps, cluster, tmp_path):
    good(ps("snapshot", tmp_path / "backup", "--cluster", cluster))
    output = good(ps("reshard", tmp_path / "backup", tmp_path / "wider", "--shards", 3))
    assert "2 to 3 shard(s)" in output and "fingerprint" in output
    refused = ps("diff", tmp_path / "backup", tmp_path / "wider")
    assert refused.exit_code == 2 and "different tables or shards" in refused.output


def test_a_damaged_snapshot_is_not_compared_as_if_it_was_whole(ps, cluster, tmp_path):
    good(ps("snapshot", tmp_path / "backup", "--cluster", cluster))
    good(ps("snapshot", tmp_path / "damaged", "--cluster", cluster))
    path = tmp_path / "damaged" / "shard-00000" / "example.snap"
    content = bytearray(path.read_bytes())
    content[9000] ^= 1  # of an id
    path.write_bytes(content)
    result = ps("diff", tmp_path / "backup", tmp_path / "damaged")
    assert result.exit_code == 2 and "section ids" in result.output, result.output


def test_states_are_called_as_they_were_named(ps, cluster, tmp_path):
    good(ps("snapshot", tmp_path / "backup", "--cluster", cluster))
    result = ps("diff", tmp_path / "backup", newest(cluster), "--cluster", cluster, "--table", "absent")
    assert result.exit_code == 2 and f"backup and {newest(cluster)}: no snapshots of absent" in result.output
    shown = good(ps("diff", tmp_path / "backup", newest(cluster), "--cluster", cluster))
    assert "shard-00000/example" in shown and "shard-00001/example" in shown, "a name was cut off"


def test_a_tiered_table_is_restored_within_its_budget(ps, cluster, tmp_path):
    good(ps("snapshot", tmp_path / "backup", "--cluster", cluster))
    good(ps("init", tmp_path / "other", "--shards", 2, "--first-port", 0))
    configs = sorted((tmp_path / "other" / "servers").glob("*.yaml"))
    for config in configs:
        config.write_text(config.read_text() + "table_defaults: {tier: {ram_bytes_max: 1048576, direct: false}}\n")
    good(ps("restore", tmp_path / "backup", *configs))
    assert all((folder / "tiers").is_dir() for folder in (tmp_path / "other" / "data").iterdir()), "not as configured"


def test_a_snapshot_of_another_past_is_not_restored(ps, cluster, tmp_path):
    good(ps("snapshot", tmp_path / "backup", "--cluster", cluster))
    good(ps("init", tmp_path / "other", "--first-port", 0, "--shards", 2))
    write_epoch(tmp_path / "other", Epoch(newest(cluster), 1, {"example": 10**6}))
    configs = sorted((tmp_path / "other" / "servers").glob("*.yaml"))
    result = ps("restore", tmp_path / "backup", *configs)
    assert result.exit_code == 1 and f"epoch {newest(cluster)}" in result.output and "another" in result.output
    assert not (tmp_path / "other" / "data").exists(), "something was written"


def test_a_snapshot_is_restored_into_servers_of_another_cluster(ps, cluster, tmp_path):
    good(ps("snapshot", tmp_path / "backup", "--cluster", cluster))
    good(ps("init", tmp_path / "other", "--shards", 2, "--first-port", 0))
    configs = sorted((tmp_path / "other" / "servers").glob("*.yaml"))
    output = good(ps("restore", tmp_path / "backup", *configs))
    assert output.count(f"epoch {newest(cluster)} of package version 1") == 2
    assert newest(tmp_path / "other") == newest(cluster)


@pytest.mark.parametrize(("words", "said"), [
    (["get", "nothing", "1"], "no table 'nothing'"),
    (["get", "example", "x"], "id: got 'x'; expected a 64-bit integer"),
    (["get", "example", "1", "--epok", "1"], "or an option that --help names"),
    (["get", "example", "1", "--token-file", "absent"], "token_file: absent: No such file"),
    (["get", "example", "1", "--tls-ca", "absent"], "tls_ca: absent: No such file"),
    (["why", "nothing", "1"], "no table 'nothing'"),
    (["get", "example", "1", "--epoch", "99"], "epoch is 99"),
    (["publish", "--version", "5"], "package version 5 does not serve on every replica"),
    (["publish", "--sequence", "item=1"], "no table item"),
    (["publish", "--sequence", "item"], "--sequence: got 'item'; expected TABLE=NUMBER"),
    (["rollback", "--to", "99"], "99"),
    (["load", "absent.parquet", "--version", "2"], "absent.parquet: no such file"),
])
def test_what_cannot_be_done_is_said_in_lines(ps, cluster, words, said):
    result = ps(*words, "--cluster", cluster)
    assert result.exit_code == 1 and said in result.output, result.output
    assert all(line.startswith("lambda-svc: ") for line in result.output.splitlines()), result.output


def test_a_gap_names_what_is_missing(ps, cluster, tmp_path):
    sequence = next_sequence(ps, cluster) + 50
    result = ps("push-delta", delta(tmp_path, sequence, 1.0), "--cluster", cluster)
    assert result.exit_code == 1 and "push the deltas that are missing" in result.output


@pytest.mark.parametrize(("sources", "said"), [
    (["{table}", "example={table}"], "table 'example' is"),
    (["a b={table}"], "table is 'a b', expected 1 to 128 letters"),
    (["={table}"], "table is ''"),
])
def test_names_of_tables_are_looked_at_before_anything_is_written(ps, cluster, sources, said):
    words = [source.format(table=cluster / "example.parquet") for source in sources]
    result = ps("load", *words, "--cluster", cluster, "--version", 90)
    assert result.exit_code == 1 and said in result.output, result.output
    assert not (cluster / "packages" / "90").exists()


def test_a_version_holds_the_tables_that_were_named_and_no_remains_of_another_load(ps, cluster):
    source = cluster / "example.parquet"
    remains = cluster / "packages" / "91" / "shard-00000" / "mistaken.snap"
    remains.parent.mkdir(parents=True)
    remains.write_bytes(b"")
    output = good(ps("load", f"meant={source}", "--cluster", cluster, "--version", 91))
    # `publish` stays with the version that is shown.
    assert f"ps publish --cluster {cluster} --version 91" in output
    answers = json.loads(good(ps("stats", "--cluster", cluster, "--json")))
    assert {table for one in answers for table in one["answer"]["versions"]["91"]} == {"meant"}


def test_snapshots_of_another_version_are_not_sent(ps, cluster, tmp_path):
    good(ps("snapshot", tmp_path / "backup", "--cluster", cluster))
    result = ps("load", tmp_path / "backup", "--cluster", cluster, "--version", 92)
    assert result.exit_code == 1 and "--version: got 92" in result.output and "pass --version 1" in result.output


def test_a_delta_that_is_held_says_what_it_waits_for(ps, cluster, tmp_path):
    output = good(ps("push-delta", delta(tmp_path, 1, 1.0, version=93), "--cluster", cluster))
    assert "held on 4" in output and "ps load --version 93" in output


@pytest.mark.parametrize(("options", "said"), [(("--id-column", "user"), "expected one column 'user'"),
                                               (("--row-column", "id"), "expected a list of float")])
def test_a_column_that_is_not_there_names_the_options(ps, cluster, options, said):
    result = ps("load", cluster / "example.parquet", "--cluster", cluster, "--version", 94, *options)
    assert result.exit_code == 1 and said in result.output and "--id-column and --row-column" in result.output


def test_ports_end(ps, tmp_path):
    result = ps("init", tmp_path / "many", "--first-port", 65_530, "--shards", 30)
    assert result.exit_code == 1 and "--first-port: got 65530" in result.output, result.output
    assert not (tmp_path / "many").exists()


def test_nothing_is_seen_before_the_first_epoch(ps, tmp_path):
    good(ps("init", tmp_path / "new", "--first-port", 0))
    for words in (("get", "example", 1), ("why", "example", 1)):
        result = ps(*words, "--cluster", tmp_path / "new")
        assert result.exit_code == 1 and "`lambda-svc ps publish` makes one" in result.output, result.output


def test_no_server_and_no_cluster_say_what_to_do(ps, tmp_path):
    result = ps("stats", "--cluster", tmp_path / "none")
    assert result.exit_code == 1 and "lambda-svc ps init" in result.output
    nothing = ps("stats", "--cluster", tmp_path)
    assert nothing.exit_code == 1 and "holds no shards.json" in nothing.output
    good(ps("init", tmp_path / "cold", "--first-port", 0))
    assert ps("init", tmp_path / "cold").exit_code == 1
    stats = ps("stats", "--cluster", tmp_path / "cold")
    assert stats.exit_code == 1 and "no answer" in stats.output
    publish = ps("publish", "--cluster", tmp_path / "cold")
    assert publish.exit_code == 1 and "lambda-svc ps serve CONFIG" in publish.output


def test_a_delta_is_seen_once_published_and_gone_after_a_rollback(ps, cluster, tmp_path):
    before = rows_of(ps, cluster, 7, 9999)
    sequence = next_sequence(ps, cluster)
    path = delta(tmp_path, sequence, 8.0)
    assert "applied on 4" in good(ps("push-delta", path, "--cluster", cluster))
    assert "already on 4" in good(ps("push-delta", path, "--cluster", cluster))
    assert rows_of(ps, cluster, 7, 9999) == before
    output = good(ps("publish", "--cluster", cluster))
    assert f"example at {sequence}" in output and "shown by all 4 replicas" in output
    assert rows_of(ps, cluster, 7, 9999) == {7: ("hit", 8.0), 9999: ("hit", 8.0)}
    shown = newest(cluster)
    good(ps("rollback", "--cluster", cluster))
    assert rows_of(ps, cluster, 7, 9999) == before
    assert rows_of(ps, cluster, 7, epoch=shown) == {7: ("hit", 8.0)}
    # What was rolled back is held still, so the next delta has to wait: this test comes last.
    waits = ps("push-delta", delta(tmp_path, sequence + 1, 1.0), "--cluster", cluster)
    assert waits.exit_code == 1 and "abandoned" in waits.output
