"""What a zoo model is made of: sizes by name, fields, and a network of them. Imports tensorflow."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError
from .fields import Field
from .model import ZooModel

__all__ = ["Definition", "Sizes"]


@dataclass(frozen=True)
class Sizes:
    """Base of a model's config: whole numbers, and tuples of layer units. Raises ConfigError for those below 1, and for
    tuples that are empty, all problems at once; a field whose metadata has `least` may be as small as that."""

    def __post_init__(self) -> None:
        """Refuse sizes that make no model."""
        problems = []
        for entry in dataclasses.fields(self):
            value, least = getattr(self, entry.name), entry.metadata.get("least", 1)
            if value == ():
                problems.append(f"{entry.name} is empty; expected at least one layer")
            for number in value if isinstance(value, tuple) else (value,):
                if not isinstance(number, int) or number < least:
                    problems.append(f"{entry.name} is {value}; expected whole numbers of at least {least}")
                    break
        if problems:
            raise ConfigError("; ".join(problems))


@dataclass(frozen=True)
class Definition:
    """One model of the zoo.

    Attributes:
        name: of the model.
        scenario: the scenario of the workloads that it belongs to.
        candidates: how many a request of the scenario has; 500 where they vary from 100 to 700.
        sizes: configs by size: small, base, large.
        fields: what the model of a config reads.
        network: the model of a config over its fields, tables possibly of other sizes.
    """

    name: str
    scenario: str
    candidates: int
    sizes: Mapping[str, Any]
    fields: Callable[[Any], tuple[Field, ...]]
    network: Callable[[Any, tuple[Field, ...]], ZooModel]
