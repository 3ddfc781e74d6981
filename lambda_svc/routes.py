"""Which version of its model serves a request: the scenario's own, one that the request names, or a rollout's share.

Routes are immutable: a switch of versions replaces them whole, so that a request sees either all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lambda_svc.errors import InvalidRequest, NotFound
from lambda_svc.plan import ScenarioPlan

__all__ = ["Route", "Routes", "Split", "share_of"]

_BITS = (1 << 64) - 1
_SHARES = 10_000


def share_of(user_id: int, salt: int) -> float:
    """Where a user stands among all, in [0, 1): the same in every process, and another for each salt."""
    mixed = (user_id ^ (salt * 0x9E3779B97F4A7C15)) & _BITS
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & _BITS
    return ((mixed ^ (mixed >> 31)) % _SHARES) / _SHARES


@dataclass(frozen=True)
class Split:
    """A version on trial, and the share of users that it serves: they come back to it; a larger share keeps them."""

    version: int
    share: float
    salt: int


@dataclass(frozen=True)
class Route:
    """The versions that serve one scenario. `stable` is where requests go that name none and are in no split."""

    stable: ScenarioPlan
    versions: Mapping[int, ScenarioPlan]
    labels: Mapping[str, int] = field(default_factory=dict)
    split: Split | None = None

    def pick(self, user_id: int, version: int = 0, label: str = "") -> ScenarioPlan:
        """The plan of a request; version 0 and an empty label name none. Raises NotFound, InvalidRequest."""
        if version and label:
            raise InvalidRequest("version", f"{version} and label {label!r}", "one of both")
        if label:
            if label not in self.labels:
                raise NotFound(f"label: got {label!r}, expected one of {sorted(self.labels)}")
            version = self.labels[label]
        if version:
            return self._version(version)
        split = self.split
        if split is not None and split.version in self.versions and share_of(user_id, split.salt) < split.share:
            return self.versions[split.version]
        return self.stable

    def _version(self, version: int) -> ScenarioPlan:
        if version not in self.versions:
            raise NotFound(f"version: got {version}, expected one that serves: {sorted(self.versions)}")
        return self.versions[version]


Routes = Mapping[str, Route]
"""By scenario."""
