"""`ps plan`: its maths against brute force, its sources, and what it says to a reader."""

import json
from collections import OrderedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tools.cli import app
from tools.ps.plan.hit_rate import lru, lru_of_trace, optimum, rows_for
from tools.ps.plan.popularity import TraceError, of_trace, read_trace, zipf
from tools.ps.plan.sizing import Budget, Sizing, disk_bytes, hosts_for, parse_bytes, row_bytes, show_bytes


def exact_zipf(rows, s, q):
    mass = (np.arange(1, rows + 1) + q) ** -float(s)
    return mass / mass.sum()


@pytest.mark.parametrize(("s", "q"), [(1.0, 10), (1.2, 100), (0.76, 0), (1.49, 0), (0, 0)])
def test_a_zipf_law_in_groups_is_the_law_rank_by_rank(s, q):
    rows, law = 1_000_000, zipf(1_000_000, s, q)
    share = exact_zipf(rows, s, q)
    assert law.rows == rows
    for hot in (1, 1000, 65_536, 70_000, 400_000, rows):
        assert optimum(law, hot) == pytest.approx(share[:hot].sum(), rel=1e-4)


def test_a_billion_rows_are_planned_at_once():
    law = zipf(10**9, 1.2, 100)
    assert law.ranks.size < 100_000 and law.rows == 10**9
    assert 0 < lru(law, 10**6) < optimum(law, 10**6) < 1


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.8, 0.99, 1.0])
def test_rows_for_is_the_inverse_of_the_best_hit_rate(rate):
    law = zipf(200_000, 1.0, 10)
    assert optimum(law, rows_for(law, rate)) == pytest.approx(rate, abs=1e-9)


def simulated_lru(ids, rows):
    held, hits = OrderedDict(), 0
    for one in ids:
        if one in held:
            hits += 1
            held.move_to_end(one)
        else:
            held[one] = True
            if len(held) > rows:
                held.popitem(last=False)
    return hits / len(ids)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-4, 12), min_size=1, max_size=80))
def test_lru_of_a_trace_is_what_a_simulation_gives(ids):
    budgets = np.array([1, 2, 3, 7, 100])
    found = lru_of_trace(np.array(ids, np.int64), budgets)
    assert found.tolist() == [simulated_lru(ids, rows) for rows in budgets]


def test_the_lru_approximation_is_near_a_simulation():
    law = zipf(3000, 1.0, 10)
    ids = np.random.default_rng(3).choice(3000, 120_000, p=exact_zipf(3000, 1.0, 10))
    budgets = np.array([30, 300, 1500])
    assert lru_of_trace(ids, budgets) == pytest.approx([lru(law, rows) for rows in budgets], abs=0.02)


def test_a_trace_counts_ids_that_it_never_names():
    law = of_trace(np.array([7, 7, 7, -1, 9]), rows=1000)
    assert law.rows == 1000 and optimum(law, 1) == pytest.approx(0.6) and optimum(law, 3) == pytest.approx(1)


@pytest.mark.parametrize("suffix", ["npy", "parquet", "txt"])
def test_a_trace_is_read_from_every_kind_of_file(tmp_path, suffix):
    ids, path = np.array([5, -3, 5, 2**62]), tmp_path / f"trace.{suffix}"
    if suffix == "npy":
        np.save(path, ids)
    elif suffix == "parquet":
        pq.write_table(pa.table({"id": pa.array([[5, -3], [5], [2**62]])}), path)
    else:
        path.write_text("\n".join(map(str, ids)))
    assert read_trace(path).tolist() == ids.tolist()


def test_a_trace_of_floats_is_refused(tmp_path):
    np.save(tmp_path / "t.npy", np.array([1.0]))
    with pytest.raises(TraceError, match="float64"):
        read_trace(tmp_path / "t.npy")


