"""The configuration of one shard's server: YAML, checked whole before anything starts.

Every limit has a default and its unit in its name. Relative paths are relative to the file they stand in.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from paramserver.errors import ConfigError

__all__ = ["Limits", "ServerConfig", "TableConfig", "TierConfig", "TlsConfig", "config_of", "load_config"]

_FILE_BYTES_MAX = 1 << 20
_TOKENS_MAX = 1024


def _has_port(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) > 65535:
        raise ValueError("expected HOST:PORT with a port of 0 to 65535")
    return value


Address = Annotated[str, AfterValidator(_has_port)]
TableName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=128)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TlsConfig(_Frozen):
    """PEM files. client_ca: clients must present a certificate that it signed. peer_ca: signed the certificates of this
    shard's other replicas, the system's authorities when None."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    peer_ca: Path | None = None


class TierConfig(_Frozen):
    """A table larger than RAM: hot rows in at most ram_bytes_max bytes, cold ones in files under `directory` (the
    shard's own when None), of which one lookup reads at most cold_reads_max. spill_bytes_max: of the file of cold rows
    that deltas wrote, 0: as the file system allows. direct: read past the page cache where the file system can."""

    ram_bytes_max: Annotated[int, Field(ge=1 << 20)]
    directory: Path | None = None
    cold_reads_max: Annotated[int, Field(ge=0, le=1 << 40)] = 100_000
    spill_bytes_max: Annotated[int, Field(ge=0)] = 0
    direct: bool = True


class TableConfig(_Frozen):
    """What a table is made with. dtype: as its file says when None. ttl_s: rows expire so many seconds after the delta
    that wrote them, 0: never. admit_after: deltas that must contain a new id before it is stored."""

    dtype: Literal["f32", "f16", "bf16", "int8"] | None = None
    ttl_s: Annotated[float, Field(ge=0)] = 0.0
    admit_after: Annotated[int, Field(ge=1, le=255)] = 1
    tier: TierConfig | None = None


class Limits(_Frozen):
    """Bounds of one server. The first four are of one stream: lookups unanswered, their ids together, threads that
    answer beside the one that reads, and the size up to which the reading thread answers itself.

    epoch_wait_ms: how long a lookup waits for an epoch that this server has not seen yet. drain_ms: how long lookups in
    flight may take at the end. hold_s: how long every epoch is held without a lease. reserve_bytes: disk space that
    writes leave free. held_bytes_max: deltas kept for versions that do not serve yet. poll_ms: how often the cluster's
    directory is looked at where the kernel does not tell of changes. transfers_max: pushed and fetched deltas at once,
    each a file. upload_bytes_max: of one pushed delta. upkeep_s: how often expired rows are freed, and a version whose
    deltas hold more than log_bytes_max gets a new base.
    """

    lookups_max: Annotated[int, Field(ge=1, le=65_536)] = 256
    ids_in_flight_max: Annotated[int, Field(ge=1 << 20, le=1 << 30)] = 4 << 20
    stream_threads_max: Annotated[int, Field(ge=1, le=64)] = 2
    inline_ids_max: Annotated[int, Field(ge=0, le=1 << 20)] = 8192
    streams_max: Annotated[int, Field(ge=1, le=65_536)] = 256
    epoch_wait_ms: Annotated[int, Field(ge=0, le=10_000)] = 50
    drain_ms: Annotated[int, Field(ge=0, le=600_000)] = 10_000
    transfers_max: Annotated[int, Field(ge=1, le=1_000)] = 8
    upload_bytes_max: Annotated[int, Field(ge=1 << 10, le=1 << 40)] = 4 << 30
    hold_s: Annotated[float, Field(ge=0, le=86_400)] = 600.0
    reserve_bytes: Annotated[int, Field(ge=0)] = 64 << 20
    held_bytes_max: Annotated[int, Field(ge=0)] = 4 << 30
    poll_ms: Annotated[int, Field(ge=10, le=60_000)] = 500
    upkeep_s: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    log_bytes_max: Annotated[int, Field(ge=0)] = 4 << 30
    keys_per_get_max: Annotated[int, Field(ge=1, le=100_000)] = 1_000


