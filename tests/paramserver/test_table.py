"""What only the native table has: instruction sets, halves, hash, statistics, capsules and the environment's choice."""

import os
import resource
import subprocess
import sys

import numpy as np
import pytest
from paramserver import Table, _core
from paramserver.ceiling import ArrayGather
from paramserver.errors import InstructionSetError, MemoryExhausted, RowValueError

from tests.paramserver.kinds import INSTRUCTION_SETS


def test_halves_round_as_numpy_does():
    halves = np.arange(2**16, dtype=np.uint16)
    values = halves.view(np.float16).astype(np.float32)
    ours = np.array([_core.f32_of_f16(int(h)) for h in halves], np.float32)
    np.testing.assert_array_equal(ours, values)
    finite = np.sort(values[np.isfinite(values)])
    between = np.concatenate([(finite[1:] + finite[:-1]) / 2, np.nextafter((finite[1:] + finite[:-1]) / 2, np.inf)])
    ours = np.array([_core.f16_of_f32(float(v)) for v in between], np.uint16)
    np.testing.assert_array_equal(ours, between.astype(np.float16).view(np.uint16))


def test_bfloat16_rounds_as_ml_dtypes_does():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 arrays need ml_dtypes")
    bits = np.random.default_rng(0).integers(0, 2**32, 20_000, np.uint32)
    values = bits.view(np.float32)
    values = values[np.isfinite(values)]
    ours = np.array([_core.bf16_of_f32(float(v)) for v in values], np.uint16)
    np.testing.assert_array_equal(ours, values.astype(ml_dtypes.bfloat16).view(np.uint16))


def test_the_hash_is_the_documented_one_for_negatives_and_extremes():
    def mix(x):
        mask = 2**64 - 1
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    for i in [0, 1, -1, -2, 2**63 - 1, -(2**63), 2**32, -(2**32), 1234567890123456789]:
        assert _core.mix(i) == mix(i & (2**64 - 1))


def test_a_number_too_large_for_f16_is_refused(native):
    table = native(2, dtype="f16")
    table.upsert([1], np.float32([[65519, -65519]]))
    np.testing.assert_array_equal(table.lookup([1]), [[65504, -65504]])
    with pytest.raises(RowValueError, match=r"rows\[0\] \(id 9\): element 1 is 65520.*at most 65504 \(dtype f16\)"):
        table.upsert([9], np.float32([[1, 65520]]))


def test_an_impossible_hint_is_an_operating_error(native):
    with pytest.raises(MemoryExhausted, match="lower rows_hint"):
        native(4096, rows_hint=2**40)


@pytest.mark.parametrize("choice", [None, *INSTRUCTION_SETS])
def test_the_environment_chooses_the_instruction_set(choice):
    environment = {k: v for k, v in os.environ.items() if k != "PARAMSERVER_ISA"}
    environment |= {"PARAMSERVER_ISA": choice} if choice else {}
    # The child looks for itself what its CPU runs: under an emulator it is started outside of it.
    program = ("from paramserver import Table; from tests.paramserver.kinds import INSTRUCTION_SETS; "
               "print(Table('t', 1).stats().instruction_set, INSTRUCTION_SETS[-1])")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    chosen, widest = done.stdout.split()
    assert chosen == (choice or widest)


def test_an_instruction_set_that_is_not_there_is_refused_by_name():
    with pytest.raises(InstructionSetError, match="'sse9' was asked for .*expected scalar, avx2 or avx512"):
        Table("t", 1, instruction_set="sse9")
    for lacking in {"avx2", "avx512"} - set(INSTRUCTION_SETS):
        with pytest.raises(InstructionSetError, match=f"'{lacking}' was asked for .*this CPU lacks it"):
            Table("t", 1, instruction_set=lacking)


def test_deletions_do_not_read_a_large_empty_index_over_again(native):
    table = native(1, rows_hint=2**24, huge_pages=False)
    ids = np.arange(2000)
    table.upsert(ids, np.ones((2000, 1), np.float32))
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    assert table.delete(ids) == 2000
    # Building the index anew would touch all of its 164,000 pages.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults < 20_000
    np.testing.assert_array_equal(table.lookup(ids), np.zeros((2000, 1)))


def test_the_list_of_free_rows_takes_no_more_than_an_entry_for_each_row():
    table, ids = Table("t", 32), np.arange(130)
    table.upsert(ids, np.ones((130, 32), np.float32))
    table.delete(ids)
    table.upsert(ids[:1] - 1, np.ones((1, 32), np.float32))
    assert table.stats().bytes_rows <= 130 * (128 + 8)


def test_stats_and_names(native):
    table = native(32, rows_hint=1000)
    table.upsert(np.arange(10), np.ones((10, 32), np.float32))
    stats = table.stats()
    assert (stats.rows, stats.rows_retired, stats.instruction_set) == (10, 0, stats.instruction_set)
    assert 10 * 128 <= stats.bytes < 2**22
    assert (table.name, table.dim, table.dtype) == ("t", 32, "f32")
    assert repr(table) == "Table('t', dim=32, dtype='f32', rows=10)"
    table.upsert([1], np.ones((1, 32), np.float32))
    assert table.stats().rows_retired == 1


def test_the_capsule_is_named_by_the_contract_and_outlives_the_table():
    capsule = Table("t", 4).capsule
    assert '"paramserver.RowSource.3"' in repr(capsule)


def test_array_gather_copies_rows_by_number():
    gather = ArrayGather(1000, 32)
    numbers = np.random.default_rng(0).integers(0, 1000, 777)
    out = np.empty((777, 32), np.float32)
    for call in (gather.gather, gather.gather_two_pages):
        out[:] = -1
        call(numbers, out)
        np.testing.assert_array_equal(out, np.repeat(numbers[:, None], 32, 1))
