"""Push: copy a package into a repository, so that it appears there whole or not at all."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from .errors import PackageError, PackageMissingError
from .manifest import MANIFEST_FILE, Manifest
from .package import check_graphs, publish, verify, version_dir

__all__ = ["push"]

_SUGGESTED_MAX = 3


def push(package_dir: Path | str, repository: Path | str, version: int | None = None,
         replaced: Callable[[Path, PackageError], None] = lambda aside, damage: None) -> Path:
    """Copies the package in `package_dir` to `<repository>/<model>/<version>/` and returns that directory.

    The source is verified first and the copy again before it is renamed into place, so that neither a damaged source
    nor a writer that changes it meanwhile can be published. `version` may only repeat the manifest's own: a version is
    part of what the manifest vouches for. A version that is there already but damaged or incomplete is moved to a
    hidden sibling first; `replaced` is told where, and what was wrong with it. A graph with an op that is not allowed
    (models.allow_list) is refused, naming node and op. Raises PackageError naming the file, PackageMissingError when
    there is no package in `package_dir`, PackageExistsError when the version exists and is good.
    """
    source = Path(package_dir)
    _refuse_other_folders(source)
    manifest = verify(source, mend="export it again")
    if version is not None and version != manifest.version:
        problem = f"is version {manifest.version}, not {version}; export it under that version"
        raise PackageError(MANIFEST_FILE, problem, source)
    check_graphs(source, manifest)
    with publish(repository, manifest.model, manifest.version, replaced) as staging:
        _copy(source, staging, manifest)
        if not _is_copy(staging, manifest):
            raise PackageError(MANIFEST_FILE, "changed while it was copied; push again", source)
    return version_dir(repository, manifest.model, manifest.version)


def _refuse_other_folders(source: Path) -> None:
    """Raises PackageMissingError for a folder of no version, naming versions below it."""
    if not os.path.isdir(source):
        raise PackageMissingError(str(source), "no such folder")
    if os.path.lexists(source / MANIFEST_FILE):
        return
    below = sorted(path.parent for depth in ("*", "*/*") for path in source.glob(f"{depth}/{MANIFEST_FILE}"))
    if below:
        names = " or ".join(map(str, below[-_SUGGESTED_MAX:]))
        raise PackageMissingError(str(source), f"not the folder of one version; push {names}")
    raise PackageMissingError(str(source), f"no model package here: there is no {MANIFEST_FILE}")


def _copy(source: Path, staging: Path, manifest: Manifest) -> None:
    for name in [*sorted(manifest.files), MANIFEST_FILE]:
        target = staging / name
        os.makedirs(target.parent, exist_ok=True)
        shutil.copyfile(source / name, target, follow_symlinks=False)


def _is_copy(staging: Path, manifest: Manifest) -> bool:
    try:
        return verify(staging) == manifest
    except PackageError:
        return False