class ServerConfig(_Frozen):
    """One shard's server. directory: the shard's own, which no other process may have open. cluster: where shards.json
    and epochs/ lie, shared by all shards and clients. replica: which of the shard's replicas this is, for people.
    durability: what an acknowledged delta outlives, the process's death or a power loss too ("sync"). tables: options
    by name; a table that is not listed takes those of `table_defaults`. watch_deltas: a folder whose delta files are
    staged as they come. metrics: where Prometheus may scrape. token_file, control_token_file: a bearer token a line;
    without the second, the first's tokens allow control too; without both, no token is asked for."""

    listen: Address = "127.0.0.1:7000"
    directory: Path
    cluster: Path
    shard: Annotated[int, Field(ge=0, lt=4096)] = 0
    shards: Annotated[int, Field(ge=1, le=4096)] = 1
    replica: Annotated[int, Field(ge=0, lt=64)] = 0
    durability: Literal["process", "sync"] = "process"
    tables: dict[TableName, TableConfig] = {}
    table_defaults: TableConfig = TableConfig()
    watch_deltas: Path | None = None
    metrics: Address | None = None
    tls: TlsConfig | None = None
    token_file: Path | None = None
    control_token_file: Path | None = None
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _shard_exists(self) -> Self:
        if self.shard >= self.shards:
            raise ValueError(f"shard is {self.shard} of {self.shards}, expected shard < shards")
        return self

    def options_of(self, table: str) -> TableConfig:
        """The options of one table."""
        return self.tables.get(table, self.table_defaults)


def load_config(path: str | Path) -> ServerConfig:
    """Read and check a file. Raises ConfigError listing every problem with its path."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            raw = file.read(_FILE_BYTES_MAX + 1)
        if len(raw) > _FILE_BYTES_MAX:
            raise ConfigError(f"{path}: over {_FILE_BYTES_MAX} bytes, which is no configuration")
        document = yaml.safe_load(raw)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    try:
        return config_of(document, path.resolve().parent)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def config_of(document: Any, folder: Path) -> ServerConfig:
    """The configuration that a parsed document describes, its paths taken from `folder`. Raises ConfigError."""
    if not isinstance(document, Mapping):
        raise ConfigError(f"expected a mapping at the top, got {type(document).__name__}")
    try:
        config = ServerConfig.model_validate(document)
    except ValidationError as error:
        problems = [f"{'.'.join(str(part) for part in item['loc']) or '(top)'}: {item['msg']}"
                    for item in error.errors(include_url=False)]
        raise _listed(problems) from error
    config = _resolved(config, folder)
    problems = _file_problems(config)
    if problems:
        raise _listed(problems)
    return config


def tokens_of(path: Path | None) -> list[str]:
    """The tokens of a file, one a line; blank lines and lines that begin with # are none. Raises ConfigError."""
    if path is None:
        return []
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    tokens = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not 1 <= len(tokens) <= _TOKENS_MAX or min(map(len, tokens)) < 16:
        raise ConfigError(f"{path}: expected 1 to {_TOKENS_MAX} tokens of at least 16 characters, one a line")
    return tokens


def _listed(problems: list[str]) -> ConfigError:
    return ConfigError("\n".join([f"{len(problems)} problem(s)", *(f"  {line}" for line in problems)]))


def _resolved(config: _Frozen, folder: Path) -> Any:
    """The same configuration with absolute paths."""
    changed = {}
    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, Path):
            changed[name] = folder / value
        elif isinstance(value, _Frozen):
            changed[name] = _resolved(value, folder)
        elif isinstance(value, dict):
            changed[name] = {key: _resolved(item, folder) for key, item in value.items()}
    return config.model_copy(update=changed)


def _file_problems(config: ServerConfig) -> list[str]:
    problems = []
    for name in ("cluster", "watch_deltas"):
        folder = getattr(config, name)
        if folder is not None and not folder.is_dir():
            problems.append(f"{name}: {folder} is no directory")
    for name in ("certificate", "key", "client_ca", "peer_ca"):
        path = getattr(config.tls, name, None)
        if path is not None and not path.is_file():
            problems.append(f"tls.{name}: {path} is no file")
    for name in ("token_file", "control_token_file"):
        try:
            tokens_of(getattr(config, name))
        except ConfigError as error:
            problems.append(f"{name}: {error}")
    return problems
