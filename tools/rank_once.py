"""`lambda-svc rank`: one request to a running server, its answer as a table."""

from __future__ import annotations

import re

import numpy as np
from rich.console import Console
from rich.table import Table

from lambda_svc.client import RankAnswer, RankingClient
from lambda_svc.errors import DeadlineExceeded, LambdaError, Unavailable
from lambda_svc.proto import ranking_pb2 as pb

__all__ = ["parse_id", "parse_ids", "parse_inputs", "parse_server", "run"]

IDS_MAX = 1_000_000
_FLAGS = {pb.CANDIDATE_UNKNOWN: "unknown", pb.CANDIDATE_NAN: "NaN"}
_UNREACHED = re.compile(r"no server|connect|resol", re.IGNORECASE)  # in texts that tell that no server took the call
_STAGE = re.compile(r"\bstage\b|\bstream\b")  # in texts of a server that tell where the time went


def parse_id(text: str) -> int:
    """A user id from an int64's or a uint64's decimal digits. Raises ValueError for anything else."""
    if re.fullmatch(r"\s*[+-]?\d{1,20}\s*", text) and -(1 << 63) <= int(text) < 1 << 64:
        return int(text)
    raise ValueError(f"--user: expected a 64-bit integer, got {text!r}")


def parse_server(text: str) -> str:
    """The address as it came. Raises ValueError unless it is HOST:PORT with a port of 1 to 65535."""
    match = re.fullmatch(r"(?:[^\s:/]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})", text)
    if match is None or not 1 <= int(match.group(1)) <= 65_535:
        raise ValueError(f"--server: got {text!r}; expected HOST:PORT, such as 127.0.0.1:8500")
    return text


def parse_ids(text: str) -> np.ndarray:
    """`5,7,100-102` as int64 [5, 7, 100, 101, 102]; a range starts at 0 or more. Raises ValueError naming the part."""
    ids: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(-?\d{1,20})(?:-(\d{1,20}))?\s*", part)
        if match is None:
            raise ValueError(f"--candidates: got {part.strip()!r}; expected a number or a range such as 100-200")
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        if first < -(1 << 63) or last >= 1 << 64:
            raise ValueError(f"--candidates: got {part.strip()!r}; expected ids of 64 bits")
        if last < first:
            raise ValueError(f"--candidates: got {part.strip()!r}; expected a range that ascends, such as 100-200")
        if last - first >= IDS_MAX:
            raise ValueError(f"--candidates: {part.strip()} has more than {IDS_MAX:,} ids")
        ids.extend(range(first, last + 1))
        if len(ids) > IDS_MAX:
            raise ValueError(f"--candidates: more than {IDS_MAX:,} ids")
    return np.array([id_ - (1 << 64) if id_ >= 1 << 63 else id_ for id_ in ids], np.int64)


def parse_inputs(texts: list[str]) -> dict[str, float]:
    """`["bid=1.5"]` as {"bid": 1.5}. Raises ValueError naming the part that is wrong."""
    inputs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        try:
            inputs[name] = float(value)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise ValueError(f"--input: got {text!r}; expected NAME=NUMBER")
    return inputs


def run(scenario: str, user: str, candidates: str, top: int, server: str, timeout_s: float, inputs: list[str]) -> int:
    """Sends the request and prints the answer; returns the exit code, 1 with one line when it failed."""
    try:
        user_id, target, ids = parse_id(user), parse_server(server), parse_ids(candidates)
        columns = {name: np.full(len(ids), value, np.float32) for name, value in parse_inputs(inputs).items()}
        with RankingClient(target) as client:
            answer = client.rank(scenario, user_id, ids, top_k=top, formula_inputs=columns, timeout_s=timeout_s)
    except (LambdaError, ValueError) as error:
        text = _advice(error, server, timeout_s)
        Console(stderr=True, soft_wrap=True).print(f"lambda-svc: {text}", highlight=False, markup=False)
        return 1
    console = Console()
    console.print(_table(answer))
    for line in _summary(answer.message):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return 0


def _advice(error: Exception, server: str, timeout_s: float) -> str:
    """What went wrong and what to do at a command line; the client's own texts are for programs."""
    if isinstance(error, Unavailable) and _UNREACHED.search(str(error)):
        return f"no server at {server}; start one with `lambda-svc serve CONFIG`, or pass --server HOST:PORT"
    if isinstance(error, DeadlineExceeded):
        stage = f" ({error})" if _STAGE.search(str(error)) else ""
        return (f"no answer within {timeout_s * 1e3:g} ms{stage}; "
                "allow more with --timeout-ms, or send fewer candidates")
    return str(error)


def _table(answer: RankAnswer) -> Table:
    """The candidates best first; a column of flags only when one is set."""
    flagged = bool(answer.flags.any())
    table = Table("#", "candidate", "rank score", *answer.heads, *(["flag"] if flagged else []))
    for row, (candidate, score) in enumerate(zip(answer.candidate_ids, answer.rank_scores, strict=True)):
        heads = [f"{scores[row]:.6f}" for scores in answer.heads.values()]
        flags = [" ".join(word for bit, word in _FLAGS.items() if answer.flags[row] & bit)] if flagged else []
        table.add_row(str(row + 1), str(candidate), f"{score:.6f}", *heads, *flags)
    return table


def _summary(message: pb.RankResponse) -> list[str]:
    """The answer's other fields, a line each: plan, coverage, reasons (when any) and stage times."""
    plan = message.plan
    slices = "1 slice" if plan.slices == 1 else f"{plan.slices} slices"
    coverage = ", ".join(f"{part.source} {part.answered}/{part.asked}" for part in message.coverage)
    reasons = ", ".join(f"{reason.code} {reason.count}" for reason in message.reasons)
    stages = [(field.name.removesuffix("_us"), getattr(message.times, field.name) / 1e3)
              for field in message.times.DESCRIPTOR.fields]
    times = ", ".join(f"{name} {ms:.2f}" for name, ms in stages)
    lines = [
        ("request", message.request_id),
        ("plan", f"{plan.model} version {plan.version} on {plan.engine} {plan.precision}, {slices}"),
        ("level", str(message.level) if message.level else ""),
        ("coverage", coverage),
        ("reasons", reasons),
        ("times", f"{times} ms"),
        ("copied", f"{message.bytes_copied:,} bytes" if message.bytes_copied else ""),
    ]
    return [f"{name:<9} {text}" for name, text in lines if text]
