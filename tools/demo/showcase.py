"""Step 5: rank every film for a few users, as a backend would, and show what came back."""

from __future__ import annotations

import statistics
import time

import numpy as np
from rich.columns import Columns
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from lambda_svc.client import RankAnswer, RankingClient
from tools.demo.offline import Offline
from tools.demo.serving import SCENARIO
from tools.demo.text import heading

__all__ = ["show_rankings"]

REPEATS = 30
SHOWN = 10
STAGES = ("parse", "admission", "gather", "lookup", "run", "topk", "respond")
CONTEXT = {"hour": 20.0, "weekday": 5.0}  # a Friday evening


def show_rankings(client: RankingClient, offline: Offline, users: int, console: Console) -> None:
    """Ranks all films for the `users` most recently active users; prints top ten, history, times."""
    items = np.fromiter(offline.features.titles, np.int64)
    heading(console, 5, f"Rank all {len(items):,} films over gRPC")
    recent = sorted(offline.features.requests, key=lambda request: -request.timestamp)
    user_ids = list(dict.fromkeys(request.user_id for request in recent))[:users]
    answers = []
    for user_id in user_ids:
        answer = client.rank(SCENARIO, user_id, items, top_k=SHOWN, context=CONTEXT)
        console.print(Padding(Columns([_history(offline, user_id), _top(offline, answer)]), (0, 0, 0, 3)))
        answers.append(answer)
    _print_times(client, user_ids[0], items, console)


def _history(offline: Offline, user_id: int) -> Table:
    users = offline.features.users
    row = users["id"].to_pylist().index(user_id)
    table = Table("rated", "", title=f"user {user_id}: latest ratings", title_justify="left", box=None)
    items, ratings = users["history_item"][row].as_py(), users["history_rating"][row].as_py()
    for item, rating in list(zip(items, ratings))[:SHOWN]:
        table.add_row("★" * int(rating), _title(offline, item))
    return table


def _top(offline: Offline, answer: RankAnswer) -> Table:
    table = Table("score", "", title=f"top {SHOWN}", title_justify="left", box=None)
    for item, score in zip(answer.candidate_ids, answer.rank_scores):
        table.add_row(f"{score:.3f}", _title(offline, int(item)))
    return table


def _title(offline: Offline, item_id: int) -> str:
    title = offline.features.titles[item_id]
    return title if len(title) <= 34 else title[:33] + "…"


def _print_times(client: RankingClient, user_id: int, items: np.ndarray, console: Console) -> None:
    walls, stages = [], []
    for _ in range(REPEATS):
        started = time.perf_counter()
        answer = client.rank(SCENARIO, user_id, items, top_k=SHOWN, context=CONTEXT)
        walls.append(time.perf_counter() - started)
        stages.append([getattr(answer.message.times, f"{stage}_us") for stage in STAGES])
    table = Table("ms", *STAGES, "client sees", box=None, pad_edge=False, padding=(0, 2))
    medians = [statistics.median(column) / 1000 for column in zip(*stages)]
    table.add_row("median", *(f"{value:.2f}" for value in medians), f"[bold]{statistics.median(walls) * 1000:.2f}[/]")
    console.print(Padding(table, (1, 0, 0, 3)))
    plan = answer.message.plan
    console.print(
        f"   {len(items):,} candidates in {plan.slices} slices on {plan.engine} {plan.precision}; "
        f"bytes copied: {answer.message.bytes_copied}",
        highlight=False,
    )
