"""What a pushed graph holds is looked at when it is pushed: by op, in every graph of the package."""

import hashlib
import random
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from models.errors import PackageError
from models.package import FileEntry, Manifest, Variant, VariantHead, check_graphs, list_versions, read_manifest
from models.push import push
from models.variants import SharedTensor, UserGraph
from tools.cli import app

from . import package_fixture as tiny
from .graph_bytes import HOSTILE, graph, node, varint

GOOD = tiny.FILES[tiny.GRAPH.file]
VARIANT = Variant(name="fast", file="graph/fast/item.pb", inputs=("item_rows:0", "age:0"),
                  heads=(VariantHead(head="liked", name="liked:0"),),
                  user=UserGraph(file="graph/fast/user.pb", inputs=("age:0",)),
                  shared=(SharedTensor(name="shared:0", shape=(1, 2)),))
PLACES = (tiny.GRAPH.file, *VARIANT.files, "assets/more/graph.pb")


def package(repository, version=1, **graphs):
    """The tiny package with a variant, files replaced by `graphs`."""
    def fill(directory):
        tiny.fill(directory)
        for name in PLACES:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(graphs.get(name, GOOD))

    return tiny.write(repository, version, fill=fill, variants=(VARIANT,))


@pytest.mark.parametrize("op", HOSTILE)
@pytest.mark.parametrize("place", PLACES)
def test_push_refuses_and_names_file_node_and_op(tmp_path, place, op):
    push(package(tmp_path / "out"), tmp_path / "repository")
    bad = package(tmp_path / "out", 2, **{place: GOOD + HOSTILE[op]})
    result = CliRunner().invoke(app, ["push", str(bad), str(tmp_path / "repository")])
    assert result.exit_code == 1
    assert result.output.startswith(f"lambda-svc: not pushed: {bad / place}: node ") and f"({op}): " in result.output
    assert ("of function 'deep'" in result.output) == (op == "PrintV2")
    assert list_versions(tmp_path / "repository", "tiny") == [1]
    assert [path.name for path in (tmp_path / "repository" / "tiny").iterdir()] == ["1"]


def test_a_good_package_is_pushed(tmp_path):
    source = package(tmp_path / "out")
    check_graphs(source, read_manifest(source))
    assert push(source, tmp_path / "repository").is_dir()


def test_what_is_checked_is_what_the_manifest_vouches_for(tmp_path):
    source = package(tmp_path)
    (source / tiny.GRAPH.file).write_bytes(GOOD[:-1] + b"w")
    with pytest.raises(PackageError, match=r"graph/item\.pb: damaged: not the file"):
        check_graphs(source, read_manifest(source))
    (source / tiny.GRAPH.file).unlink()
    with pytest.raises(PackageError, match=r"graph/item\.pb: cannot be read"):
        check_graphs(source, read_manifest(source))


def test_a_field_number_that_wraps_around_is_no_cloak():
    """The C++ parser keeps 32 bits of a field's number, which would make a node of what others pass over."""
    hidden = node("in", "ReadFile")
    raw = GOOD + b"\x8a\x80\x80\x80\x10" + varint(len(hidden)) + hidden
    with pytest.raises(PackageError, match="a field's number is too large"):
        _check(raw)


def test_malformed_graphs_end_as_package_errors():
    whole, rng = GOOD + graph(node("a", "Const"), node("b", "Mul", "a", "a")) + HOSTILE["PrintV2"], random.Random(3)
    outcomes = set()
    for _ in range(400):
        raw = bytearray(whole[:rng.randrange(len(whole) + 1)])
        for _ in range(rng.randrange(4)):
            if raw:
                raw[rng.randrange(len(raw))] = rng.randrange(256)
        try:
            _check(bytes(raw))
            outcomes.add("good")
        except PackageError as error:
            outcomes.add("op" if "(" in error.problem else "bytes")
            assert error.file == tiny.GRAPH.file
    assert outcomes == {"good", "op", "bytes"}


def _check(raw: bytes) -> None:
    entry = FileEntry(sha256=hashlib.sha256(raw).hexdigest(), bytes=len(raw))
    manifest = Manifest("tiny", 1, tiny.SCHEMA, tiny.SLOTS, tiny.GRAPH, (), tiny.GOLDEN, {tiny.GRAPH.file: entry})
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "graph").mkdir()
        (Path(folder) / tiny.GRAPH.file).write_bytes(raw)
        check_graphs(folder, manifest)
