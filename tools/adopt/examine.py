"""What `lambda-svc adopt` finds out about a model, in order: does it freeze, is it equal, what would engines save.

Imports tensorflow.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from feature_store.errors import FeatureStoreError
from models.errors import FreezeError, GraphError, ModelsError, OpRefusedError, SavedModelError
from models.export_loaded import export_loaded
from models.loaded_inputs import head_outputs
from models.loaders import FrozenModel, Loaded, admit, load_frozen, load_saved_model
from models.passes import Cost, apply, cost
from models.passes.graph import node_of
from tools.bench.figures import host_line

from .constant_rows import constant_inputs, equal_rows
from .dense_part import DensePart, dense_part
from .deviation import Comparison, Deviation
from .errors import NoDensePart, RequestsError
from .exported import ExportedGraph, Original
from .measure import Measured, Speed, measure, measure_stock
from .requests import Recorded, Request, read_requests

__all__ = ["TOLERANCE", "TOLERANCE_BF16", "Adoption", "InputLine", "Options", "examine", "load"]

TOLERANCE, TOLERANCE_BF16 = 1e-6, 2e-2
"""Of scores in float32 and in bf16, as packages have them; scores above 1 are compared relative to themselves."""
AUTO, NONE = "auto", "none"
_NEVER = 1 << 62
_GOLDEN_REQUESTS_MAX, _GOLDEN_ROWS_MAX = 20, 4_000


@dataclass(frozen=True)
class Options:
    """What the command line says. `user`: ("auto",), ("none",) or inputs by name."""

    model: Path
    requests: Path
    signature: str | None = None
    tags: tuple[str, ...] = ("serve",)
    user: tuple[str, ...] = (AUTO,)
    rows_min: int = 1_000
    tolerance: float = TOLERANCE
    quick: bool = False


@dataclass(frozen=True)
class InputLine:
    """An input of the signature. `constant`: whether all rows of every request are equal; `use`: what becomes of it."""

    name: str
    dtype: str
    shape: str
    constant: bool
    use: str


@dataclass(frozen=True)
class Adoption:
    """The answer.

    Attributes:
        refusal: why the model does not freeze, or may not be pushed; "" when it does and may.
        no_package: why export makes no package of it; "" when it does. package_bytes is its size.
        notes: what a reader should know of tables, vocabularies and requests.
        deviation: the exported graph's scores against the original's, over all requests; None when there are none.
        unequal: outputs that are no floats and differ, with the record.
        user: the inputs taken as the user's; user_once: FLOPs of all passes without and with a user's side.
        no_dense: why no engine but TensorFlow runs it; "" when they do.
        stock: the original, where nothing else was measured.
    """

    options: Options
    kind: str
    host: str
    recorded: Recorded
    inputs: tuple[InputLine, ...]
    refusal: str = ""
    no_package: str = ""
    package_bytes: int = 0
    notes: tuple[str, ...] = ()
    deviation: Deviation | None = None
    unequal: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    user_once: tuple[Cost, Cost] | None = None
    no_dense: str = ""
    part: DensePart | None = None
    measured: Measured | None = None
    stock: Speed | None = None
    stock_path: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def exports(self) -> bool:
        """Whether export makes a package of the model."""
        return not self.refusal and not self.no_package

    @property
    def equal(self) -> bool:
        """Whether the exported graph gives the original's outputs, on every request."""
        return (self.deviation is not None and self.deviation.scaled <= self.options.tolerance and not self.unequal)


def load(options: Options) -> Loaded:
    """A SavedModel's folder or a frozen graph's file. Raises SavedModelError, SignatureError."""
    if options.model.is_file() and options.model.suffix != ".pbtxt":
        return load_frozen(options.model)
    versions = sorted(file.parent.name for file in options.model.glob("*/saved_model.pb"))
    if versions and not (options.model / "saved_model.pb").exists():
        raise SavedModelError(options.model, f"expected a SavedModel; there are some in it: name one of "
                                             f"{', '.join(str(options.model / name) for name in versions)}")
    return load_saved_model(options.model, options.tags)


