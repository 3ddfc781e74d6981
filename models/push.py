"""Push: copy a package into a repository, so that it appears there whole or not at all."""

import os
import shutil
from pathlib import Path

from .errors import PackageError
from .manifest import MANIFEST_FILE, Manifest
from .package import publish, verify, version_dir

__all__ = ["push"]


def push(package_dir: Path | str, repository: Path | str, version: int | None = None) -> Path:
    """Copies the package in `package_dir` to `<repository>/<model>/<version>/` and returns that directory.

    The source is verified first and the copy again before it is renamed into place, so that neither a damaged source
    nor a writer that changes it meanwhile can be published. `version` may only repeat the manifest's own: a version is
    part of what the manifest vouches for. Raises PackageError naming the file, PackageExistsError when the version
    exists.
    """
    source = Path(package_dir)
    manifest = verify(source)
    if version is not None and version != manifest.version:
        raise PackageError(MANIFEST_FILE, f"is version {manifest.version}, not {version}; export it under that version")
    with publish(repository, manifest.model, manifest.version) as staging:
        _copy(source, staging, manifest)
        if verify(staging) != manifest:
            raise PackageError(MANIFEST_FILE, f"{source} changed while it was copied; push it again")
    return version_dir(repository, manifest.model, manifest.version)


def _copy(source: Path, staging: Path, manifest: Manifest) -> None:
    for name in [*sorted(manifest.files), MANIFEST_FILE]:
        target = staging / name
        os.makedirs(target.parent, exist_ok=True)
        shutil.copyfile(source / name, target, follow_symlinks=False)
