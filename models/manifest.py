"""The manifest of a model package: its types, its canonical bytes and its checks. No file access here.

The canonical form is JSON with sorted keys, no spaces, ASCII escapes and one newline at the end. `manifest_sha256` is
the digest of the canonical form of everything else, so that a manifest vouches for itself and, through `files`, for the
package.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from feature_store.schema import Schema
from feature_store.transforms import Slot

from .errors import PackageError
from .variants import Strict, Variant, variant_problems

MANIFEST_FILE = "manifest.json"
FORMAT = 2
MANIFEST_BYTES_MAX = 16 << 20
FILES_MAX = 4096
VERSION_MAX = 10**18 - 1
"""18 digits, so that every version fits an int64."""
LEADING_DIM = MappingProxyType({"user": 1, "context": 1, "item": -1})

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_SHA256 = r"^[0-9a-f]{64}$"
_Side = Literal["user", "item", "context"]


class Source(Strict):
    """Where a graph input's values come from.

    kind `values`: the slot's dense or padded values as they are; `lengths`: a padded slot's lengths, int32 [n]; `rows`:
    a table row for every id of a dense or padded slot, cells past the length zero; `pooled`: a ragged slot's rows
    pooled by `mode`.
    """

    kind: Literal["values", "lengths", "rows", "pooled"]
    slot: str
    table: str | None = None
    mode: Literal["sum", "mean", "sqrtn"] | None = None


class GraphInput(Strict):
    """One fed tensor: name with port, dtype, shape (leading dim -1 for items, 1 for user and context), source."""

    name: str
    dtype: Literal["f32", "i64", "i32"]
    shape: tuple[int, ...]
    side: _Side
    source: Source


class GraphOutput(Strict):
    """One fetched tensor: float32 [n], the score of `head` per candidate."""

    head: str
    name: str


class Graph(Strict):
    """The frozen graph's file with its feeds and fetches."""

    file: str
    inputs: tuple[GraphInput, ...]
    outputs: tuple[GraphOutput, ...]


class Initializer(Strict):
    """A node of the plain graph that fills a lookup table, to be run once when the graph is loaded: after node `asset`,
    if any, was made to hold the path of `file` in the package."""

    node: str = Field(min_length=1)
    asset: str | None = None
    file: str | None = None


class TableFile(Strict):
    """One embedding table: Parquet with columns `id` int64 and `row`; ids are raw ids after the slot's transforms."""

    name: str
    file: str
    dim: int = Field(ge=1)
    dtype: Literal["f32", "f16"]
    rows: int = Field(ge=0)


class Golden(Strict):
    """Recorded requests with the training framework's scores, and how far a served score may be from them, per head,
    by the precision that it was computed in. No bf16 tolerance: the package is not for bf16."""

    file: str
    rows: int = Field(ge=1)
    tolerance: dict[str, float]
    tolerance_bf16: dict[str, float] = Field(default_factory=dict)

    def tolerance_in(self, precision: str) -> Mapping[str, float]:
        """The tolerances of a precision, "f32" or "bf16"; empty when the package is not for it."""
        return self.tolerance_bf16 if precision == "bf16" else self.tolerance


class FileEntry(Strict):
    """What a file of the package must be."""

    sha256: str = Field(pattern=_SHA256)
    bytes: int = Field(ge=0)