def test_bytes_of_rows_index_and_disk():
    assert [row_bytes(dtype, 33) for dtype in ("f32", "f16", "bf16", "int8")] == [132, 68, 68, 44]
    table = Sizing("t", 1_000_000, 32, "f32")
    assert table.ram_bytes == pytest.approx(1_000_000 * (128 + 22.86), rel=1e-3)
    assert table.tiered_bytes(100) < table.tiered_bytes(10**9) == table.ram_bytes
    assert disk_bytes(Sizing("t", 32, 32, "f32")) == 32 * 8 + 4096
    assert disk_bytes(Sizing("t", 1, 2048, "f32")) == 8 + 8192
    assert hosts_for(100, Budget(50, 0.5, 3)) == (4, 12)


@pytest.mark.parametrize(("text", "value"), [("4096", 4096), ("64GiB", 64 << 30), ("1.5 GB", 1_500_000_000),
                                             ("800M", 800_000_000), (7, 7)])
def test_bytes_are_read(text, value):
    assert parse_bytes(text) == value


def test_bytes_are_shown_and_refused():
    assert [show_bytes(x) for x in (12, 2048, 5 << 30, 3 << 40)] == ["12 B", "2 KiB", "5 GiB", "3.0 TiB"]
    with pytest.raises(ValueError, match="64GiB"):
        parse_bytes("lots")


def invoke(*arguments):
    return CliRunner().invoke(app, ["ps", "plan", *map(str, arguments)])


def test_a_plan_file_gives_bytes_hit_rates_and_hosts(tmp_path):
    (tmp_path / "plan.yaml").write_text(
        "host_ram_bytes: 1GiB\nreplicas: 3\ntables:\n"
        "- {name: user, rows: 2000000, dim: 64, dtype: f16, ram_bytes_max: 16MiB, zipf: {s: 1.49}}\n"
        "- {name: item, rows: 30000, dim: 64, dtype: int8}\n")
    result = invoke(tmp_path / "plan.yaml", "--json", tmp_path / "plan.json", "--svg", tmp_path / "plan.svg")
    assert result.exit_code == 0, result.output
    assert "3 replicas" in result.output and "popularity (r+0)^-1.49" in result.output
    user, item = json.loads((tmp_path / "plan.json").read_text())["tables"]
    assert (user["row_bytes"], item["row_bytes"]) == (128, 72)
    assert [point["hot_rows"] for point in user["points"]].count((16 << 20) // (128 + 41)) == 1
    assert all(point["lru"] <= point["optimum"] + 1e-9 for point in user["points"])
    assert (tmp_path / "plan.svg").read_text().startswith("<svg")


def test_the_criteo_schema_gives_26_tables(shared_dir, tmp_path):
    schema = shared_dir / "data" / "schemas" / "merlin_advertising_criteo_transformed.pbtxt"
    result = invoke("--schema", schema, "--dim", 128, "--scale", 0.01, "--json", tmp_path / "plan.json")
    assert result.exit_code == 0, result.output
    assert len(json.loads((tmp_path / "plan.json").read_text())["tables"]) == 26


@pytest.mark.parametrize(("arguments", "said"), [
    ([], "name the tables"),
    (["--rows", "10", "--dtype", "int4"], "--dtype: got 'int4'"),
    (["--rows", "10", "--zipf", "s=x"], "--zipf: got 's=x'; expected s=NUMBER,q=NUMBER"),
    (["--rows", "10", "--host-ram", "much"], "--host-ram: got 'much'; expected a number of bytes"),
    (["--rows", "10", "--trace", "absent.npy"], "absent.npy"),
    (["absent.yaml"], "absent.yaml"),
])
def test_what_cannot_be_planned_is_said_in_a_line(arguments, said):
    result = invoke(*arguments)
    assert result.exit_code == 1 and said in result.output


def test_every_problem_of_a_plan_file_is_named(tmp_path):
    (tmp_path / "p.yaml").write_text("hosts: 2\ntables: [{name: a, rows: 0, dim: 8}]\n")
    result = invoke(tmp_path / "p.yaml")
    assert "hosts" in result.output and "tables.0.rows" in result.output
