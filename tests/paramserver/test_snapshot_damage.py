"""Snapshots that are cut, flipped, foreign or forged: an error that names the file, or a table; never anything else."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paramserver import Table
from paramserver.errors import ParamServerError, StoreDamaged, TableFileError, TableSchemaError
from paramserver.snapshot import Snapshot, load_table, write_snapshot

from tests.paramserver.snapshot_bytes import PAGE, forged, layout_of, sealed

FUZZ = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A small snapshot's bytes: 900 rows, so that every section has a page of content at least."""
    path = tmp_path_factory.mktemp("good") / "t.snap"
    table = Table("t", 3, default_row=[1, 2, 3])
    table.upsert(np.arange(900) * 7, np.arange(2700, dtype=np.float32).reshape(900, 3))
    write_snapshot(path, table)
    return path.read_bytes()


def opened(path, raw):
    path.write_bytes(raw)
    Snapshot.open(path).verify()


def test_every_cut_is_found(tmp_path, good):
    path = tmp_path / "t.snap"
    cuts = {0, 1, 7, 8, 79, 80, PAGE - 1, PAGE, len(good) - 1, len(good) + 1, *range(0, len(good), PAGE)} - {len(good)}
    for size in sorted(cuts):
        with pytest.raises((StoreDamaged, TableSchemaError), match=r"t\.snap"):
            opened(path, good[:size].ljust(size, b"\0"))


def test_every_flipped_bit_of_the_header_is_found(tmp_path, good):
    for at in [*range(90), PAGE - 5, PAGE - 4, PAGE - 1]:
        raw = bytearray(good)
        raw[at] ^= 1 << at % 8
        with pytest.raises((StoreDamaged, TableSchemaError), match=r"t\.snap"):
            opened(tmp_path / "t.snap", bytes(raw))


@FUZZ
@given(st.data())
def test_every_flipped_bit_is_found(tmp_path, good, data):
    raw = bytearray(good)
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises((StoreDamaged, TableSchemaError), match=r"t\.snap"):
        opened(tmp_path / "t.snap", bytes(raw))


@pytest.mark.parametrize("section", ["default_row", "ids", "slots", "checksums"])
def test_the_message_names_the_section(tmp_path, good, section):
    at, size = layout_of(good).sections[section]
    raw = bytearray(good)
    raw[at + size - 1] ^= 1
    with pytest.raises(StoreDamaged, match=f"section {section.replace('_', ' ')}, .*copy the snapshot again"):
        opened(tmp_path / "t.snap", bytes(raw))


@pytest.mark.parametrize("section", ["ids", "slots"])
def test_loading_finds_it_too(tmp_path, good, section):
    raw = bytearray(good)
    raw[layout_of(good).sections[section][0]] ^= 1
    (tmp_path / "t.snap").write_bytes(raw)
    with pytest.raises(StoreDamaged, match=f"section {section}"):
        load_table(tmp_path / "t.snap")


def test_ids_out_of_order_and_repeated_ids_are_found(tmp_path, good):
    at = layout_of(good).sections["ids"][0]
    swapped = good[:at] + good[at + 8 : at + 16] + good[at : at + 8] + good[at + 16 :]
    with pytest.raises(StoreDamaged, match="section ids, row 1: id .* is not in the order"):
        opened(tmp_path / "t.snap", sealed(swapped))
    repeated = good[:at] + good[at + 8 : at + 16] + good[at + 8 :]
    for read in (opened, lambda path, raw: path.write_bytes(raw) and load_table(path)):
        with pytest.raises(StoreDamaged, match="section ids, row 1: id .* is there twice"):
            read(tmp_path / "t.snap", sealed(repeated))


FIELDS = {"format": 32, "stored": 32, "dim": 32, "row_bytes": 32, "flags": 32, "zero": 32, "rows": 64, "file_bytes": 64,
          "checksums_crc": 32, "slot_bytes": 32}


@FUZZ
@given(st.data())
def test_a_forged_header_is_refused_or_harmless(tmp_path, good, data):
    changes = {}
    for name in data.draw(st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, max_size=3, unique=True)):
        small = st.integers(0, 5000)
        changes[name] = data.draw(small | st.integers(0, 2 ** FIELDS[name] - 1))
    path = tmp_path / "t.snap"
    path.write_bytes(forged(good, **changes))
    try:
        snapshot = Snapshot.open(path)
        snapshot.verify()
        snapshot.rows(0, len(snapshot))
    except (StoreDamaged, TableSchemaError) as error:
        assert str(path) in str(error)


@FUZZ
@given(st.binary(max_size=9000))
def test_foreign_bytes_are_refused(tmp_path, raw):
    with pytest.raises((TableFileError, StoreDamaged), match=r"t\.snap"):
        opened(tmp_path / "t.snap", raw)


def test_a_format_of_the_future_is_named(tmp_path, good):
    with pytest.raises(TableSchemaError, match="format is 2, expected 1"):
        opened(tmp_path / "t.snap", forged(good, format=2))
    with pytest.raises(ParamServerError, match=r"has \d+ bytes, expected"):
        opened(tmp_path / "t.snap", good + bytes(PAGE))
