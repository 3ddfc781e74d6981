"""Intake: a package is copied before it is mapped or loaded, so that no writer can pull it from under a request.

What is verified is the copy: a file that changes while it is copied fails its checksum here.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from lambda_svc.errors import PackageRejected
from models.package import Manifest, PackageError, read_manifest, verify

__all__ = ["take_in"]


def take_in(package: Path, work_dir: Path) -> tuple[Path, Manifest]:
    """Copies a version's folder below `work_dir` and verifies the copy: (folder, manifest).

    A copy left by an earlier start is used again when it still verifies and is of the same manifest. Raises
    PackageRejected naming the damaged file.
    """
    try:
        manifest = read_manifest(package)
        target = work_dir / "packages" / manifest.model / str(manifest.version)
        if _same(target, package):
            return target, verify(target)
        return _copy(package, target)
    except PackageError as error:
        raise PackageRejected(str(error)) from error
    except OSError as error:
        raise PackageRejected(f"{package}: cannot be copied to {work_dir}: {error}") from error


def _same(copy: Path, package: Path) -> bool:
    manifest = copy / "manifest.json"
    return manifest.is_file() and manifest.read_bytes() == (package / "manifest.json").read_bytes()


def _copy(package: Path, target: Path) -> tuple[Path, Manifest]:
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        shutil.copytree(package, staging / "copy")
        manifest = verify(staging / "copy")
        if target.exists():
            target.rename(staging / "replaced")
        (staging / "copy").rename(target)
        return target, manifest
    finally:
        shutil.rmtree(staging)
