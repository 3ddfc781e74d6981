"""The service's configuration: YAML, checked whole before anything starts.

Every limit has a default and its unit in its name. `load` raises `ConfigError` with every problem at once, each with
its path; `check` returns them as text for `lambda-svc config check`.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from lambda_svc._core import Formula
from lambda_svc.config_files import feature_file_problems
from lambda_svc.config_words import field_problems, read_yaml
from lambda_svc.errors import ConfigError, FormulaError, PackageRejected
from lambda_svc.saved_models import is_saved_model, read_saved_model, saved_manifest, saved_versions
from models.package import Manifest, PackageError, is_safe_name, list_versions, read_manifest, version_dir

__all__ = ["EngineConfig", "FeatureFile", "ParamServerConfig", "RequestLogConfig", "SavedModelConfig", "ScenarioConfig",
           "ServerConfig",
           "ServiceConfig", "check", "load", "nothing_published", "package_dir"]

Part = TypeVar("Part", bound=BaseModel)


def _model_name(name: str) -> str:
    """A model's name is a folder's: what a package may be called, a config may serve."""
    if not is_safe_name(name):
        raise ValueError("expected a model's name: letters, digits, '_', '-' and '.', no dot first")
    return name


Positive = Annotated[int, Field(gt=0)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64)]
ModelName = Annotated[str, AfterValidator(_model_name)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ServerConfig(_Frozen):
    """The RPC end: where it listens and what it accepts.

    `rpcs_max` calls are in the server at once, running on `rpc_threads` or waiting for one; more are refused. `http` is
    where metrics and status are served; empty: nowhere. `log_requests` is the share of answered requests that get a
    line in the log, too, as failed ones always do.
    """

    listen: str = "127.0.0.1:8500"
    rpc_threads: Annotated[int, Field(ge=1, le=1024)] = 16
    rpcs_max: Annotated[int, Field(ge=1, le=100_000)] = 1_024
    message_bytes_max: Annotated[int, Field(ge=4096, le=1 << 30)] = 32 << 20
    drain_s: Annotated[float, Field(ge=0, le=600)] = 10.0
    switch_interval_us: Annotated[int, Field(ge=10, le=100_000)] = 100
    http: str = ""
    log_format: Literal["text", "json"] = "text"
    log_requests: Annotated[float, Field(ge=0, le=1)] = 0.0

    @field_validator("listen", "http")
    @classmethod
    def _has_port(cls, value: str, info: ValidationInfo) -> str:
        if info.field_name == "http" and not value:
            return value
        host, _, port = value.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > 65535:
            raise ValueError("HOST:PORT with a port of 0 to 65535")
        return value


class EngineConfig(_Frozen):
    """The engine of the dense graph. Thread counts of 0 mean: as many as the process may use, shared by the streams.

    precision: what products are computed in; feeds and scores are float32 in any case. variant: which of the package's
    graphs runs: plain is as the framework wrote it, best the one rewritten most; a name is refused where it is not.
    kind auto measures what is installed, and keeps the fastest; precision bf16 then allows both. device gpu puts each
    stream on a virtual device of the card, or in a session with a stream of its own; they share device_bytes_max.
    """

    kind: Literal["tensorflow", "openvino", "onnxruntime", "auto"] = "tensorflow"
    precision: Literal["f32", "bf16"] = "f32"
    variant: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")] = "best"
    streams: Annotated[int, Field(ge=1, le=256)] = 1
    intra_op_threads: Annotated[int, Field(ge=0, le=1024)] = 0
    device: Literal["cpu", "gpu"] = "cpu"
    device_bytes_max: Annotated[int, Field(ge=0, le=1 << 48, validate_default=True)] = 0

    @field_validator("device")
    @classmethod
    def _has_device(cls, value: str, info: ValidationInfo) -> str:
        if value == "gpu" and info.data.get("kind") in ("openvino", "auto"):
            raise ValueError("cpu with this kind of engine; tensorflow and onnxruntime can use a GPU")
        if value == "gpu" and info.data.get("precision") != "f32":
            raise ValueError("cpu with precision bf16; on a GPU graphs run in f32")
        return value

    @field_validator("device_bytes_max")
    @classmethod
    def _shared_out(cls, value: int, info: ValidationInfo) -> int:
        if info.data.get("device") == "gpu" and info.data.get("streams", 1) > 1 and not value:
            raise ValueError("the memory that several streams on a GPU share out")
        return value

    @field_validator("precision")
    @classmethod
    def _offered(cls, value: str, info: ValidationInfo) -> str:
        if value != "f32" and info.data.get("kind") == "onnxruntime":
            raise ValueError("f32 with onnxruntime, which has no bf16 products")
        return value


class FeatureFile(_Frozen):
    """Stored features of one side, one row per key, as Parquet."""

    path: Path
    key: str = "id"


class SavedModelConfig(_Frozen):
    """How a plain SavedModel is served: inputs are item features but for those of `user` and `context`, which come once
    a request; `heads` names outputs that are scores, by default all of one float32 a candidate."""

    signature: Annotated[str, Field(min_length=1, max_length=256)] = "serving_default"
    user: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()


class ParamServerConfig(_Frozen):
    """Tables that live on shards: those of the cluster at `cluster` are looked up there, others in this process.

    wire: what rows are sent as. deadline_ms: of lookups outside a request. hedge_ms: silence after which another
    replica is asked too; -1 learns it, 0 never does. hot_cache_bytes_max: rows kept in front of each table; 0: none.
    """

    cluster: Path
    wire: Literal["f32", "f16", "bf16", "int8"] = "f32"
    deadline_ms: Annotated[int, Field(ge=1, le=3_600_000)] = 1_000
    hedge_ms: Annotated[float, Field(ge=-1, le=3_600_000)] = -1.0
    hot_cache_bytes_max: Annotated[int, Field(ge=0, le=1 << 42)] = 0
    token_file: Path | None = None
    tls_ca: Path | None = None


class RequestLogConfig(_Frozen):
    """A `share` of the requests is logged in `folder`, in files of `file_bytes_max`, the newest `files_max` of them;
    what finds `queue_max` waiting is dropped and counted."""

    folder: Path
    share: Annotated[float, Field(ge=0, le=1)] = 0.01
    queue_max: Annotated[int, Field(ge=1, le=100_000)] = 256
    file_bytes_max: Annotated[int, Field(ge=1 << 16, le=1 << 40)] = 64 << 20
    files_max: Annotated[int, Field(ge=1, le=100_000)] = 16


class UserStateConfig(_Frozen):
    """User sides, from PrecomputeUser for Rank: at most `bytes_max` of them are kept (0: none), each for `ttl_s`."""

    bytes_max: Annotated[int, Field(ge=0, le=1 << 42)] = 64 << 20
    ttl_s: Annotated[float, Field(gt=0, le=86_400)] = 60.0


class ModelConfig(_Frozen):
    """Which published versions of a model are loaded: the newest `latest` of them, all, those named, or what rollouts
    bring: the one promoted last, before that the oldest. Labels are names for versions that requests can ask for; what
    is labelled "stable" serves scenarios whose version is latest.
    """

    versions: Annotated[
        Literal["latest", "all", "rollout"] | tuple[Positive, ...],
        Field(json_schema_extra={"takes": "'latest', 'all', 'rollout' or a list of whole numbers of at least 1"})
    ] = "latest"
    latest: Annotated[int, Field(ge=1, le=100)] = 1
    labels: dict[Name, Positive] = Field(default_factory=dict)


class ScenarioConfig(_Frozen):
    """One kind of ranking request: its model, its formula and its limits.

    reserve_ms: what of a deadline is kept for ordering and sending an answer that may be partial.
    """

    model: ModelName
    version: Annotated[
        Literal["latest"] | Positive, Field(json_schema_extra={"takes": "'latest' or a whole number of at least 1"})
    ] = "latest"
    formula: Annotated[str, Field(min_length=1, max_length=4096)]
    formula_inputs: tuple[Name, ...] = ()
    candidates_max: Annotated[int, Field(ge=1, le=1_000_000)] = 5_000
    unknown_candidates: Literal["score", "refuse"] = "score"
    queue_max: Annotated[int, Field(ge=0, le=100_000)] = 64
    deadline_ms: Annotated[float, Field(gt=0, le=3_600_000)] = 1_000.0
    reserve_ms: Annotated[float, Field(ge=0, le=3_600_000)] = 5.0
    slice_rows: Annotated[int, Field(ge=64, le=1_000_000, multiple_of=64)] = 256

    @field_validator("formula_inputs")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise ValueError("names that differ")
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
    paramserver: ParamServerConfig | None = None
    request_log: RequestLogConfig | None = None
    user_state: UserStateConfig = UserStateConfig()
    repository_poll_s: Annotated[float, Field(ge=0, le=3_600)] = 1.0
    models: dict[ModelName, ModelConfig] = Field(default_factory=dict)
    saved_models: dict[ModelName, SavedModelConfig] = Field(default_factory=dict)
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
        document, problems = read_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        return None, [f"(file): cannot be read: {error.strerror}"]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        return None, [f"(file): not YAML: {' '.join(str(error).split())}"]
    if not isinstance(document, dict):
        return None, [*problems, f"(file): expected a mapping at the top, got {type(document).__name__}"]
    document = _anchored(document, path.parent)
    config = None
    try:
        config = ServiceConfig.model_validate(document)
    except ValidationError as error:
        problems += field_problems(error, ServiceConfig)
    return config, problems + _problems_outside(document)


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
    kept = anchored.get("request_log")
    if isinstance(kept, dict) and isinstance(kept.get("folder"), str):
        anchored["request_log"] = {**kept, "folder": base / kept["folder"]}
    remote = anchored.get("paramserver")
    if isinstance(remote, dict):
        paths = {field: base / remote[field] for field in ("cluster", "token_file", "tls_ca")
                 if isinstance(remote.get(field), str)}
        anchored["paramserver"] = {**remote, **paths}
    return anchored


def _problems_outside(document: dict[str, Any]) -> list[str]:
    """What does not fit the world outside the file, for every part that is valid by itself.

    Parts are looked at one by one, so that a bad port hides neither a missing model nor a bad formula.
    """
    problems, manifests = [], []
    repository, saved = document.get("repository"), _mapping(document.get("saved_models"))
    served = {_mapping(raw).get("model") for raw in _mapping(document.get("scenarios")).values()}
    problems += [f"{part}.{name}: no scenario serves that model" for part in ("models", "saved_models")
                 for name in _mapping(document.get(part)) if name not in served]
    if isinstance(repository, Path) and not os.path.isdir(repository):
        problems.append(f"repository: no such folder: {repository}")
    elif isinstance(repository, Path):
        for name, raw in _mapping(document.get("scenarios")).items():
            found, manifest = _model_problems(f"scenarios.{name}", repository, _mapping(raw), saved)
            problems += found
            manifests += [] if manifest is None else [manifest]
    cluster = _mapping(document.get("paramserver")).get("cluster")
    if isinstance(cluster, Path) and not os.path.isdir(cluster):
        problems.append(f"paramserver.cluster: no such folder: {cluster}")
    files = {}
    for side in ("user", "item"):
        file, _ = _valid_part(FeatureFile, _mapping(document.get(f"{side}_features")))
        if file is not None:
            files[side] = file.path, file.key
    problems += feature_file_problems(files, manifests)
    for name, raw in _mapping(document.get("scenarios")).items():
        if _mapping(raw).get("unknown_candidates") == "refuse" and document.get("item_features") is None:
            problems.append(f"scenarios.{name}.unknown_candidates: refuse needs item_features to know candidates by")
    return problems


def _model_problems(where: str, repository: Path, raw: dict[Any, Any],
                    saved: dict[Any, Any]) -> tuple[list[str], Manifest | None]:
    """What is wrong with a scenario's model and formula, each if its own fields are valid; and the model's manifest."""
    scenario, wrong = _valid_part(ScenarioConfig, {"formula": "0"} | raw, formula="0")
    if scenario is None or "version" in wrong:
        return [], None
    try:
        folder = package_dir(repository, scenario)
        settings, _ = _valid_part(SavedModelConfig, _mapping(saved.get(scenario.model)))
        manifest = _manifest(folder, settings or SavedModelConfig())
    except (ConfigError, PackageError, PackageRejected) as error:
        return [f"{where}.model: {error}"], None
    except OSError as error:
        return [f"{where}.model: {repository} cannot be read: {error.strerror}"], None
    try:
        if not wrong & {"formula", "formula_inputs"}:
            heads = [output.head for output in manifest.graph.outputs]
            Formula(scenario.formula, heads, list(scenario.formula_inputs))
    except FormulaError as error:
        return [f"{where}.formula: {error}"], manifest
    return [], manifest


def _manifest(folder: Path, settings: SavedModelConfig) -> Manifest:
    if is_saved_model(folder):
        return saved_manifest(read_saved_model(folder, settings), folder.parent.name, int(folder.name))
    return read_manifest(folder)


def _valid_part(part: type[Part], raw: dict[Any, Any], **instead: Any) -> tuple[Part | None, set[str]]:
    """The part with fields that are wrong left at their defaults or at `instead`; None when that does not do.

    Also returns the names of the fields that are wrong.
    """
    try:
        return part.model_validate(raw), set()
    except ValidationError as error:
        wrong = {str(problem["loc"][0]) for problem in error.errors()}
    kept = {name: value for name, value in raw.items() if str(name) not in wrong}
    try:
        return part.model_validate({name: instead[name] for name in wrong & set(instead)} | kept), wrong
    except ValidationError:
        return None, wrong


def _mapping(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def package_dir(repository: Path, scenario: ScenarioConfig) -> Path:
    """The folder in `repository` that a scenario serves, of a package or a plain SavedModel. Raises ConfigError when it
    is not there whole."""
    if scenario.version == "latest":
        versions = [*list_versions(repository, scenario.model), *saved_versions(repository, scenario.model)]
        if versions:
            return version_dir(repository, scenario.model, max(versions))
        raise ConfigError(nothing_published(repository, scenario.model))
    folder = version_dir(repository, scenario.model, scenario.version)
    if is_saved_model(folder):
        return folder
    try:
        read_manifest(folder)
    except PackageError as error:
        raise ConfigError(f"version {scenario.version} of {scenario.model!r}: {error}") from error
    return folder


def nothing_published(repository: Path, model: str, versions: Collection[int] = ()) -> str:
    """Says that none of these versions of a model, or none at all, is whole, and what to do."""
    named = f"version {' or '.join(map(str, sorted(versions)))}" if versions else "version"
    return (f"no {named} of {model!r} in {repository}{_damaged(repository / model)}; "
            f"push one with `lambda-svc push PACKAGE {repository}`")


def _damaged(model_dir: Path) -> str:
    """Why the version folders that are there do not count, so that a damaged manifest is named, not passed over."""
    reasons = []
    for folder in sorted(model_dir.glob("[0-9]*")):
        try:
            read_manifest(folder)
        except PackageError as error:
            reasons.append(f"version {folder.name}: {error}")
    return f" ({'; '.join(reasons)})" if reasons else ""
