"""Intake of a plain SavedModel: copied before it is loaded, like a package; nothing vouches for its bytes."""

from __future__ import annotations

import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lambda_svc.errors import PackageRejected
from lambda_svc.saved_models import read_saved_model, saved_manifest
from lambda_svc.session.saved_graph import SAVED_MODEL_FILE
from models.package import Manifest

if TYPE_CHECKING:
    from lambda_svc.config import SavedModelConfig

__all__ = ["take_in_saved_model"]

_PARTS = ("variables", "assets")


def take_in_saved_model(source: Path, work_dir: Path, settings: SavedModelConfig) -> tuple[Path, Manifest]:
    """Copies graph, variables and vocabularies below `work_dir`: (folder, what a manifest would say).

    Raises PackageRejected naming the file that cannot be copied, or what in the graph cannot be served.
    """
    target = work_dir / "packages" / source.parent.name / source.name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            for name in _files(source):
                (staging / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, staging / "copy" / name, follow_symlinks=False)
            if target.exists():
                target.rename(staging / "replaced")
            (staging / "copy").rename(target)
        finally:
            shutil.rmtree(staging)
    except OSError as error:
        raise PackageRejected(f"{source}: cannot be copied to {work_dir}: {error}") from error
    saved = read_saved_model(target, settings, told_as=source)
    return target, saved_manifest(saved, source.parent.name, int(source.name))


def _files(source: Path) -> Iterator[Path]:
    yield Path(SAVED_MODEL_FILE)
    for part in _PARTS:
        for path in sorted((source / part).rglob("*")):
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                yield path.relative_to(source)
            elif not stat.S_ISDIR(mode):
                raise PackageRejected(f"{path}: not a plain file; a served SavedModel holds plain files only")
