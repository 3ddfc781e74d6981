"""What the model repository holds of each model: versions that are whole, by name; reading it never loads anything."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lambda_svc.config import ScenarioConfig, ServiceConfig, nothing_published
from lambda_svc.saved_models import saved_versions
from models.package import list_versions, version_dir

__all__ = ["Repository"]


class Repository:
    """The folder that the configuration names."""

    def __init__(self, config: ServiceConfig) -> None:
        self._root = config.repository

    def versions(self, model: str) -> list[int]:
        """Published versions, ascending: packages with a valid manifest, and plain SavedModels."""
        return sorted({*list_versions(self._root, model), *saved_versions(self._root, model)})

    def fetch(self, model: str, version: int) -> Path:
        """The folder of a version."""
        return version_dir(self._root, model, version)

    def nothing(self, model: str, scenarios: Iterable[ScenarioConfig]) -> str:
        """Why no version is wanted, in words for whoever wrote the configuration."""
        return nothing_published(self._root, model, [s.version for s in scenarios if s.version != "latest"])
