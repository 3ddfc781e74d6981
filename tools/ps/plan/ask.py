"""From the options of `ps plan` to the plan that is reported."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from tools.ps.errors import PsError
from tools.ps.plan import report
from tools.ps.plan.plan_file import PlanError, PlanFile, TablePlan, Trace, parse_zipf, read_plan, read_schema
from tools.ps.plan.popularity import TraceError
from tools.ps.plan.sizing import DTYPES, parse_bytes

__all__ = ["Asked", "plan_of", "run"]


@dataclass(frozen=True)
class Asked:
    """The options as given: exactly one of `file`, `schema` and `rows` names the tables."""

    file: Path | None = None
    schema: Path | None = None
    rows: int | None = None
    scale: float = 1.0
    dim: int = 32
    dtype: str = "f16"
    zipf: str | None = None
    trace: Path | None = None
    column: str = "id"
    host_ram: str | None = None
    replicas: int | None = None


def run(asked: Asked, *, svg_file: Path | None = None, json_file: Path | None = None) -> int:
    """Reports what was asked; returns 0. Raises PsError."""
    try:
        return report.run(plan_of(asked), svg_file=svg_file, json_file=json_file)
    except (PlanError, TraceError) as error:
        raise PsError(str(error)) from error


def plan_of(asked: Asked) -> PlanFile:
    """The plan with every option applied. Raises PsError, PlanError."""
    if sum(source is not None for source in (asked.file, asked.schema, asked.rows)) != 1:
        raise PsError("name the tables: a PLAN file, --schema FILE or --rows NUMBER, one of them")
    if asked.dtype not in DTYPES:
        raise PsError(f"--dtype: got {asked.dtype!r}; expected one of {', '.join(DTYPES)}")
    changes: dict[str, object] = {}
    if asked.zipf is not None:
        changes["zipf"] = parse_zipf(asked.zipf)
    if asked.host_ram is not None:
        try:
            changes["host_ram_bytes"] = parse_bytes(asked.host_ram)
        except ValueError as error:
            raise PsError(f"--host-ram: {error}") from error
    if asked.replicas is not None:
        changes["replicas"] = asked.replicas
    plan = _tables(asked)
    if asked.trace is not None:
        trace = Trace(path=asked.trace, column=asked.column)
        changes["tables"] = [table.model_copy(update={"trace": trace}) for table in plan.tables]
    return plan.model_copy(update=changes)


def _tables(asked: Asked) -> PlanFile:
    if asked.file is not None:
        return read_plan(asked.file)
    if asked.schema is not None:
        return read_schema(asked.schema, asked.dim, asked.dtype, asked.scale)
    try:
        return PlanFile(tables=[TablePlan(name="table", rows=asked.rows or 0, dim=asked.dim, dtype=asked.dtype)])
    except ValidationError as error:
        raise PsError(str(error)) from error
