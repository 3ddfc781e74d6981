"""Intake: a package is copied before it is mapped or loaded, so that no writer can pull it from under a request.

What is verified is the copy: a file that changes while it is copied fails its checksum here. Either of the two may be
damaged later, the repository's or the copy, and the other one is served then.

Whoever can write to a repository must not thereby run what he likes here: the copy's graphs are held against the
allow-list of ops before any library parses them, whether they came by `push` or another way.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path

from lambda_svc.config import SavedModelConfig
from lambda_svc.errors import PackageRejected
from lambda_svc.lifecycle.intake_saved_model import take_in_saved_model
from lambda_svc.saved_models import is_saved_model
from models.package import Manifest, PackageError, check_graphs, read_manifest, verify

__all__ = ["take_in"]

log = logging.getLogger("lambda_svc")


def take_in(package: Path, work_dir: Path, saved_model: SavedModelConfig | None = None) -> tuple[Path, Manifest]:
    """Copies a version's folder below `work_dir` and verifies the copy: (folder, manifest). A folder that is no package
    but a plain SavedModel is taken in as `saved_model` says.

    A copy left by an earlier start is used again when it still verifies and is of the same manifest, even when the
    package itself is damaged by now; that is logged. Raises PackageRejected naming the damaged file; or file, node and
    op, when a graph holds an op that may not be served.
    """
    if is_saved_model(package):
        return take_in_saved_model(package, work_dir, saved_model or SavedModelConfig())
    try:
        manifest = read_manifest(package)
        target = work_dir / "packages" / manifest.model / str(manifest.version)
        folder, manifest = _kept(package, target) or _copy(package, target)
        _admit(folder, manifest, package)
        return folder, manifest
    except PackageError as error:
        raise PackageRejected(str(error)) from error
    except OSError as error:
        raise PackageRejected(f"{package}: cannot be copied to {work_dir}: {error}") from error


def _admit(folder: Path, manifest: Manifest, package: Path) -> None:
    try:
        check_graphs(folder, manifest)
    except PackageError as error:  # told by the path that was pushed
        raise PackageError(error.file, error.problem, package) from error


def _kept(package: Path, target: Path) -> tuple[Path, Manifest] | None:
    """The copy of an earlier start, if it is of the same manifest and whole."""
    if not _same(target, package):
        return None
    try:
        manifest = verify(target, mend="the repository has it")
    except PackageError as error:
        log.warning("the copy of an earlier start is damaged, copying it again: %s", error)
        return None
    try:
        verify(package, mend="push it again before that copy is lost")
    except PackageError as error:
        log.warning("the repository is damaged, serving the whole copy in %s: %s", target, error)
    return target, manifest


def _same(copy: Path, package: Path) -> bool:
    manifest = copy / "manifest.json"
    try:
        return manifest.read_bytes() == (package / "manifest.json").read_bytes()
    except OSError:
        return False


def _copy(package: Path, target: Path) -> tuple[Path, Manifest]:
    verify(package)
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        shutil.copytree(package, staging / "copy")
        manifest = _verified_copy(staging / "copy", package)
        if target.exists():
            target.rename(staging / "replaced")
        (staging / "copy").rename(target)
        return target, manifest
    finally:
        shutil.rmtree(staging)


def _verified_copy(copy: Path, package: Path) -> Manifest:
    try:
        return verify(copy)
    except PackageError as error:  # told by a path that lasts
        raise PackageError(error.file, "changed while it was copied; start again", package) from error
