"""Load: from a verified package to a model in memory (tables, features, executable)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from feature_store import FeatureCache, FeatureStoreError, StorageError
from lambda_svc._core import Arena
from lambda_svc.config import EngineConfig, FeatureFile, ServiceConfig
from lambda_svc.errors import ConfigError, PackageRejected, ResourceExhausted
from lambda_svc.plan import LoadedModel, extractors_for
from lambda_svc.session.engine import GraphSignature, LoadedGraph, TensorSpec
from lambda_svc.session.kinds import GRAPH_SUFFIX, open_engine
from lambda_svc.session.streams import Streams
from models.package import Manifest
from paramserver import ParamServerError, Table

if TYPE_CHECKING:
    from paramserver.remote import Cluster

__all__ = ["load_model", "open_cluster", "signature_of"]


def load_model(folder: Path, manifest: Manifest, config: ServiceConfig, arena: Arena,
               cluster: Cluster | None = None) -> LoadedModel:
    """Loads the package in `folder` (already verified). Tables that `cluster` serves stay there.

    Raises PackageRejected when a part of it does not fit, ConfigError when the file of stored features does not,
    ResourceExhausted when there is no memory for it.
    """
    try:
        caches = {
            "user": _cache(manifest, "user", config.user_features),
            "item": _cache(manifest, "item", config.item_features),
        }
        extractors = extractors_for(manifest, caches)
        remote = _remote_tables(manifest, config, cluster)
        tables = {entry.name: remote.get(entry.name) or _table(folder, entry) for entry in manifest.tables}
    except (FeatureStoreError, ParamServerError) as error:
        raise PackageRejected(f"{manifest.model} version {manifest.version}: {error}") from error
    graph = _graph(folder, manifest, config.engine)
    return LoadedModel(manifest, graph, extractors, caches, tables, arena, Streams(config.engine.streams),
                       frozenset(remote))


def _graph(folder: Path, manifest: Manifest, config: EngineConfig) -> LoadedGraph:
    """The package's graph in the engine that the configuration names."""
    file = str(Path(manifest.graph.file).with_suffix(GRAPH_SUFFIX[config.kind]))
    if file not in manifest.files:
        raise PackageRejected(f"{manifest.model} version {manifest.version} has no {file}, which engine "
                              f"{config.kind} loads; export it anew, or choose another engine")
    engine = open_engine(config.kind, config.precision, lanes=config.streams, threads=config.intra_op_threads)
    return engine.load((folder / file).read_bytes(), signature_of(manifest))


def open_cluster(config: ServiceConfig) -> Cluster | None:
    """The cluster that the configuration names, None when it names none. Raises ConfigError."""
    remote = config.paramserver
    if remote is None:
        return None
    # Whoever has no shards need not load Arrow Flight.
    from paramserver.control import read_token
    from paramserver.remote import Cluster

    try:
        return Cluster(remote.cluster, wire=remote.wire, token=read_token(remote.token_file), tls_ca=remote.tls_ca,
                       deadline_ms=remote.deadline_ms, hedge_ms=None if remote.hedge_ms < 0 else remote.hedge_ms)
    except ParamServerError as error:
        raise ConfigError(f"paramserver: {error}") from error


def _remote_tables(manifest: Manifest, config: ServiceConfig, cluster: Cluster | None) -> dict[str, Any]:
    if cluster is None or config.paramserver is None:
        return {}
    served = cluster.tables()
    tables = {}
    for entry in manifest.tables:
        if entry.name not in served:
            continue
        if served[entry.name] != entry.dim:
            raise PackageRejected(f"table {entry.name!r}: the cluster at {config.paramserver.cluster} serves dim "
                                  f"{served[entry.name]}, the manifest says {entry.dim}")
        tables[entry.name] = cluster.table(entry.name, hot_cache_bytes_max=config.paramserver.hot_cache_bytes_max)
    return tables


def _cache(manifest: Manifest, side: str, file: FeatureFile | None) -> FeatureCache | None:
    if file is None:
        return None
    where = f"{side}_features.path: {file.path}"
    try:
        return FeatureCache.from_parquet(manifest.schema, side, file.path, key=file.key)
    except StorageError as error:
        raise ResourceExhausted(f"{where}: {error}") from error
    except FeatureStoreError as error:
        raise ConfigError(f"{where}: {error}; `lambda-svc config check` looks at columns, too") from error


def _table(folder: Path, entry) -> Table:
    table = Table.load(folder / entry.file, name=entry.name)
    if (table.dim, len(table)) != (entry.dim, entry.rows):
        raise PackageRejected(
            f"{entry.file}: {len(table)} rows of dim {table.dim}, the manifest says {entry.rows} of dim {entry.dim}"
        )
    return table


def signature_of(manifest: Manifest) -> GraphSignature:
    """Feeds and fetches of the package's graph, in the manifest's order."""
    inputs = tuple(TensorSpec(entry.name, entry.dtype, tuple(entry.shape)) for entry in manifest.graph.inputs)
    return GraphSignature(inputs, tuple(output.name for output in manifest.graph.outputs))