def examine(options: Options, told: Callable[[str], None] = lambda _: None) -> Adoption:
    """Loads, reads, freezes, compares and measures. Raises SavedModelError, SignatureError, RequestsError."""
    told("loading the model")
    loaded = load(options)
    told("reading the requests")
    recorded = read_requests(options.requests, loaded, options.signature)
    constant = constant_inputs(recorded.requests)
    user = _user(options, recorded, constant)
    told("loading the original")
    original = Original(loaded, recorded.signature, options.tags)
    want = _wanted(original, recorded)
    lines = tuple(InputLine(name, spec.dtype, _shape(spec.shape), name in constant, "")
                  for name, spec in recorded.signature.inputs.items())
    found = Adoption(options, loaded.kind, host_line(), recorded, lines, user=user, stock_path=original.stock_path)
    told("freezing")
    try:
        admit(loaded)
        frozen, exported, notes = _frozen(loaded, recorded.signature.name, options)
    except GraphError as error:
        told("measuring the original")
        reason = (f"{error.reason}; serve the SavedModel itself" if isinstance(error, FreezeError) else
                  f"it may not be pushed: {error}" if isinstance(error, OpRefusedError) else str(error))
        return replace(found, refusal=reason, stock=measure_stock(original, recorded.requests, options.quick))
    told("exporting")
    found = _exported(replace(found, notes=notes), loaded, want, bool(frozen.initializers))
    told("comparing")
    found = _compared(found, exported, want)
    if found.deviation is None:
        return replace(found, stock=measure_stock(original, recorded.requests, options.quick))
    return _measured(found, frozen, exported, original, constant, told)


def _user(options: Options, recorded: Recorded, constant: Sequence[str]) -> tuple[str, ...]:
    if options.user == (NONE,):
        return ()
    inputs = recorded.signature.inputs
    if options.user == (AUTO,):
        return () if set(constant) == set(inputs) else tuple(constant)
    for name in options.user:
        if name not in inputs:
            raise RequestsError(options.requests, f"--user {name}: signature {recorded.signature.name!r} has no such "
                                                  f"input, it has {', '.join(inputs)}")
        for request in recorded.requests:
            if not equal_rows(request.inputs[name]):
                raise RequestsError(options.requests, f"--user {name}: its rows differ from each other; a user's input "
                                                      "has one value for all candidates", request.record)
    return tuple(dict.fromkeys(options.user))


def _wanted(original: Original, recorded: Recorded) -> list[dict[str, np.ndarray]]:
    import tensorflow as tf

    found = []
    for request in recorded.requests:
        try:
            found.append({name: np.asarray(value) for name, value in original.call(request.inputs).items()})
        except (tf.errors.OpError, ValueError, TypeError) as error:
            reason = str(getattr(error, "message", error)).partition("\n")[0]
            raise RequestsError(recorded.file, f"the original model refuses it: {reason}", request.record) from error
    return found


def _frozen(loaded: Loaded, signature: str, options: Options) -> tuple[FrozenModel, ExportedGraph, tuple[str, ...]]:
    """Raises GraphError, of which FreezeError is one."""
    import tensorflow as tf

    notes = []
    frozen = loaded.freeze(signature, options.rows_min)
    notes += [f"table {cut.variable} {list(frozen.tables[cut.variable].shape)} leaves the graph for the parameter "
              f"server: {'rows' if cut.mode == 'rows' else cut.mode} for {cut.ids}" for cut in frozen.cuts]
    try:
        exported = ExportedGraph(frozen)
    except tf.errors.OpError as error:
        raise GraphError(f"its lookup tables cannot be filled: {error.message}") from error
    except ModelsError as error:
        notes.append(f"measured with its tables in the graph: {error}")
        frozen = loaded.freeze(signature, _NEVER)
        exported = ExportedGraph(frozen)
    notes += [f"table {table.variable} {list(table.shape)} stays in the graph: {table.reason}" for table in frozen.kept]
    notes += [f"vocabulary {one.file} fills {one.table} once at load" for one in frozen.initializers if one.file]
    notes += [f"{name} draws random numbers on every call: scores are not repeatable" for name in frozen.random_ops]
    return exported.frozen, exported, tuple(notes)


def _exported(found: Adoption, loaded: Loaded, want: Sequence[Mapping[str, np.ndarray]], lookups: bool) -> Adoption:
    """Publishes the package into a folder that is removed again; some of the requests are its golden rows, and its
    heads are the outputs of one score a candidate in every request."""
    import tensorflow as tf

    requests, kept = found.recorded.requests, []
    for request in requests[:_GOLDEN_REQUESTS_MAX]:
        if kept and sum(one.rows for one in kept) + request.rows > _GOLDEN_ROWS_MAX:
            break
        kept.append(request)
    golden = {name: np.concatenate([_rows(one.inputs[name], one.rows) for one in kept])
              for name, spec in found.recorded.signature.inputs.items()
              if all(one.inputs[name].ndim and one.inputs[name].shape[1:] == kept[0].inputs[name].shape[1:]
                     for one in kept)}
    with tempfile.TemporaryDirectory() as folder:
        try:
            _, left_out = head_outputs(found.recorded.signature)
            for request, one in zip(requests, want, strict=True):
                for name in (name for name in one if one[name].size != request.rows):
                    left_out.setdefault(name, f"{list(one[name].shape)} came for {request.rows} candidates")
            done = export_loaded(loaded, folder, "adopted", 1, signature=found.recorded.signature.name,
                                 user=found.user, heads=sorted(set(want[0]) - set(left_out)), inputs=golden,
                                 rows_min=found.options.rows_min)
        except (ModelsError, FeatureStoreError) as error:
            return replace(found, no_package=str(error))
        except tf.errors.OpError as error:  # of the model as it came, with a row of each input a candidate
            return replace(found, no_package=f"it does not run with a row of each input a candidate: {error.message}")
        size = sum(file.stat().st_size for file in done.path.rglob("*") if file.is_file())
    notes = [f"output {name} is no head of the package: {why}" for name, why in sorted(left_out.items())]
    notes += ["the package keeps lookup tables, so that it is for engine tensorflow alone"] if lookups else []
    notes += [f"the package has no rewritten variant: {done.plain_only}"] if done.plain_only else []
    return replace(found, package_bytes=size, notes=(*found.notes, *notes))


