"""The service's configuration: YAML, checked whole before anything starts.

Every limit has a default and its unit in its name. `load` raises `ConfigError` with every problem at once, each with
its path; `check` returns them as text for `lambda-svc config check`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from lambda_svc._core import Formula
from lambda_svc.errors import ConfigError, FormulaError
from models.package import PackageError, list_versions, read_manifest, version_dir

__all__ = ["EngineConfig", "FeatureFile", "ScenarioConfig", "ServerConfig", "ServiceConfig", "check", "load",
           "package_dir"]

Positive = Annotated[int, Field(gt=0)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ServerConfig(_Frozen):
    """The RPC end: where it listens and what it accepts.

    `rpcs_max` calls are in the server at once, running on `rpc_threads` or waiting for one; more are refused.
    """

    listen: str = "127.0.0.1:8500"
    rpc_threads: Annotated[int, Field(ge=1, le=1024)] = 16
    rpcs_max: Annotated[int, Field(ge=1, le=100_000)] = 1_024
    message_bytes_max: Annotated[int, Field(ge=4096, le=1 << 30)] = 32 << 20
    drain_s: Annotated[float, Field(ge=0, le=600)] = 10.0
    switch_interval_us: Annotated[int, Field(ge=10, le=100_000)] = 100

    @field_validator("listen")
    @classmethod
    def _has_port(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"expected HOST:PORT with a port of 0 to 65535, got {value!r}")
        return value


class EngineConfig(_Frozen):
    """The engine of the dense graph. Thread counts of 0 mean: as many as the process may use, shared by the streams."""

    kind: Literal["tensorflow"] = "tensorflow"
    streams: Annotated[int, Field(ge=1, le=256)] = 1
    intra_op_threads: Annotated[int, Field(ge=0, le=1024)] = 0


class FeatureFile(_Frozen):
    """Stored features of one side, one row per key, as Parquet."""

    path: Path
    key: str = "id"


class ScenarioConfig(_Frozen):
    """One kind of ranking request: its model, its formula and its limits."""

    model: Name
    version: Literal["latest"] | Positive = "latest"
    formula: Annotated[str, Field(min_length=1, max_length=4096)]
    formula_inputs: tuple[Name, ...] = ()
    candidates_max: Annotated[int, Field(ge=1, le=1_000_000)] = 5_000
    unknown_candidates: Literal["score", "refuse"] = "score"
    queue_max: Annotated[int, Field(ge=0, le=100_000)] = 64
    deadline_ms: Annotated[float, Field(gt=0, le=3_600_000)] = 1_000.0
    slice_rows: Annotated[int, Field(ge=64, le=1_000_000, multiple_of=64)] = 256

    @field_validator("formula_inputs")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise ValueError(f"names must differ, got {list(value)}")
        return value


class ServiceConfig(_Frozen):
    """Everything `lambda-svc serve` needs; relative paths are relative to the file they stand in."""

    repository: Path
    work_dir: Path = Path("run")
    server: ServerConfig = ServerConfig()
    engine: EngineConfig = EngineConfig()
    arena_bytes_max: Annotated[int, Field(ge=1 << 20)] = 1 << 30
    user_features: FeatureFile | None = None
    item_features: FeatureFile | None = None
    scenarios: Annotated[dict[Name, ScenarioConfig], Field(min_length=1)]


def load(path: str | Path) -> ServiceConfig:
    """Reads and checks a config file. Raises ConfigError listing every problem with its path."""
    path = Path(path)
    config, problems = _parse(path)
    if problems:
        listed = "\n".join(f"  {line}" for line in problems)
        raise ConfigError(f"{path}: {len(problems)} problem(s)\n{listed}", tuple(problems))
    return config


def check(path: str | Path) -> list[str]:
    """Every problem of a config file as `path.to.field: what is wrong`; empty when the file is good."""
    return _parse(Path(path))[1]


def _parse(path: Path) -> tuple[ServiceConfig | None, list[str]]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        return None, [f"(file): cannot be read: {error.strerror}"]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        return None, [f"(file): not YAML: {' '.join(str(error).split())}"]
    if not isinstance(document, dict):
        return None, [f"(file): expected a mapping at the top, got {type(document).__name__}"]
    try:
        config = ServiceConfig.model_validate(_anchored(document, path.parent))
    except ValidationError as error:
        return None, [_describe(problem) for problem in error.errors()]
    return config, _missing_files(config) or _bad_scenarios(config)


def _anchored(document: dict[str, Any], base: Path) -> dict[str, Any]:
    """The document with relative paths made relative to the file's folder, wherever the process was started."""
    anchored = dict(document)
    for field in ("repository", "work_dir"):
        value = anchored.get(field, "run" if field == "work_dir" else None)
        if isinstance(value, str):
            anchored[field] = base / value
    for field in ("user_features", "item_features"):
        value = anchored.get(field)
        if isinstance(value, dict) and isinstance(value.get("path"), str):
            anchored[field] = {**value, "path": base / value["path"]}
    return anchored


def _describe(problem: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in problem["loc"]) or "(file)"
    got = problem.get("input")
    shown = "" if problem["type"] == "missing" or isinstance(got, dict) else f" (got {got!r})"
    return f"{where}: {problem['msg']}{shown}"


def _missing_files(config: ServiceConfig) -> list[str]:
    problems = []
    if not config.repository.is_dir():
        problems.append(f"repository: no such folder: {config.repository}")
    for side in ("user_features", "item_features"):
        file: FeatureFile | None = getattr(config, side)
        if file is not None and not file.path.is_file():
            problems.append(f"{side}.path: no such file: {file.path}")
    return problems


def _bad_scenarios(config: ServiceConfig) -> list[str]:
    """Models the repository lacks, and formulas that do not fit the heads of the version that would be served."""
    problems = []
    for name, scenario in config.scenarios.items():
        try:
            manifest = read_manifest(package_dir(config, scenario))
            Formula(scenario.formula, [output.head for output in manifest.graph.outputs], list(scenario.formula_inputs))
        except FormulaError as error:
            problems.append(f"scenarios.{name}.formula: {error}")
        except (ConfigError, PackageError) as error:
            problems.append(f"scenarios.{name}.model: {error}")
        if scenario.unknown_candidates == "refuse" and config.item_features is None:
            problems.append(f"scenarios.{name}.unknown_candidates: refuse needs item_features to know candidates by")
    return problems


def package_dir(config: ServiceConfig, scenario: ScenarioConfig) -> Path:
    """The package folder a scenario serves. Raises ConfigError when the repository does not hold it whole."""
    if scenario.version == "latest":
        versions = list_versions(config.repository, scenario.model)
        if versions:
            return version_dir(config.repository, scenario.model, versions[-1])
        raise ConfigError(
            f"no version of {scenario.model!r} in {config.repository}{_damaged(config.repository / scenario.model)}; "
            f"push one with `lambda-svc push PACKAGE {config.repository}`"
        )
    folder = version_dir(config.repository, scenario.model, scenario.version)
    try:
        read_manifest(folder)
    except PackageError as error:
        raise ConfigError(f"version {scenario.version} of {scenario.model!r}: {error}") from error
    return folder


def _damaged(model_dir: Path) -> str:
    """Why the version folders that are there do not count, so that a damaged manifest is named, not passed over."""
    reasons = []
    for folder in sorted(model_dir.glob("[0-9]*")):
        try:
            read_manifest(folder)
        except PackageError as error:
            reasons.append(f"version {folder.name}: {error}")
    return f" ({'; '.join(reasons)})" if reasons else ""
