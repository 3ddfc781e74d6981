"""Everything that the feature store raises.

FeatureStoreError
    CallerError            the caller's fault: fix the request, the data, the schema or the slots
        FeatureError       one column does not match its feature (a request's own column)
        SchemaError        a schema is not valid; lists every problem
        SlotError          slots or transforms are not valid; lists every problem
        DataError          a stored table does not match its schema
    OperatingError         the machine's fault: the same call may work elsewhere or later
        StorageError       memory for a cache could not be had
        IsaError           an instruction set was asked for that this CPU does not have
    ProgrammerError        a fault of this package or of how its native parts were put together
"""

from __future__ import annotations

from collections.abc import Sequence


class FeatureStoreError(Exception):
    """Base of every error that the feature store raises on purpose."""


class CallerError(FeatureStoreError):
    """What the caller passed in cannot be used; the message says what to change."""


class FeatureError(CallerError):
    """A column does not match its feature.

    Attributes:
        feature: the feature's name as it came.
        came: what came, in words.
        expected: what was expected, in words.
    """

    def __init__(self, feature: str, came: str, expected: str) -> None:
        super().__init__(f"feature {feature!r}: got {came}, expected {expected}")
        self.feature = feature
        self.came = came
        self.expected = expected

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        """Keep the three parts when the error crosses a process boundary."""
        return type(self), (self.feature, self.came, self.expected)


class _ProblemsError(CallerError):
    """An error that lists every problem found, not only the first."""

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("; ".join(self.problems))

    def __reduce__(self) -> tuple[type, tuple[tuple[str, ...]]]:
        """Keep the list of problems when the error crosses a process boundary."""
        return type(self), (self.problems,)


class SchemaError(_ProblemsError):
    """A schema is not valid; `problems` lists everything wrong with it."""


class SlotError(_ProblemsError):
    """Slots or transforms are not valid; `problems` lists everything wrong, each naming slot and transform."""


class DataError(CallerError):
    """A stored table does not match its schema; the message names the column, and the row and id where there is one."""


class OperatingError(FeatureStoreError):
    """The machine could not do it now."""


class StorageError(OperatingError):
    """Memory for a cache could not be had."""


class IsaError(OperatingError):
    """FEATURE_STORE_ISA names an instruction set that is unknown or that this CPU does not have."""


class ProgrammerError(FeatureStoreError):
    """Native parts were put together in a way that this package itself must prevent."""


__all__ = [
    "CallerError",
    "DataError",
    "FeatureError",
    "FeatureStoreError",
    "IsaError",
    "OperatingError",
    "ProgrammerError",
    "SchemaError",
    "SlotError",
    "StorageError",
]
