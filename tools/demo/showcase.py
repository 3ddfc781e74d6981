"""Step 5: rank every film for a few users, as a backend would, and show what came back."""

from __future__ import annotations

import statistics
import time

import numpy as np
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
TITLE_WIDTH = 28
STAGES = {
    "parse": "check every column of the request",
    "admission": "wait for a stream",
    "gather": "features, transformed, into the arena",
    "lookup": "embedding rows into the arena",
    "run": "the dense graph, slice by slice",
    "topk": "formula and order",
    "respond": "pack the answer",
}
CONTEXT = {"hour": 20.0, "weekday": 5.0}  # a Friday evening


def show_rankings(client: RankingClient, offline: Offline, users: int, console: Console) -> None:
    """Ranks all films for the `users` most recently active users; prints top ten, history, times."""
    items = np.fromiter(offline.features.titles, np.int64)
    heading(console, 5, f"Rank all {len(items):,} films over gRPC")
    console.print("   on a Friday evening; a film that the user has rated already is marked ·", highlight=False)
    recent = sorted(offline.features.requests, key=lambda request: -request.timestamp)
    user_ids = list(dict.fromkeys(request.user_id for request in recent))[:users]
    for user_id in user_ids:
        answer = client.rank(SCENARIO, user_id, items, top_k=SHOWN, context=CONTEXT)
        console.print(Padding(_side_by_side(offline, user_id, answer), (1, 0, 0, 3)))
    _print_times(client, user_ids[0], items, console)


def _side_by_side(offline: Offline, user_id: int, answer: RankAnswer) -> Table:
    """The user's latest ratings beside his top ten, narrow enough for 80 columns."""
    users = offline.features.users
    row = users["id"].to_pylist().index(user_id)
    items, ratings = users["history_item"][row].as_py(), users["history_rating"][row].as_py()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("rated", width=5)
    table.add_column(f"user {user_id}: latest ratings", width=TITLE_WIDTH, no_wrap=True)
    table.add_column("score", width=6)
    table.add_column(f"top {SHOWN}", width=TITLE_WIDTH, no_wrap=True)
    for place in range(SHOWN):
        stars, film, score, best = "", "", "", ""
        if place < len(items):
            stars, film = "★" * int(ratings[place]), offline.features.titles[items[place]]
        if place < len(answer.candidate_ids):
            item = int(answer.candidate_ids[place])
            mark = "· " if item in items else ""
            score, best = f"{answer.rank_scores[place]:.3f}", mark + offline.features.titles[item]
        table.add_row(stars, film, score, best)
    return table


def _print_times(client: RankingClient, user_id: int, items: np.ndarray, console: Console) -> None:
    walls, stages = [], []
    for _ in range(REPEATS):
        started = time.perf_counter()
        answer = client.rank(SCENARIO, user_id, items, top_k=SHOWN, context=CONTEXT)
        walls.append(time.perf_counter() - started)
        stages.append([getattr(answer.message.times, f"{stage}_us") for stage in STAGES])
    table = Table("stage", "median ms", "", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for (stage, what), times in zip(STAGES.items(), zip(*stages)):
        table.add_row(stage, f"{statistics.median(times) / 1000:9.2f}", what)
    seen = f"[bold]{statistics.median(walls) * 1000:9.2f}[/]"
    table.add_row("[bold]client sees[/]", seen, "the stages, gRPC and both ends")
    console.print(Padding(table, (1, 0, 0, 3)))
    plan = answer.message.plan
    console.print(
        f"   {len(items):,} candidates in {plan.slices} slices on {plan.engine} {plan.precision}, {REPEATS} requests",
        f"   bytes copied: {answer.message.bytes_copied}",
        sep="\n", highlight=False,
    )
