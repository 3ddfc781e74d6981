"""`engine.kind: auto`: the installed engines run golden requests, and the fastest within tolerance serves.

The choice is recorded beside the model's versions, in `<repository>/<model>/engines-<version>.json`, one entry for
each set of CPU features, engine versions and settings, so that replicas on equal hosts agree and only the first one
measures.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from lambda_svc.config import EngineConfig, ScenarioConfig
from lambda_svc.errors import EngineError, EngineUnavailable, PackageRejected
from lambda_svc.lifecycle.golden import check_golden, golden_request
from lambda_svc.lifecycle.load import load_graphs
from lambda_svc.plan import LoadedModel, ScenarioPlan, compile_plan
from lambda_svc.session.kinds import KINDS, engine_versions

__all__ = ["settle", "sidecar_file"]

CANDIDATES, ROUNDS, WARMUP = 256, 7, 2
log = logging.getLogger("lambda_svc")


def settle(folder: Path, model: LoadedModel, scenario: tuple[str, ScenarioConfig], config: EngineConfig,
           repository: Path) -> LoadedModel:
    """The model with its graphs in the engine that was recorded for such hosts, or that is the fastest here.

    `config` is of kind auto; its precision bf16 allows bf16 beside f32, and a variant other than best fixes it. Raises
    PackageRejected when no engine serves the package.
    """
    manifest = model.manifest
    file, key = sidecar_file(repository, manifest.model, manifest.version), _host_key(config)
    recorded = _read(file).get(key)
    if recorded is not None:
        try:
            chosen = EngineConfig(**{**config.model_dump(), **recorded})
            return replace(model, graphs=load_graphs(folder, manifest, chosen))
        except (ValidationError, TypeError, EngineError, EngineUnavailable, PackageRejected) as error:
            log.warning("%s: what it says does not work here, measuring again: %s", file, error)
    chosen, graphs = _fastest(folder, model, scenario, config)
    _record(file, key, {name: getattr(chosen, name) for name in ("kind", "precision", "variant")})
    return replace(model, graphs=graphs)


def sidecar_file(repository: Path, model: str, version: int) -> Path:
    """Where choices for a version are recorded."""
    return repository / model / f"engines-{version}.json"


def _fastest(folder: Path, model: LoadedModel, scenario: tuple[str, ScenarioConfig], config: EngineConfig):
    """(config, graphs) of the option with the least median time; options take turns."""
    options, reasons = {}, []
    for option in _options(config):
        try:
            graphs = load_graphs(folder, model.manifest, option)
            plan = compile_plan(*scenario, replace(model, graphs=graphs))
            check_golden(folder, plan)
            options[option] = plan
        except (EngineError, EngineUnavailable, PackageRejected) as error:
            reasons.append(f"{option.kind} {option.precision} {option.variant}: {error}")
    if not options:
        raise PackageRejected("no engine serves the package: " + "; ".join(reasons))
    for reason in reasons:
        log.info("engine auto leaves out %s", reason)
    seconds = _times(folder, options)
    for option, taken in seconds.items():
        log.info("engine auto: %s %s %s takes %.2f ms for %d candidates", option.kind, option.precision,
                 options[option].wire.variant, taken * 1e3, CANDIDATES)
    best = min(seconds, key=seconds.__getitem__)
    return best, options[best].model.graphs


def _options(config: EngineConfig) -> Iterator[EngineConfig]:
    variants = ("best", "plain") if config.variant == "best" else (config.variant,)
    for kind in KINDS:
        for precision in ("f32", "bf16"):
            allowed = precision == "f32" or (config.precision == "bf16" and kind != "onnxruntime")
            for variant in variants if allowed else ():
                yield config.model_copy(update={"kind": kind, "precision": precision, "variant": variant})


def _times(folder: Path, options: Mapping[EngineConfig, ScenarioPlan]) -> dict[EngineConfig, float]:
    """Median seconds of the `run` stage of one golden request, repeated to CANDIDATES."""
    requests = {option: golden_request(folder, plan, CANDIDATES) for option, plan in options.items()}
    taken: dict[EngineConfig, list[float]] = {option: [] for option in options}
    for turn in range(-WARMUP, ROUNDS):
        for option, plan in options.items():
            start = time.perf_counter()
            plan.pipeline.rank(**requests[option])
            if turn >= 0:
                taken[option].append(time.perf_counter() - start)
    return {option: statistics.median(values) for option, values in taken.items()}


def _host_key(config: EngineConfig) -> str:
    flags = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            flags = " ".join(sorted(line.partition(":")[2].split()))
            break
    settings = config.model_dump(mode="json")
    whole = json.dumps([flags, os.cpu_count(), engine_versions(), settings], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def _read(file: Path) -> Mapping:
    """What was recorded; nothing when the file is not there or is no record."""
    try:
        content = json.loads(file.read_text())
        return content if isinstance(content, dict) else {}
    except (OSError, ValueError):
        return {}


def _record(file: Path, key: str, chosen: Mapping[str, str]) -> None:
    """Adds an entry by rename; a repository that cannot be written to is only logged."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)
        with open(descriptor, "w") as out:
            json.dump({**_read(file), key: dict(chosen)}, out, indent=1, sort_keys=True)
        os.replace(name, file)
    except OSError as error:
        log.warning("%s: the choice of engine is not recorded, every start measures anew: %s", file, error)
