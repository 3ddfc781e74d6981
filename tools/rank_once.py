"""`lambda-svc rank`: one request to a running server, its answer as a table."""

from __future__ import annotations

import re

import numpy as np
from rich.console import Console
from rich.table import Table

from lambda_svc.client import RankAnswer, RankingClient
from lambda_svc.errors import LambdaError

__all__ = ["parse_ids", "run"]

IDS_MAX = 1_000_000


def parse_ids(text: str) -> np.ndarray:
    """`5,7,100-102` as int64 [5, 7, 100, 101, 102]; a range starts at 0 or more. Raises ValueError naming the part."""
    ids: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(-?\d{1,20})(?:-(\d{1,20}))?\s*", part)
        if match is None:
            raise ValueError(f"candidates: got {part.strip()!r}; expected a number or a range such as 100-200")
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        if last < first:
            raise ValueError(f"candidates: got {part.strip()!r}; expected a range that ascends, such as 100-200")
        if last - first >= IDS_MAX:
            raise ValueError(f"candidates: {part.strip()} has more than {IDS_MAX:,} ids")
        ids.extend(range(first, last + 1))
        if len(ids) > IDS_MAX:
            raise ValueError(f"candidates: more than {IDS_MAX:,} ids")
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


def run(scenario: str, user: int, candidates: str, top: int, server: str, timeout_s: float, inputs: list[str]) -> int:
    """Sends the request and prints the answer; returns the exit code, 1 with one line when it failed."""
    try:
        ids = parse_ids(candidates)
        columns = {name: np.full(len(ids), value, np.float32) for name, value in parse_inputs(inputs).items()}
        with RankingClient(server) as client:
            answer = client.rank(scenario, user, ids, top_k=top, formula_inputs=columns, timeout_s=timeout_s)
    except (LambdaError, ValueError, OverflowError) as error:
        Console(stderr=True).print(f"lambda-svc: {error}", highlight=False, markup=False)
        return 1
    Console().print(_table(answer), _summary(answer))
    return 0


def _table(answer: RankAnswer) -> Table:
    table = Table("#", "candidate", "rank score", *answer.heads)
    for row, (candidate, score) in enumerate(zip(answer.candidate_ids, answer.rank_scores, strict=True)):
        heads = (f"{scores[row]:.6f}" for scores in answer.heads.values())
        table.add_row(str(row + 1), str(candidate), f"{score:.6f}", *heads)
    return table


def _summary(answer: RankAnswer) -> str:
    """The response's other fields as protobuf prints them: plan, level, coverage, reasons, stage times."""
    columns = {"candidate_ids", "positions", "rank_scores", "heads", "flags"}
    fields = ((field.name, value) for field, value in answer.message.ListFields() if field.name not in columns)
    return "\n".join(f"{name}: {' '.join(str(value).split())}" for name, value in fields)
