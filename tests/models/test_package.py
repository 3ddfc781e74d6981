"""Packages: what is written is read back, damage anywhere is named, and publication is all or nothing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import PackageError, PackageExistsError, PackageMissingError
from models.manifest import canonical_json, manifest_bytes, parse_manifest
from models.package import MANIFEST_FILE, GraphInput, Source, list_versions, publish, read_manifest, verify
from models.push import push

from . import package_fixture as tiny


@pytest.fixture
def package(tmp_path):
    return tiny.write(tmp_path / "repository")


@pytest.fixture(scope="module")
def raw_manifest(tmp_path_factory):
    return (tiny.write(tmp_path_factory.mktemp("fuzz")) / MANIFEST_FILE).read_bytes()


def redigest(body: dict) -> bytes:
    """Manifest bytes whose own digest is right whatever the rest says."""
    import hashlib

    body = {k: v for k, v in body.items() if k != "manifest_sha256"}
    return canonical_json({**body, "manifest_sha256": hashlib.sha256(canonical_json(body)).hexdigest()})


def test_what_serves_and_what_measures_loads_no_tensorflow():
    names = ["package", "push", "movielens",
             "metrics", "baselines", "features", "examples", "golden", "stock", "tables"]
    code = f"import sys\nfor n in {names!r}: __import__('models.' + n)\nassert 'tensorflow' not in sys.modules"
    root = str(Path(__file__).resolve().parents[2])
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": root})


def test_reads_back_what_was_written(package):
    manifest = verify(package)
    assert (manifest.model, manifest.version) == ("tiny", 1)
    assert manifest.graph == tiny.GRAPH and manifest.tables == tiny.TABLES and manifest.golden == tiny.GOLDEN
    assert manifest.schema == tiny.SCHEMA and manifest.slots == tiny.SLOTS
    assert set(manifest.files) == set(tiny.FILES)
    assert [s.name for s in manifest.slots_of("item")] == ["item"]
    assert manifest_bytes(manifest) == (package / MANIFEST_FILE).read_bytes()


def test_equal_content_gives_equal_bytes(tmp_path):
    one, two = tiny.write(tmp_path / "a"), tiny.write(tmp_path / "b")
    assert (one / MANIFEST_FILE).read_bytes() == (two / MANIFEST_FILE).read_bytes()


@pytest.mark.parametrize("name", [*tiny.FILES, MANIFEST_FILE])
def test_one_flipped_byte_is_named(package, name):
    path = package / name
    good = path.read_bytes()
    for position in range(0, len(good), 1 + len(good) // 300):
        path.write_bytes(good[:position] + bytes([good[position] ^ 0x20]) + good[position + 1:])
        with pytest.raises(PackageError) as caught:
            verify(package)
        assert caught.value.file == name and name in str(caught.value)
    path.write_bytes(good)
    verify(package)


def test_missing_grown_linked_and_unlisted_files_are_named(package, tmp_path):
    graph = package / "graph/item.pb"
    good = graph.read_bytes()
    graph.write_bytes(good + b"x")
    with pytest.raises(PackageError, match="graph/item.pb.*bytes"):
        verify(package)
    graph.unlink()
    with pytest.raises(PackageError, match="graph/item.pb.*missing"):
        verify(package)
    (tmp_path / "outside").write_bytes(good)
    graph.symlink_to(tmp_path / "outside")
    with pytest.raises(PackageError, match="graph/item.pb"):
        verify(package)
    graph.unlink()
    os.mkfifo(graph)
    with pytest.raises(PackageError, match="graph/item.pb"):
        verify(package)
    graph.unlink()
    graph.write_bytes(good)
    (package / "assets/extra").write_bytes(b"")
    with pytest.raises(PackageError, match="assets/extra.*not listed"):
        verify(package)


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_a_manifest_that_is_no_plain_file_is_refused_without_waiting(package, tmp_path, kind):
    path = package / MANIFEST_FILE
    path.rename(tmp_path / "elsewhere")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.mkdir()
    for read in (read_manifest, verify):
        with pytest.raises(PackageError) as caught:
            read(package)
        assert caught.value.file == MANIFEST_FILE and not isinstance(caught.value, PackageMissingError)
    assert list_versions(tmp_path / "repository", "tiny") == []


def test_a_folder_that_cannot_be_read_is_named(package, monkeypatch):
    (package / "hidden").mkdir()
    scandir = os.scandir

    def refuse(path):
        if Path(path).name == "hidden":
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PackageError, match="hidden: not a readable folder: Permission denied"):
        verify(package)


def test_every_version_that_can_be_written_is_listed(tmp_path):
    tiny.write(tmp_path, 10**18 - 1)
    assert list_versions(tmp_path, "tiny") == [10**18 - 1]
    with pytest.raises(PackageError, match="version 10{18}: must be 1 to"):
        tiny.write(tmp_path, 10**18)


def test_linked_folder_is_refused(package, tmp_path):
    (package / "graph").rename(tmp_path / "graph")
    (package / "graph").symlink_to(tmp_path / "graph")
    with pytest.raises(PackageError, match="link"):
        verify(package)


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "graph/../../evil", "a//b", "", ".hidden", "graph/", "a\\b",
                                  "a\x00b", MANIFEST_FILE])
def test_names_that_leave_the_package_are_refused(raw_manifest, name):
    body = json.loads(raw_manifest)
    body["files"][name] = body["files"]["graph/item.pb"]
    with pytest.raises(PackageError, match="not a plain path"):
        parse_manifest(redigest(body))


@pytest.mark.parametrize("model", ["../evil", "a/b", "", ".x", "a\nb"])
def test_model_names_that_leave_the_repository_are_refused(tmp_path, model):
    with pytest.raises(PackageError, match="model"):
        tiny.write(tmp_path, model=model)
    assert list(tmp_path.iterdir()) == []


def change(raw, path, value):
    body = json.loads(raw)
    node = body
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return redigest(body)


@pytest.mark.parametrize("path, value, message", [
    (("format",), 3, "format"),
    (("version",), 0, "version"),
    (("version",), 10**18, "version"),
    (("version",), "1", "version"),
    (("graph", "inputs", 0, "side"), "item", "side item, but slot age"),
    (("graph", "inputs", 0, "shape"), [-1], "must start with 1"),
    (("graph", "inputs", 1, "shape"), [-1, 5], "dim 4"),
    (("graph", "inputs", 1, "source", "table"), "nope", "table 'nope'"),
    (("graph", "inputs", 1, "source", "slot"), "nope", "slot 'nope'"),
    (("graph", "inputs", 0, "source", "table"), "item", "takes no table"),
    (("graph", "inputs", 1, "source", "mode"), "mean", "takes no mode"),
    (("graph", "outputs"), [], "at least one head"),
    (("graph", "file"), "graph/user.pb", "graph.file"),
    (("golden", "tolerance"), {}, "golden.tolerance"),
    (("golden", "tolerance", "liked"), -1.0, "golden.tolerance.liked"),
    (("tables", 0, "dim"), 0, "dim"),
    (("tables", 0, "extra"), 0, "extra"),
    (("files", "graph/item.pb", "sha256"), "xyz", "sha256"),
    (("slots", 0, "feature"), "nope", "'nope'"),
    (("schema",), {}, "schema"),
    (("model",), "a/b", "model"),
])
def test_contradictions_are_named(raw_manifest, path, value, message):
    with pytest.raises(PackageError) as caught:
        parse_manifest(change(raw_manifest, path, value))
    assert caught.value.file == MANIFEST_FILE and message in str(caught.value)


def test_writing_a_contradiction_leaves_nothing(tmp_path):
    inputs = (GraphInput(name="x:0", dtype="f32", shape=(-1, 4), side="item",
                         source=Source(kind="rows", slot="missing", table="item")),)
    with pytest.raises(PackageError, match="missing"):
        tiny.write(tmp_path, graph=tiny.GRAPH.model_copy(update={"inputs": inputs}))
    with pytest.raises(PackageError, match="notes"):
        tiny.write(tmp_path, notes={"auc": float("nan")})
    assert list((tmp_path / "tiny").iterdir()) == []


def test_versions_are_listed_once_whole(tmp_path):
    assert list_versions(tmp_path, "tiny") == []
    tiny.write(tmp_path, 10)
    tiny.write(tmp_path, 2)
    (tmp_path / "tiny" / "3").mkdir()
    (tmp_path / "tiny" / "04").mkdir()
    (tmp_path / "tiny" / "notes.txt").write_text("x")
    (tmp_path / "tiny" / "10").rename(tmp_path / "tiny" / "11")
    assert list_versions(tmp_path, "tiny") == [2]
    with pytest.raises(PackageMissingError):
        read_manifest(tmp_path / "tiny" / "3")


def test_a_version_is_never_overwritten_and_failures_leave_nothing(tmp_path):
    package = tiny.write(tmp_path)
    before = (package / MANIFEST_FILE).read_bytes()
    with pytest.raises(PackageExistsError):
        tiny.write(tmp_path, notes={})

    def broken(directory):
        tiny.fill(directory)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        tiny.write(tmp_path, 2, fill=broken)
    assert (package / MANIFEST_FILE).read_bytes() == before
    assert os.listdir(tmp_path / "tiny") == ["1"]


def test_of_two_writers_of_a_version_one_wins(tmp_path):
    with pytest.raises(PackageExistsError):
        with publish(tmp_path, "tiny", 1) as staging:
            tiny.fill(staging)
            winner = tiny.write(tmp_path)
    assert verify(winner).version == 1 and os.listdir(tmp_path / "tiny") == ["1"]


def test_push_copies_and_refuses_damage(tmp_path):
    source = tiny.write(tmp_path / "out")
    target = push(source, tmp_path / "repository")
    assert target == tmp_path / "repository" / "tiny" / "1"
    assert verify(target) == verify(source)
    with pytest.raises(PackageExistsError):
        push(source, tmp_path / "repository")
    other = tiny.write(tmp_path / "out", 2)
    with pytest.raises(PackageError, match="version 2"):
        push(other, tmp_path / "repository", version=3)
    (other / "golden.arrow").write_bytes(b"gOlden")
    with pytest.raises(PackageError, match="golden.arrow"):
        push(other, tmp_path / "repository")
    assert list_versions(tmp_path / "repository", "tiny") == [1]


def lose(package):
    (package / "graph/item.pb").unlink()


def cut(package):
    (package / "golden.arrow").write_bytes(b"")


def unmake(package):
    (package / MANIFEST_FILE).unlink()


def misplace(package):
    manifest = (tiny.write(package.parent / "elsewhere", 2) / MANIFEST_FILE).read_bytes()
    (package / MANIFEST_FILE).write_bytes(manifest)
    shutil.rmtree(package.parent / "elsewhere")


@pytest.mark.parametrize("spoil", [lose, cut, unmake, misplace])
def test_push_replaces_a_version_that_does_not_verify_and_keeps_what_was_there(tmp_path, spoil):
    source, replaced = tiny.write(tmp_path / "out"), []
    target = push(source, tmp_path / "repository")
    spoil(target)
    before = sorted(path.name for path in target.rglob("*"))
    assert push(source, tmp_path / "repository", replaced=lambda *told: replaced.append(told)) == target
    assert verify(target) == verify(source)
    [(aside, damage)] = replaced
    assert isinstance(damage, PackageError) and sorted(path.name for path in aside.rglob("*")) == before
    assert list_versions(tmp_path / "repository", "tiny") == [1]
    with pytest.raises(PackageExistsError, match="never overwritten"):
        push(source, tmp_path / "repository")


def test_a_good_version_that_comes_while_another_is_pushed_stays(tmp_path):
    source = tiny.write(tmp_path / "out")
    target = tmp_path / "tiny" / "1"
    target.mkdir(parents=True)
    with pytest.raises(PackageExistsError, match="first"):
        with publish(tmp_path, "tiny", 1, replaced=lambda *_: None) as staging:
            tiny.fill(staging)
            push(source, tmp_path)
            inode = target.stat().st_ino
    assert verify(target) == verify(source) and target.stat().st_ino == inode


def test_damage_is_told_by_its_whole_path_with_advice(tmp_path):
    source = tiny.write(tmp_path / "out")
    (source / "golden.arrow").write_bytes(b"gOlden")
    with pytest.raises(PackageError, match=f"^{source}/golden.arrow: damaged: .*; export it again$"):
        push(source, tmp_path / "repository")
    with pytest.raises(PackageError, match=f"^{source}/golden.arrow: damaged: .*; push it again$"):
        verify(source)
    lose(source)
    (source / "golden.arrow").unlink()
    with pytest.raises(PackageError, match=f"^{source}/golden.arrow: missing; push it again$"):
        verify(source)
    unmake(source)
    with pytest.raises(PackageMissingError, match=f"^{source}/{MANIFEST_FILE}: missing"):
        verify(source)
    whole = tiny.write(tmp_path / "out", 2)
    (whole / "notes.txt").write_text("by the way")
    with pytest.raises(PackageError, match=f"^{whole}/notes.txt: not listed in the manifest; move it out"):
        push(whole, tmp_path / "repository")


def test_push_of_what_is_no_version_says_what_would_be(tmp_path):
    source = tiny.write(tmp_path / "out")
    for folder in (source.parent, source.parent.parent):
        with pytest.raises(PackageMissingError, match=f"^{folder}: not the folder of one version; push {source}$"):
            push(folder, tmp_path / "repository")
    with pytest.raises(PackageMissingError, match="nowhere: no such folder$"):
        push(tmp_path / "nowhere", tmp_path / "repository")
    (tmp_path / "empty").mkdir()
    with pytest.raises(PackageMissingError, match="empty: no model package here"):
        push(tmp_path / "empty", tmp_path / "repository")


@given(st.binary(max_size=400))
def test_random_bytes_give_only_typed_errors(data):
    with pytest.raises(PackageError):
        parse_manifest(data)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_mutated_manifests_give_only_typed_errors(raw_manifest, data):
    raw = bytearray(raw_manifest)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at:at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    if bytes(raw) != raw_manifest:
        with pytest.raises(PackageError):
            parse_manifest(bytes(raw))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2**70, 2**70) | st.text(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=6)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_redigested_nonsense_gives_only_typed_errors(raw_manifest, data):
    body = json.loads(raw_manifest)
    node, key = body, data.draw(st.sampled_from(sorted(body)))
    while isinstance(node[key], (dict, list)) and node[key] and data.draw(st.booleans()):
        node = node[key]
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
    node[key] = data.draw(json_values)
    try:
        parse_manifest(redigest(body))
    except PackageError as error:
        assert error.file == MANIFEST_FILE


@pytest.mark.parametrize("raw", [b"[" * 200_000, b"{}\n", b"[]\n", b"null\n", b"1" * 10_000 + b"\n", b'{"a":NaN}\n',
                                 b'{"a":1e999}\n', b"\xff\xfe", b""])
def test_hostile_documents_are_refused(raw):
    with pytest.raises(PackageError):
        parse_manifest(raw)
