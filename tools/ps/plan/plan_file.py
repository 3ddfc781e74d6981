"""The tables that `ps plan` is asked about: a YAML file, or the categorical features of a Merlin schema (.pbtxt)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tools.ps.plan.sizing import parse_bytes

__all__ = ["PlanError", "PlanFile", "TablePlan", "ZipfLaw", "parse_zipf", "read_plan", "read_schema"]

Bytes = Annotated[int, BeforeValidator(parse_bytes), Field(ge=1)]


class PlanError(Exception):
    """A plan that cannot be read; the message lists every problem with its path."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ZipfLaw(_Strict):
    """P(rank r) proportional to (r + q)^-s."""

    s: float = Field(ge=0, le=10)
    q: float = Field(default=0.0, gt=-1)


class Trace(_Strict):
    """A file of ids in the order of their lookups: .npy, .parquet with a column, or an id a line."""

    path: Path
    column: str = "id"


class TablePlan(_Strict):
    """One table. `ram_bytes_max` is the budget for its hot rows, to be shown among the usual ones; its popularity is a
    Zipf law, a trace, or the plan's own law when it has neither."""

    name: str
    rows: int = Field(ge=1)
    dim: int = Field(ge=1, le=4096)
    dtype: Literal["f32", "f16", "bf16", "int8"] = "f32"
    ram_bytes_max: Bytes | None = None
    zipf: ZipfLaw | None = None
    trace: Trace | None = None


class PlanFile(_Strict):
    """Tables and hosts. Every host has `host_ram_bytes`, of which `host_ram_share` may be filled."""

    tables: list[TablePlan] = Field(min_length=1)
    host_ram_bytes: Bytes = 64 * 2**30
    host_ram_share: float = Field(default=0.8, gt=0, le=1)
    replicas: int = Field(default=2, ge=1)
    zipf: ZipfLaw = ZipfLaw(s=1.0, q=10.0)


def read_plan(path: Path) -> PlanFile:
    """The plan of a YAML file; trace paths are relative to it. Raises PlanError."""
    try:
        plan = PlanFile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise PlanError(f"{path}: {error}") from error
    except ValidationError as error:
        raise PlanError("\n".join(f"{path}: {_place(problem['loc'])}: {problem['msg']}"
                                  for problem in error.errors())) from error
    tables = [table if table.trace is None else
              table.model_copy(update={"trace": Trace(path=path.parent / table.trace.path, column=table.trace.column)})
              for table in plan.tables]
    return plan.model_copy(update={"tables": tables})


def read_schema(path: Path, dim: int, dtype: str, scale: float = 1.0) -> PlanFile:
    """A table for every categorical feature of a schema in protobuf text (int_domain: max + 1 rows), `scale` times as
    large. Raises PlanError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{path}: {error}") from error
    tables = []
    for feature in text.split("feature {")[1:]:
        name, largest = re.search(r'name: "([^"]+)"', feature), re.search(r"int_domain \{[^}]*max: (\d+)", feature)
        if name and largest and "is_categorical: true" in feature:
            rows = max(1, round((int(largest[1]) + 1) * scale))
            tables.append(TablePlan(name=name[1], rows=rows, dim=dim, dtype=dtype))
    if not tables:
        raise PlanError(f"{path}: no categorical feature with an int_domain; expected a schema in protobuf text")
    return PlanFile(tables=tables)


def parse_zipf(text: str) -> ZipfLaw:
    """`s=1.0,q=10` as a law. Raises PlanError."""
    try:
        return ZipfLaw.model_validate(dict(part.split("=", 1) for part in text.split(",")))
    except ValueError as error:
        raise PlanError(f"--zipf: got {text!r}; expected s=NUMBER,q=NUMBER such as s=1.0,q=10") from error


def _place(parts: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in parts) or "the file"