def _rows(value: np.ndarray, rows: int) -> np.ndarray:
    return value if len(value) == rows else np.repeat(value[:1], rows, axis=0)


def _compared(found: Adoption, exported: ExportedGraph, want: Sequence[Mapping[str, np.ndarray]]) -> Adoption:
    import tensorflow as tf

    compared, unequal = Comparison(), {}
    for request, outputs in zip(found.recorded.requests, want, strict=True):
        try:
            got = exported.call(request.inputs)
        except (tf.errors.OpError, IndexError) as error:
            reason = str(getattr(error, "message", error)).partition("\n")[0]
            return replace(found, unequal=(f"the exported graph refuses record {request.record}: {reason}",))
        floats = {name: value for name, value in outputs.items() if value.dtype.kind == "f"}
        compared.add(request.record, {name: got[name] for name in floats}, floats)
        for name in set(outputs) - set(floats):
            if not np.array_equal(got[name], outputs[name]):
                unequal.setdefault(name, f"output {name}: differs in record {request.record}")
    return replace(found, deviation=compared.result(), unequal=tuple(unequal.values()))


def _measured(found: Adoption, frozen: FrozenModel, exported: ExportedGraph, original: Original,
              constant: Sequence[str], told: Callable[[str], None]) -> Adoption:
    options, requests = found.options, found.recorded.requests
    told("looking for the dense part")
    try:
        whole = found.exports and not frozen.initializers
        part = dense_part(frozen, exported, requests, found.user, whole)
    except (NoDensePart, GraphError) as error:
        told("measuring the original")
        return replace(found, no_dense=str(error), stock=measure_stock(original, requests, options.quick))
    found = replace(found, part=part, left_out=part.left_out, inputs=_uses(found, part, frozen, exported),
                    user_once=_user_once(frozen, exported, requests, constant, whole))
    measured = measure(part, exported, original, requests, options.quick, told)
    return replace(found, measured=measured)


def _user_once(frozen: FrozenModel, exported: ExportedGraph, requests: Sequence[Request],
               constant: Sequence[str], whole: bool) -> tuple[Cost, Cost] | None:
    """The cost after all passes without a user's side, and with every constant input in it; None when callers send one
    row of each already."""
    if all(len(request.inputs[name]) == 1 for name in constant for request in requests):
        return None
    rows = int(np.median([request.rows for request in requests]))
    try:
        without, with_user = (cost(apply(dense_part(frozen, exported, requests, user, whole).plain), rows)
                              for user in ((), constant))
    except (NoDensePart, GraphError):
        return None
    return without, with_user


def _uses(found: Adoption, part: DensePart, frozen: FrozenModel, exported: ExportedGraph) -> tuple[InputLine, ...]:
    """What becomes of each input: fed to the dense part, its rows looked up, or read in front."""
    looked_up = {exported.ids_of(ids): f"{name}:0" for name, (ids, _) in exported.lookups.items()}
    sides = {part.boundary[entry.name]: entry.side for entry in part.plain.inputs}
    lines = []
    for line in found.inputs:
        spec = frozen.inputs.get(line.name)
        uses = []
        if looked_up.get(line.name) in sides:
            uses.append(f"{sides[looked_up[line.name]]}: rows of a table")
        if spec is not None:
            uses.append(sides.get(f"{node_of(spec.name)}:0", "read in front" if part.front else "not read"))
        lines.append(replace(line, use=", ".join(uses) or "not read"))
    return tuple(lines)


def _shape(shape: tuple[int, ...] | None) -> str:
    return "any" if shape is None else f"[{', '.join('any' if d < 0 else str(d) for d in shape)}]"
