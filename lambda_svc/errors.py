"""Every error the ranking service raises, and the one function that maps them to RPC codes.

LambdaError
|- CallerError                the caller's fault: sending the same thing again cannot succeed
|  |- InvalidRequest          a field of a request: names it, what came and what was expected
|  |- NotFound                a scenario, model or version that does not exist
|  |- ConfigError             a configuration that does not hold together
|  |  `- FormulaError         the rank formula: position, what was expected there
|  |- PackageRejected         a model package that may not serve
|  `- RolloutError            a rollout that cannot be read, started or changed
|- OperatingError             nobody's fault: the same request may succeed later or elsewhere
|  |- ResourceExhausted       a queue or a memory budget is full
|  |  `- ArenaExhausted       the pooled memory of requests is
|  |- DeadlineExceeded        the request's time ran out before every candidate was scored
|  |- Cancelled               whoever asked no longer waits
|  |- Unavailable             draining, or not ready yet
|  |  `- EngineUnavailable    the engine's library cannot be used on this host
|  `- EngineError             the engine refused to load or to run a graph
`- ProgrammerError            a contract between two of our own parts is broken
   `- PlanError               a plan whose inputs, slots, tables and graph do not fit together
"""

from __future__ import annotations

__all__ = [
    "ArenaExhausted",
    "CallerError",
    "Cancelled",
    "ConfigError",
    "DeadlineExceeded",
    "EngineError",
    "EngineUnavailable",
    "FormulaError",
    "InvalidRequest",
    "LambdaError",
    "NotFound",
    "OperatingError",
    "PackageRejected",
    "PlanError",
    "ProgrammerError",
    "ResourceExhausted",
    "RolloutError",
    "Unavailable",
    "status_code_name",
]


class LambdaError(Exception):
    """Base of every error that lambda_svc raises on purpose."""


class CallerError(LambdaError):
    """The caller has to change something before trying again."""


class OperatingError(LambdaError):
    """The world got in the way; the same call may succeed later or on another replica."""


class ProgrammerError(LambdaError):
    """A contract between two parts of the service is broken: a defect, not an input."""


class InvalidRequest(CallerError):
    """A request field that cannot be used. `field`, `got` and `expected` are strings."""

    def __init__(self, field: str, got: str, expected: str) -> None:
        super().__init__(f"{field}: got {got}; expected {expected}")
        self.field = field
        self.got = got
        self.expected = expected


class NotFound(CallerError):
    """A scenario, model or version that does not exist. The message lists those that do."""


class ConfigError(CallerError):
    """A configuration that does not hold together. `problems` lists every problem, each with its path."""

    def __init__(self, message: str, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class FormulaError(ConfigError):
    """A rank formula that does not parse or check. `position` is the 0-based byte offset in its text."""

    def __init__(self, message: str, position: int = 0) -> None:
        super().__init__(message)
        self.position = position


class PackageRejected(CallerError):
    """A model package that may not serve: the message says which check failed, where, and what to do."""


class RolloutError(CallerError):
    """A rollout whose document cannot be read, or that cannot be started or changed as it is."""


class ResourceExhausted(OperatingError):
    """A queue or a budget is full: try again later, or on another replica."""


class ArenaExhausted(ResourceExhausted):
    """The pooled memory of requests is used up: fewer concurrent requests, or a larger `bytes_max`."""


class DeadlineExceeded(OperatingError):
    """Time ran out before every candidate was scored; nothing was returned. `run_us`: how long the graph had run."""

    def __init__(self, message: str, run_us: int = 0) -> None:
        super().__init__(message)
        self.run_us = run_us


class Cancelled(OperatingError):
    """Whoever asked no longer waits; nothing was returned. `run_us`: how long the graph had run."""

    def __init__(self, message: str, run_us: int = 0) -> None:
        super().__init__(message)
        self.run_us = run_us


class Unavailable(OperatingError):
    """The service is draining or not ready; another replica may answer."""


class EngineUnavailable(Unavailable):
    """The engine's library is missing, misses a symbol, or needs CPU features this host lacks."""


class EngineError(OperatingError):
    """The engine refused to load or to run a graph; carries the engine's own message."""


class PlanError(ProgrammerError):
    """Inputs, slots, tables and graph do not fit together. `field` names the input or the part at fault."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


# Looked up along the class's bases, most specific first. EngineError stays INTERNAL: retrying the same inputs on
# another replica of the same model would fail the same way.
_STATUS = {
    InvalidRequest: "INVALID_ARGUMENT",
    NotFound: "NOT_FOUND",
    PackageRejected: "FAILED_PRECONDITION",
    ConfigError: "FAILED_PRECONDITION",
    RolloutError: "FAILED_PRECONDITION",
    CallerError: "INVALID_ARGUMENT",
    ResourceExhausted: "RESOURCE_EXHAUSTED",
    DeadlineExceeded: "DEADLINE_EXCEEDED",
    Cancelled: "CANCELLED",
    Unavailable: "UNAVAILABLE",
}


def status_code_name(error: BaseException) -> str:
    """The name of the gRPC status code for `error`, such as "INVALID_ARGUMENT"; "INTERNAL" for what has no entry."""
    for cls in type(error).__mro__:
        if cls in _STATUS:
            return _STATUS[cls]
    return "INTERNAL"
