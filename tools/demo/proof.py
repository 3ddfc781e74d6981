"""Step 6: every held-out row scored through the service, with its moment's history, against the training framework."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from lambda_svc.client import RankingClient
from models.features import TestRequest
from models.metrics import auc, ndcg
from tools.demo.offline import Offline, progress_bar
from tools.demo.serving import SCENARIO
from tools.demo.text import heading

__all__ = ["prove"]

TOLERANCE = 1e-6  # on probabilities, float32


@dataclass(frozen=True)
class Scored:
    """Held-out rows in one order: served and offline probabilities float32 [n] by head, and what they are about."""

    served: dict[str, np.ndarray]
    offline: dict[str, np.ndarray]
    known: np.ndarray  # bool [n]: every id of the row was in the training vocabulary
    liked: np.ndarray
    users: np.ndarray
    bytes_copied: int


def prove(client: RankingClient, offline: Offline, console: Console) -> bool:
    """Prints the comparison; True when served and offline agree."""
    heading(console, 6, "Proof: served scores against the training framework's own")
    scored = _score(client, offline, console)
    differences = {
        head: np.abs(scored.served[head].astype(np.float64) - scored.offline[head]) for head in scored.served
    }
    console.print(
        "   Held-out rows, with the history of their moment, served and by Keras:",
        f"   holds when no probability is further off than {TOLERANCE:g}.",
        sep="\n", highlight=False,
    )
    table = Table("", "served", "offline", "difference", "", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    holds = [
        _row_of_differences(table, "known ids", differences, scored.known),
        _row_of_differences(table, "unknown ids", differences, ~scored.known),
        _row_of_metric(table, "AUC liked", scored, lambda s: auc(scored.liked, s)),
        _row_of_metric(table, "NDCG@10 per user", scored, lambda s: ndcg(scored.liked, s, scored.users, 10)),
        scored.bytes_copied == 0,
    ]
    table.add_row("bytes copied", f"{scored.bytes_copied}", "", "", _mark(holds[-1]))
    console.print(Padding(table, (0, 0, 0, 3)))
    return all(holds)


def _score(client: RankingClient, offline: Offline, console: Console) -> Scored:
    requests = offline.features.requests
    served: dict[str, list[np.ndarray]] = {}
    copied = 0
    with progress_bar(console) as bar:
        for request in bar.track(requests, description="requests"):
            answer = client.rank(
                SCENARIO,
                request.user_id,
                request.item_ids,
                user={name: values.tolist() for name, values in request.user.items()},
                context=request.context,
            )
            order = np.argsort(answer.positions)
            for head, scores in answer.heads.items():
                served.setdefault(head, []).append(scores[order])
            copied += answer.message.bytes_copied
    rows = np.concatenate([request.rows for request in requests])
    return Scored(
        served={head: np.concatenate(parts) for head, parts in served.items()},
        offline=offline.trained.scores(rows),
        known=np.concatenate([_known(request, offline) for request in requests]),
        liked=np.concatenate([request.labels["liked"] for request in requests]),
        users=np.concatenate([np.full(len(request.rows), request.user_id) for request in requests]),
        bytes_copied=copied,
    )


def _known(request: TestRequest, offline: Offline) -> np.ndarray:
    """Whether candidate and history are all in the training vocabulary of films, bool [n]."""
    films = offline.trained.vocabularies["item"].ids
    return np.isin(request.item_ids, films) & bool(np.isin(request.user["history_item"], films).all())


def _row_of_differences(table: Table, name: str, differences: dict[str, np.ndarray], rows: np.ndarray) -> bool:
    worst = max(float(np.max(values[rows], initial=0.0)) for values in differences.values())
    table.add_row(f"{name}, {rows.sum():,} rows", "", "", f"{worst:.1e}", _mark(worst <= TOLERANCE))
    return worst <= TOLERANCE


def _row_of_metric(table: Table, name: str, scored: Scored, metric) -> bool:
    served, offline = metric(scored.served["liked"]), metric(scored.offline["liked"])
    equal = abs(served - offline) <= TOLERANCE
    table.add_row(name, f"{served:.6f}", f"{offline:.6f}", f"{abs(served - offline):.1e}", _mark(equal))
    return equal


def _mark(holds: bool) -> str:
    return "[green]holds[/]" if holds else "[bold red]does not hold[/]"
