"""Model packages on disk: write, read, verify, list. The only part of `models` that the service imports.

    <repository>/<model>/<version>/
        manifest.json      written last; vouches for itself and for every other file
        graph/item.pb      frozen graph, as the framework wrote it
        graph/<variant>/   other graphs with the same scores: item.pb, and user.pb when the user's part is split off
        tables/*.parquet   embedding tables cut out of it
        golden.arrow       recorded inputs and scores
        assets/            whatever else the model needs

A version appears by one rename of a hidden sibling, after every file and directory in it was synced; a directory
without a valid manifest does not exist. Equal content gives equal bytes: nothing here records a clock time.
"""

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from feature_store.schema import Schema
from feature_store.transforms import Slot

from .allow_list import check_graph
from .errors import GraphError, PackageError, PackageExistsError, PackageMissingError, SignatureError
from .manifest import (
    MANIFEST_BYTES_MAX,
    MANIFEST_FILE,
    VERSION_MAX,
    FileEntry,
    Golden,
    Graph,
    GraphInput,
    GraphOutput,
    Initializer,
    Manifest,
    Source,
    TableFile,
    is_safe_name,
    is_safe_path,
    manifest_bytes,
    parse_manifest,
)
from .signature_input import SignatureInput, choose_heads, sides_of, signature_input
from .variants import PLAIN, SharedTensor, UserGraph, Variant, VariantHead

__all__ = [
    "MANIFEST_FILE", "PLAIN", "FileEntry", "Golden", "Graph", "GraphError", "GraphInput", "GraphOutput", "Initializer",
    "Manifest",
    "PackageError", "PackageExistsError", "PackageMissingError", "SharedTensor", "SignatureError", "SignatureInput",
    "Source", "TableFile", "UserGraph", "Variant", "VariantHead", "check_graph", "check_graphs", "choose_heads",
    "is_safe_name", "list_versions", "manifest_bytes", "publish", "read_manifest", "sides_of", "signature_input",
    "verify", "version_dir", "write_package",
]

_CHUNK_BYTES = 1 << 20
_STAGING_PREFIX = ".staging-"
_DAMAGED_PREFIX = ".damaged-"


def version_dir(repository: Path | str, model: str, version: int) -> Path:
    """Where that version lives. Raises PackageError for a model name that is not one plain path component."""
    if not is_safe_name(model):
        raise PackageError(MANIFEST_FILE, f"model name {model!r}: letters, digits, '_', '-', '.' only, no leading dot")
    if not 1 <= version <= VERSION_MAX:
        raise PackageError(MANIFEST_FILE, f"version {version}: must be 1 to {VERSION_MAX}")
    return Path(repository) / model / str(version)