class _SlotNames(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    name: str
    feature: str


class _Document(Strict):
    format: Literal[2]
    model: str
    version: int = Field(ge=1, le=VERSION_MAX)
    feature_schema: dict[str, Any] = Field(alias="schema")
    slots: list[_SlotNames]
    graph: Graph
    tables: tuple[TableFile, ...]
    golden: Golden
    variants: tuple[Variant, ...]
    files: dict[str, FileEntry] = Field(max_length=FILES_MAX)
    notes: dict[str, Any]
    initializers: tuple[Initializer, ...] = ()
    manifest_sha256: str = Field(pattern=_SHA256)


@dataclass(frozen=True)
class Manifest:
    """A package's manifest, checked. `files` maps every other file's name to digest and size; `notes` is free JSON;
    `variants` are other ways to the scores of `graph`, the most rewritten last. Without `golden` it is no package's,
    but says the same of a SavedModel that is served as it came."""

    model: str
    version: int
    schema: Schema
    slots: tuple[Slot, ...]
    graph: Graph
    tables: tuple[TableFile, ...]
    golden: Golden | None
    files: Mapping[str, FileEntry]
    notes: Mapping[str, Any] = field(default_factory=dict)
    variants: tuple[Variant, ...] = ()
    initializers: tuple[Initializer, ...] = ()

    def slots_of(self, side: str) -> tuple[Slot, ...]:
        """The slots whose feature is on `side`, in the manifest's order."""
        return tuple(s for s in self.slots if self.schema.feature(s.feature).side == side)

    def table(self, name: str) -> TableFile:
        """The table called `name`; KeyError when there is none."""
        return {t.name: t for t in self.tables}[name]

    def graph_files(self) -> tuple[str, ...]:
        """Every file of the package that is a graph: those that graph and variants name, and whatever else is .pb."""
        named = {self.graph.file, *(file for variant in self.variants for file in variant.files)}
        return tuple(sorted(named | {file for file in self.files if file.endswith(".pb")}))

    def slot(self, name: str) -> Slot:
        """The slot called `name`; KeyError when there is none."""
        return {s.name: s for s in self.slots}[name]


def canonical_json(value: Any) -> bytes:
    """`value` in the canonical form described at the top of this file; ValueError for NaN and infinities."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii") + b"\n"


def is_safe_name(name: str) -> bool:
    """Whether `name` is one plain path component: no separators, no leading dot, at most 128 ASCII characters."""
    return _NAME.fullmatch(name) is not None


def is_safe_path(path: str) -> bool:
    """Whether `path` is a plain relative path that stays inside the package and does not name the manifest."""
    return 0 < len(path) <= 512 and path != MANIFEST_FILE and all(is_safe_name(part) for part in path.split("/"))


def manifest_bytes(manifest: Manifest) -> bytes:
    """The bytes of manifest.json. Raises PackageError when the manifest contradicts itself."""
    _check(manifest)
    body = {
        "format": FORMAT,
        "model": manifest.model,
        "version": manifest.version,
        "schema": manifest.schema.to_json(),
        "slots": [slot.to_json() for slot in manifest.slots],
        "graph": manifest.graph.model_dump(mode="json"),
        "tables": [t.model_dump(mode="json") for t in manifest.tables],
        "golden": manifest.golden.model_dump(mode="json"),
        "variants": [variant.model_dump(mode="json") for variant in manifest.variants],
        "files": {name: entry.model_dump(mode="json") for name, entry in manifest.files.items()},
        "notes": dict(manifest.notes),
    }
    if manifest.initializers:
        body["initializers"] = [one.model_dump(mode="json") for one in manifest.initializers]
    for item in body["graph"]["inputs"]:
        item["source"] = {key: value for key, value in item["source"].items() if value is not None}
    try:
        digest = hashlib.sha256(canonical_json(body)).hexdigest()
        return canonical_json({**body, "manifest_sha256": digest})
    except (TypeError, ValueError) as error:
        raise PackageError(MANIFEST_FILE, f"notes must be plain JSON without NaN or infinity: {error}") from error


def parse_manifest(raw: bytes) -> Manifest:
    """The manifest that `raw` spells. Raises PackageError, naming manifest.json, for anything but canonical, digested,
    self-consistent bytes; never anything else, whatever the bytes."""
    if len(raw) > MANIFEST_BYTES_MAX:
        raise PackageError(MANIFEST_FILE, f"{len(raw)} bytes; at most {MANIFEST_BYTES_MAX} are accepted")
    try:
        body = json.loads(raw.decode("ascii"), parse_constant=_refuse_constant)
        canonical = isinstance(body, dict) and canonical_json(body) == raw
    except (ValueError, RecursionError) as error:
        raise PackageError(MANIFEST_FILE, f"not JSON: {error}") from error
    if not canonical:
        raise PackageError(MANIFEST_FILE, "not in canonical form (edited by hand or damaged); export the package again")
    claimed = body.pop("manifest_sha256", None)
    digest = hashlib.sha256(canonical_json(body)).hexdigest()
    if claimed != digest:
        raise PackageError(MANIFEST_FILE, f"its digest is {digest} but manifest_sha256 says {str(claimed)[:64]}")
    try:
        document = _Document.model_validate_json(raw)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:20])
        raise PackageError(MANIFEST_FILE, problems) from error
    manifest = Manifest(
        model=document.model,
        version=document.version,
        schema=_typed("schema", Schema.from_json, document.feature_schema),
        slots=tuple(_typed(f"slots.{i}", Slot.from_json, slot.model_dump()) for i, slot in enumerate(document.slots)),
        graph=document.graph,
        tables=document.tables,
        golden=document.golden,
        files=MappingProxyType(document.files),
        notes=MappingProxyType(document.notes),
        variants=document.variants,
        initializers=document.initializers,
    )
    _check(manifest)
    return manifest


def _refuse_constant(text: str):
    raise ValueError(f"{text} is not allowed")


def _typed(where: str, parse, value):
    try:
        return parse(value)
    except Exception as error:  # the feature store's own errors, and whatever a hostile document provokes in it
        raise PackageError(MANIFEST_FILE, f"{where}: {error}") from error


def _check(manifest: Manifest) -> None:
    """Raises PackageError with every contradiction inside the manifest."""
    problems = [*_name_problems(manifest), *_file_problems(manifest), *_input_problems(manifest)]
    heads = [output.head for output in manifest.graph.outputs]
    if not heads:
        problems.append("graph.outputs: empty; a model needs at least one head")
    if set(heads) != set(manifest.golden.tolerance):
        problems.append(f"golden.tolerance: has {sorted(manifest.golden.tolerance)}, the heads are {sorted(heads)}")
    if manifest.golden.tolerance_bf16 and set(heads) != set(manifest.golden.tolerance_bf16):
        problems.append(f"golden.tolerance_bf16: has {sorted(manifest.golden.tolerance_bf16)}, the heads are "
                        f"{sorted(heads)}")
    for name in ("tolerance", "tolerance_bf16"):
        problems += [f"golden.{name}.{h}: {t} is not >= 0" for h, t in getattr(manifest.golden, name).items()
                     if not t >= 0]
    problems += variant_problems(manifest.variants, {i.name: i.side for i in manifest.graph.inputs}, heads)
    if problems:
        raise PackageError(MANIFEST_FILE, "; ".join(problems[:20]))


def _name_problems(manifest: Manifest) -> list[str]:
    named = {
        "slots": [s.name for s in manifest.slots],
        "tables": [t.name for t in manifest.tables],
        "graph.inputs": [i.name for i in manifest.graph.inputs],
        "graph.outputs": [o.head for o in manifest.graph.outputs],
    }
    problems = [f"{where}: a name appears twice" for where, names in named.items() if len(set(names)) != len(names)]
    if not is_safe_name(manifest.model):
        problems.append(f"model: {manifest.model!r} is not a plain name")
    known = {f.name for f in manifest.schema.features}
    problems += [f"slots: {s.name!r} wants feature {s.feature!r}, not in the schema"
                 for s in manifest.slots if s.feature not in known]
    return problems


def _file_problems(manifest: Manifest) -> list[str]:
    unsafe = [name for name in manifest.files if not is_safe_path(name)]
    problems = [f"files: {name!r} is not a plain path inside the package" for name in unsafe]
    wanted = {"graph.file": manifest.graph.file, "golden.file": manifest.golden.file}
    wanted |= {f"tables.{t.name}.file": t.file for t in manifest.tables}
    wanted |= {f"variants[{v.name}].file {i}": file for v in manifest.variants for i, file in enumerate(v.files)}
    for number, one in enumerate(manifest.initializers):
        if (one.asset is None) != (one.file is None):
            problems.append(f"initializers.{number}: asset and file come together, got {one.asset!r} and {one.file!r}")
        elif one.file is not None:
            wanted[f"initializers.{number}.file"] = one.file
    absent = {where: file for where, file in wanted.items() if file not in manifest.files}
    return problems + [f"{where}: {file!r} is not among files" for where, file in absent.items()]


def _input_problems(manifest: Manifest) -> list[str]:
    slots = {s.name: s for s in manifest.slots}
    sides = {f.name: f.side for f in manifest.schema.features}
    tables = {t.name: t for t in manifest.tables}
    problems = []
    for item in manifest.graph.inputs:
        where, source = f"graph.inputs[{item.name}]", item.source
        slot = slots.get(source.slot)
        if slot is None:
            problems.append(f"{where}: slot {source.slot!r} does not exist")
        elif sides.get(slot.feature) != item.side:
            problems.append(f"{where}: side {item.side}, but slot {slot.name} is on side {sides.get(slot.feature)}")
        if not item.shape or item.shape[0] != LEADING_DIM[item.side] or any(d < 1 for d in item.shape[1:]):
            lead = LEADING_DIM[item.side]
            problems.append(f"{where}: shape {list(item.shape)} must start with {lead} and be positive after")
        problems += _table_problems(where, item, tables)
    return problems


def _table_problems(where: str, item: GraphInput, tables: Mapping[str, TableFile]) -> Sequence[str]:
    source, from_table = item.source, item.source.kind in ("rows", "pooled")
    problems = []
    if from_table != (source.table is not None):
        problems.append(f"{where}: kind {source.kind} {'needs' if from_table else 'takes no'} table")
    if (source.kind == "pooled") != (source.mode is not None):
        problems.append(f"{where}: kind {source.kind} {'needs' if source.kind == 'pooled' else 'takes no'} mode")
    if from_table and source.table is not None:
        table = tables.get(source.table)
        if table is None:
            problems.append(f"{where}: table {source.table!r} does not exist")
        elif not item.shape or item.shape[-1] != table.dim or item.dtype != "f32":
            problems.append(f"{where}: {item.dtype} {list(item.shape)} cannot hold f32 rows of dim {table.dim}")
    if source.kind == "lengths" and (item.dtype != "i32" or len(item.shape) != 1):
        problems.append(f"{where}: lengths are i32 of one dimension, not {item.dtype} {list(item.shape)}")
    return problems
