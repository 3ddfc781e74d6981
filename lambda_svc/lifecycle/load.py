"""Load: from a verified package to a model in memory (tables, features, executable)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feature_store import FeatureCache, FeatureStoreError, StorageError
from lambda_svc._core import Arena
from lambda_svc.config import EngineConfig, FeatureFile, SavedModelConfig, ServiceConfig
from lambda_svc.errors import ConfigError, PackageRejected, ResourceExhausted
from lambda_svc.plan import LoadedGraphs, LoadedModel, extractors_for
from lambda_svc.saved_models import read_saved_model
from lambda_svc.session.engine import GraphSignature, LoadedGraph, TensorSpec
from lambda_svc.session.kinds import GRAPH_SUFFIX, open_engine
from lambda_svc.session.saved_graph import with_paths
from lambda_svc.session.streams import Streams
from lambda_svc.session.tensorflow import TensorFlowEngine, TensorFlowOptions
from models.package import PLAIN, Manifest, Variant
from paramserver import ParamServerError, Table

if TYPE_CHECKING:
    from paramserver.remote import Cluster

__all__ = ["load_graphs", "load_model", "open_cluster", "signature_of", "user_signature_of"]


def load_model(folder: Path, manifest: Manifest, config: ServiceConfig, arena: Arena, streams: Streams,
               cluster: Cluster | None = None) -> LoadedModel:
    """Loads the package in `folder` (already verified). Tables that `cluster` serves stay there; `streams` are those of
    all versions of the model.

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
    if manifest.golden is None:
        graphs = _load_saved_model(folder, manifest, config)
    else:
        graphs = load_graphs(folder, manifest, config.engine)
    return LoadedModel(manifest, graphs, extractors, caches, tables, arena, streams, frozenset(remote))


def _load_saved_model(folder: Path, manifest: Manifest, config: ServiceConfig) -> LoadedGraphs:
    """The signature of a SavedModel in TensorFlow, its variables restored and its tables filled from `folder`."""
    engine = config.engine
    if engine.kind != "auto" and (engine.kind, engine.precision) != ("tensorflow", "f32"):
        raise PackageRejected(f"{manifest.model} version {manifest.version} is a SavedModel, which only engine "
                              f"tensorflow serves, in f32, not {engine.kind} in {engine.precision}; export it for that")
    saved = read_saved_model(folder, config.saved_models.get(manifest.model, SavedModelConfig()))
    # Old control flow and variables by reference are refused by the executor that is faster for small graphs.
    options = TensorFlowOptions(intra_op_threads=engine.intra_op_threads, executor="")
    loaded = TensorFlowEngine(options=options).load(saved.graph, signature_of(manifest), saved.once)
    return LoadedGraphs(loaded, saved_model=True)


def load_graphs(folder: Path, manifest: Manifest, config: EngineConfig) -> LoadedGraphs:
    """The variant of the package's graph that the configuration names, in the engine that it names; for auto, what
    stands in until an engine is chosen: TensorFlow. Raises PackageRejected, EngineError, EngineUnavailable."""
    if config.kind == "auto":
        config = config.model_copy(update={"kind": "tensorflow", "precision": "f32"})
    variant = _variant(manifest, config)
    if variant is None and manifest.initializers:
        return LoadedGraphs(_load_filled(folder, manifest, config))
    engine = open_engine(config.kind, config.precision, lanes=config.streams, threads=config.intra_op_threads,
                         device=config.device, device_bytes_max=config.device_bytes_max)
    files = (manifest.graph.file,) if variant is None else variant.files
    items = engine.load(_read(folder, manifest, files[0], config), signature_of(manifest, variant))
    if variant is None or variant.user is None:
        return LoadedGraphs(items, variant)
    user = engine.load(_read(folder, manifest, files[1], config), user_signature_of(manifest, variant))
    return LoadedGraphs(items, variant, user)


def _load_filled(folder: Path, manifest: Manifest, config: EngineConfig) -> LoadedGraph:
    """The plain graph of a package whose lookup tables are filled from its own assets."""
    if config.kind != "tensorflow":
        raise PackageRejected(f"{manifest.model} version {manifest.version} keeps lookup tables in its graph, which "
                              f"only engine tensorflow fills, not {config.kind}")
    paths = {one.asset: folder / one.file for one in manifest.initializers if one.asset is not None and one.file}
    graph = with_paths((folder / manifest.graph.file).read_bytes(), paths)
    options = TensorFlowOptions(intra_op_threads=config.intra_op_threads, precision=config.precision)
    engine = TensorFlowEngine(options=options)
    return engine.load(graph, signature_of(manifest), [one.node for one in manifest.initializers])


def _variant(manifest: Manifest, config: EngineConfig) -> Variant | None:
    """None for the plain graph."""
    if config.variant == PLAIN:
        return None
    if config.variant == "best":
        offered = [v for v in manifest.variants
                   if all(_file(name, config.kind) in manifest.files for name in v.files)]
        return offered[-1] if offered else None
    named = [v for v in manifest.variants if v.name == config.variant]
    if not named:
        there = ", ".join([PLAIN, *(v.name for v in manifest.variants)])
        raise PackageRejected(f"{manifest.model} version {manifest.version} has no variant {config.variant!r}; it has "
                              f"{there}; set engine.variant to one of them, or to best")
    return named[0]


def _file(name: str, kind: str) -> str:
    """The graph's file in the engine's format."""
    return str(Path(name).with_suffix(GRAPH_SUFFIX[kind]))


def _read(folder: Path, manifest: Manifest, name: str, config: EngineConfig) -> bytes:
    file = _file(name, config.kind)
    if file not in manifest.files:
        raise PackageRejected(f"{manifest.model} version {manifest.version} has no {file}, which engine "
                              f"{config.kind} loads; export it anew, or choose another engine")
    return (folder / file).read_bytes()


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


def signature_of(manifest: Manifest, variant: Variant | None = None) -> GraphSignature:
    """Feeds and fetches of the package's graph, or of a variant's graph of the items, in the manifest's order; what a
    user's graph shares comes last."""
    if variant is None:
        return GraphSignature(_inputs(manifest, [entry.name for entry in manifest.graph.inputs]),
                              tuple(output.name for output in manifest.graph.outputs))
    shared = tuple(TensorSpec(tensor.name, "f32", tensor.shape) for tensor in variant.shared)
    inputs = _inputs(manifest, variant.inputs) + shared
    if variant.packed:
        return GraphSignature(inputs, (variant.heads[0].name,), ((len(variant.heads), -1),))
    return GraphSignature(inputs, tuple(head.name for head in variant.heads))


def user_signature_of(manifest: Manifest, variant: Variant) -> GraphSignature:
    """Feeds and fetches of a variant's graph of the user."""
    return GraphSignature(_inputs(manifest, variant.user.inputs), tuple(tensor.name for tensor in variant.shared),
                          tuple(tensor.shape for tensor in variant.shared))


def _inputs(manifest: Manifest, names: Iterable[str]) -> tuple[TensorSpec, ...]:
    by_name = {entry.name: entry for entry in manifest.graph.inputs}
    return tuple(TensorSpec(name, by_name[name].dtype, tuple(by_name[name].shape)) for name in names)