def read_manifest(directory: Path | str) -> Manifest:
    """The checked manifest of the package in `directory`. Does not read the other files.

    Raises PackageMissingError when there is none, PackageError (naming manifest.json) when it is not valid.
    """
    path = Path(directory) / MANIFEST_FILE
    try:
        with _open_plain(path, MANIFEST_FILE) as file:
            raw = file.read(MANIFEST_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise PackageMissingError(MANIFEST_FILE, "missing, so there is no model package here", directory) from error
    except OSError as error:
        raise PackageError(MANIFEST_FILE, f"cannot be read: {error.strerror}", directory) from error
    try:
        return parse_manifest(raw)
    except PackageError as error:
        raise PackageError(error.file, error.problem, directory) from error


def verify(directory: Path | str, mend: str = "push it again") -> Manifest:
    """Reads the manifest and hashes every file. Raises PackageError, naming the file, for one that is missing, damaged,
    of another size, not a plain file, or not listed. `mend` is the message's advice to whoever finds a damaged one."""
    root = Path(directory)
    manifest = read_manifest(root)
    for name, entry in sorted(manifest.files.items()):
        try:
            found = _describe(root, name, entry.bytes)
        except PackageError as error:
            raise PackageError(name, f"{error.problem}; {mend}", root) from error
        if found != entry:
            problem = f"damaged: sha256 {found.sha256}, the manifest says {entry.sha256}; {mend}"
            raise PackageError(name, problem, root)
    try:
        unlisted = sorted(set(_walk(root)) - set(manifest.files) - {MANIFEST_FILE})
    except PackageError as error:
        raise PackageError(error.file, f"{error.problem}; {mend}", root) from error
    if unlisted:
        raise PackageError(unlisted[0], "not listed in the manifest; move it out of the package's folder", root)
    return manifest


def check_graphs(directory: Path | str, manifest: Manifest) -> None:
    """Refuses a package one of whose graphs, functions inside it included, holds an op that a served graph may not.

    What is checked is what the manifest vouches for: a graph that is damaged is refused as such. A vocabulary is read
    only by the paths that the manifest's initializers name. Raises PackageError naming the file, and the node and its
    op.
    """
    root = Path(directory)
    paths = {one.asset for one in manifest.initializers if one.asset is not None}
    for name in manifest.graph_files():
        try:
            with _open_plain(root / name, name) as file:
                raw = file.read()
        except OSError as error:
            raise PackageError(name, f"cannot be read: {error.strerror}", root) from error
        if hashlib.sha256(raw).hexdigest() != manifest.files[name].sha256:
            raise PackageError(name, "damaged: not the file that the manifest vouches for", root)
        try:
            check_graph(raw, paths if name == manifest.graph.file else ())
        except GraphError as error:
            raise PackageError(name, str(error), root) from error


def list_versions(repository: Path | str, model: str) -> list[int]:
    """The published versions of `model`, ascending: directories named by an integer that hold a valid manifest of that
    model and version. Empty when there are none."""
    versions = []
    try:
        names = os.listdir(version_dir(repository, model, 1).parent)
    except (FileNotFoundError, NotADirectoryError):
        return []
    for name in names:
        if not (name.isascii() and name.isdigit() and len(name) <= 18 and str(int(name)) == name and name != "0"):
            continue
        try:
            manifest = read_manifest(version_dir(repository, model, int(name)))
        except PackageError:
            continue
        if (manifest.model, manifest.version) == (model, int(name)):
            versions.append(int(name))
    return sorted(versions)


def write_package(
    repository: Path | str,
    *,
    model: str,
    version: int,
    schema: Schema,
    slots: Sequence[Slot],
    graph: Graph,
    tables: Sequence[TableFile],
    golden: Golden,
    fill: Callable[[Path], None],
    notes: Mapping[str, Any] | None = None,
    variants: Sequence[Variant] = (),
    initializers: Sequence[Initializer] = (),
) -> Path:
    """Publishes one version and returns its directory.

    `fill` receives an empty directory and writes every file but the manifest into it; digests are computed afterwards,
    the manifest is written last. Raises PackageExistsError when the version exists, PackageError when the files do not
    match what graph, tables and golden name. Nothing is left behind on failure.
    """
    with publish(repository, model, version) as staging:
        fill(staging)
        files = {name: _describe(staging, name) for name in sorted(_walk(staging))}
        parts = (schema, tuple(slots), graph, tuple(tables), golden, files, dict(notes or {}), tuple(variants),
                 tuple(initializers))
        raw = manifest_bytes(Manifest(model, version, *parts))
        parse_manifest(raw)
        (staging / MANIFEST_FILE).write_bytes(raw)
    return version_dir(repository, model, version)


@contextmanager
def publish(repository: Path | str, model: str, version: int,
            replaced: Callable[[Path, PackageError], None] | None = None) -> Iterator[Path]:
    """Yields a hidden empty directory beside the version's own; on success syncs it and renames it into place.

    With `replaced`, a version that is there but does not verify makes way: it is renamed to a hidden sibling, and
    `replaced` is told where to and what was wrong. Raises PackageExistsError when the version exists otherwise, before
    and after. The hidden directory is removed on failure.
    """
    target = version_dir(repository, model, version)
    if os.path.lexists(target) and (replaced is None or _damage(target, model, version) is None):
        raise PackageExistsError(
            str(target), "this version exists; a good version is never overwritten, export under another number")
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=_STAGING_PREFIX, dir=target.parent))
    try:
        staging.chmod(0o755)
        yield staging
        _sync_tree(staging)
        if replaced is not None and os.path.lexists(target):
            replaced(*_set_aside(target, model, version))
        try:
            os.rename(staging, target)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise PackageExistsError(str(target), "another writer published this version first") from error
            raise
        _sync(target.parent)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def _damage(folder: Path, model: str, version: int) -> PackageError | None:
    """Why what is in `folder` is not that version; None when it is, whole."""
    try:
        manifest = verify(folder)
    except PackageError as error:
        return error
    if (manifest.model, manifest.version) == (model, version):
        return None
    return PackageError(MANIFEST_FILE, f"is of {manifest.model!r} version {manifest.version}", folder)


def _set_aside(target: Path, model: str, version: int) -> tuple[Path, PackageError]:
    """Renames a damaged version to a hidden sibling: where it is now, and its damage.

    It is looked at again there, where no other writer comes: a good one that took the place meanwhile goes back.
    """
    aside = Path(tempfile.mkdtemp(prefix=f"{_DAMAGED_PREFIX}{version}-", dir=target.parent)) / target.name
    os.rename(target, aside)
    damage = _damage(aside, model, version)
    if damage is None:
        os.rename(aside, target)
        aside.parent.rmdir()
        raise PackageExistsError(str(target), "another writer published this version first")
    return aside, damage


def _walk(root: Path) -> Iterator[str]:
    """Names of all files below `root`, with `/`; links are reported like files, for `_describe` to refuse."""
    def refuse(error: OSError) -> None:
        raise PackageError(os.path.relpath(error.filename, root), f"not a readable folder: {error.strerror}") from error

    for folder, folders, files in os.walk(root, onerror=refuse):
        for name in [*files, *(d for d in folders if os.path.islink(os.path.join(folder, d)))]:
            yield Path(folder, name).relative_to(root).as_posix()


def _describe(root: Path, name: str, bytes_expected: int | None = None) -> FileEntry:
    """Digest and size of one file. The size is compared first, so that a huge impostor is not hashed."""
    if not is_safe_path(name):
        raise PackageError(name, "not a plain path inside the package")
    digest, total = hashlib.sha256(), 0
    try:
        for parent in [*Path(name).parents][:-1]:
            if (root / parent).is_symlink():
                raise PackageError(name, f"{parent} is a link; packages hold plain files only")
        with _open_plain(root / name, name) as file:
            size = os.fstat(file.fileno()).st_size
            if bytes_expected is not None and size != bytes_expected:
                raise PackageError(name, f"damaged: {size} bytes, the manifest says {bytes_expected}")
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                total += len(chunk)
    except FileNotFoundError as error:
        raise PackageError(name, "missing") from error
    except OSError as error:
        raise PackageError(name, f"not a readable plain file: {error.strerror}") from error
    return FileEntry(sha256=digest.hexdigest(), bytes=total)


def _open_plain(path: Path, name: str) -> BinaryIO:
    """Opens a file for reading, but no link, and without waiting for the other end of a pipe."""
    file = open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise PackageError(name, "not a plain file")
    return file


def _sync_tree(root: Path) -> None:
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            _sync(Path(folder, name))
        _sync(Path(folder))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
