"""A rollout's document: `<repository>/.rollouts/<scenario>.json`, which operators and servers read and write.

It lies beside the models, so that every replica that serves them follows the same rollout and a restart goes on with
it. Changes are made under a lock and replace the file whole.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from lambda_svc.errors import RolloutError

__all__ = ["Limits", "Rollout", "RolloutFiles", "State"]

State = Literal["running", "promoted", "aborted", "rolled_back"]
Share = Annotated[float, Field(gt=0, le=100)]


class Limits(BaseModel):
    """What a version on trial may differ from stable by, each above what chance explains.

    error_rate: share of requests that fail, more than stable's. latency_ratio: of 95th percentiles. calibration: of the
    mean predicted, relative, of any head. drift: population stability index of any head's scores. requests_min: of
    each before anything is judged.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    error_rate: Annotated[float, Field(ge=0, le=1)] = 0.01
    latency_ratio: Annotated[float, Field(gt=1)] = 1.5
    calibration: Annotated[float, Field(gt=0)] = 0.05
    drift: Annotated[float, Field(gt=0)] = 0.2
    requests_min: Annotated[int, Field(ge=1)] = 200


class Rollout(BaseModel):
    """One version's way to all users. `steps` are per cent of users, `step` where it is; `shadow` means that before the
    first step it scores beside, for nobody. `hold_s` is how long a step lasts at least; `failed` are versions that
    earlier rollouts found wanting, `promoted` the last one that an earlier one promoted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scenario: str
    model: str
    version: Annotated[int, Field(ge=1)]
    steps: Annotated[tuple[Share, ...], Field(min_length=1)] = (5.0, 20.0, 50.0, 100.0)
    step: Annotated[int, Field(ge=-1)] = 0
    hold_s: Annotated[float, Field(ge=0)] = 600.0
    limits: Limits = Limits()
    salt: int = 0
    state: State = "running"
    reason: str = ""
    failed: tuple[int, ...] = ()
    promoted: int | None = None
    step_started_s: float = 0.0

    @field_validator("steps")
    @classmethod
    def _rising(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if list(value) != sorted(set(value)):
            raise ValueError("per cents that rise")
        return value

    @property
    def shadow(self) -> bool:
        """Whether it scores beside, for nobody."""
        return self.state == "running" and self.step < 0

    @property
    def share(self) -> float:
        """Of users, 0 to 1."""
        return self.steps[self.step] / 100 if self.state == "running" and self.step >= 0 else 0.0

    @property
    def found_wanting(self) -> tuple[int, ...]:
        """Versions that may not come to serve by being the newest, this one included once it ended so."""
        others = set(self.failed) - {self.version}
        return tuple(sorted(others | ({self.version} if self.state in ("rolled_back", "aborted") else set())))

    @property
    def last_promoted(self) -> int | None:
        """By this rollout or one before."""
        return self.version if self.state == "promoted" else self.promoted

    def forward(self, now_s: float) -> Rollout:
        """At its next step, or promoted after the last."""
        if self.step + 1 < len(self.steps):
            return self.model_copy(update={"step": self.step + 1, "step_started_s": now_s})
        return self.ended("promoted", "it held at its last step")

    def ended(self, state: State, reason: str) -> Rollout:
        """With an end and why."""
        return self.model_copy(update={"state": state, "reason": reason, "step_started_s": time.time()})


class RolloutFiles:
    """The documents of a repository."""

    def __init__(self, repository: Path) -> None:
        self._folder = repository / ".rollouts"

    def read(self, scenario: str) -> Rollout | None:
        """The scenario's last rollout, None when it never had one. Raises RolloutError for a file that is none."""
        path = self._path(scenario)
        try:
            return Rollout.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            raise RolloutError(f"{path}: {error}") from error

    def change(self, scenario: str, change: Callable[[Rollout | None], Rollout | None]) -> Rollout | None:
        """Replaces the document by what `change` makes of it; None leaves it. Raises RolloutError."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._locked():
                changed = change(self.read(scenario))
                if changed is not None:
                    self._replace(self._path(scenario), changed)
                return changed
        except OSError as error:
            raise RolloutError(f"{self._folder}: {error}") from error

    def _path(self, scenario: str) -> Path:
        return self._folder / f"{scenario}.json"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self._folder / "lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _replace(self, path: Path, rollout: Rollout) -> None:
        descriptor, name = tempfile.mkstemp(dir=self._folder, prefix=".", suffix=".json")
        with os.fdopen(descriptor, "w") as file:
            file.write(rollout.model_dump_json(indent=2) + "\n")
        os.replace(name, path)
