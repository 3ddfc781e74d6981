"""Whether the Parquet files of stored features have the columns that the served models need, from their schemas alone.

Reading the rows is for the start; a wrong file, a wrong key and swapped files show in the schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from feature_store import DataError, FeatureCache, Schema
from models.package import Manifest

__all__ = ["feature_file_problems"]

_COLUMNS_SHOWN_MAX = 20


def feature_file_problems(files: Mapping[str, tuple[Path, str]], manifests: list[Manifest]) -> list[str]:
    """Every problem of the files `{"user": (path, key column), ...}` with what `manifests` store on those sides."""
    problems: list[str] = []
    tables: dict[str, pa.Table] = {}
    for side, (path, _) in files.items():
        if not path.is_file():
            problems.append(f"{side}_features.path: no such file: {path}")
            continue
        try:
            tables[side] = pq.read_schema(path).empty_table()
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            problems.append(f"{side}_features.path: {path} cannot be read as Parquet: {_one_line(error)}")
    for side, table in tables.items():
        path, key = files[side]
        others = {name: other.column_names for name, other in tables.items() if name != side}
        problems += _key_problems(side, path, key, table)
        for manifest in manifests:
            problems += _column_problems(side, path, table, manifest, others)
    return list(dict.fromkeys(problems))


def _key_problems(side: str, path: Path, key: str, table: pa.Table) -> Iterator[str]:
    if table.column_names.count(key) != 1:
        yield (f"{side}_features.key: {path} has {table.column_names.count(key) or 'no'} column {key!r}; "
               f"columns: {_listed(table.column_names)}")
    elif table.schema.field(key).type not in (pa.int64(), pa.uint64()):
        came = table.schema.field(key).type
        yield f"{side}_features.key: column {key!r} of {path} is {came}; expected int64 or uint64"


def _column_problems(side: str, path: Path, table: pa.Table, manifest: Manifest,
                     others: Mapping[str, list[str]]) -> Iterator[str]:
    stored = manifest.schema.stored(side)
    who = f"{manifest.model} version {manifest.version}"
    absent = [feature.name for feature in stored if feature.name not in table.column_names]
    if absent:
        swapped = next((name for name, names in others.items() if set(absent) <= set(names)), None)
        hint = f"it has: {_listed(table.column_names)}"
        if swapped:
            hint = f"the {swapped} file has them: are the two swapped?"
        yield f"{side}_features.path: {path} lacks what {who} stores: {_listed(absent)}; {hint}"
    ids = "\0id"  # a key column of its own, so that what is found is the feature's own fault
    keyed = table.append_column(ids, pa.array([], pa.int64()))
    for feature in stored:
        if feature.name not in absent:
            try:
                FeatureCache.from_arrow(Schema((feature,)), side, keyed, ids)
            except DataError as error:
                yield f"{side}_features.path: {path}: {error} ({who})"


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_COLUMNS_SHOWN_MAX])
    more = len(names) - _COLUMNS_SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
