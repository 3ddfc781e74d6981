"""What `ps plan` says, held against a real tiered table and a real table in RAM."""

import numpy as np
import pytest

from paramserver import RowStatus, Table, Tier
from tools.ps.plan.hit_rate import lru, optimum
from tools.ps.plan.popularity import of_trace, zipf
from tools.ps.plan.sizing import Sizing, row_bytes

ROWS, DIM, BATCH = 20_000, 16, 4_000


@pytest.fixture(scope="module")
def hit_rates(tmp_path_factory):
    """For each of some budgets in rows, what a settled tiered table answered from RAM, and the ids asked."""
    share = (np.arange(1, ROWS + 1) + 10.0) ** -1.0
    share /= share.sum()
    found = {}
    for hot in (1_000, 5_000):
        rng = np.random.default_rng(4)
        budget = Sizing("t", ROWS, DIM, "f16").hot_bytes(hot)
        table = Table("t", DIM, dtype="f16", rows_hint=ROWS,
                      tier=Tier(budget, tmp_path_factory.mktemp("tier"), direct=False, keeper=False))
        ids = rng.permutation(ROWS).astype(np.int64)
        table.upsert(ids, np.ones((ROWS, DIM), np.float32))
        table.maintain()
        status, hits, asked = np.empty(BATCH, np.uint8), 0, []
        for turn in range(120):
            drawn = ids[rng.choice(ROWS, BATCH, p=share)]
            table.lookup(drawn, status=status)
            table.maintain()
            if turn >= 80:
                hits += int((status == RowStatus.HIT).sum())
                asked.append(drawn)
        found[hot] = (hits / (len(asked) * BATCH), np.concatenate(asked), table.tier_stats().rows_ram_max)
    return found


@pytest.mark.parametrize("hot", [1_000, 5_000])
def test_a_real_tier_lies_between_lru_and_the_best_possible(hit_rates, hot):
    real, asked, _ = hit_rates[hot]
    law = zipf(ROWS, 1.0, 10.0)
    assert lru(law, hot) - 0.03 <= real <= optimum(law, hot) + 0.02
    # The trace that was asked tells the same as the law that it was drawn from.
    trace = of_trace(asked, ROWS)
    assert real <= optimum(trace, hot) + 0.005
    assert optimum(trace, hot) == pytest.approx(optimum(law, hot), abs=0.04)


@pytest.mark.parametrize("hot", [1_000, 5_000])
def test_a_budget_has_room_for_the_rows_planned(hit_rates, hot):
    assert hit_rates[hot][2] == pytest.approx(hot, rel=0.05)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "int8"])
def test_bytes_per_row_are_those_of_a_real_table(dtype):
    rows = 2_000_000  # many times the 2 MiB pages that small tables are rounded up to
    table = Table("t", DIM, dtype=dtype, rows_hint=rows)
    table.upsert(np.arange(rows), np.ones((rows, DIM), np.float32))
    assert table.stored_row_bytes == row_bytes(dtype, DIM)
    assert table.stats().bytes / rows == pytest.approx(Sizing("t", rows, DIM, dtype).ram_bytes / rows, rel=0.06)
