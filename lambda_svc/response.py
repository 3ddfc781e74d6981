"""Stage 8: the answer, packed. Arrays travel as the little-endian bytes the native call left them in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from lambda_svc.proto import ranking_pb2 as pb

__all__ = ["build", "build_user"]


def build(request_id: str, result, heads: Sequence[str], plan: pb.Plan, level: int = 0) -> pb.RankResponse:
    """Packs a native RankResult (arrays [k], heads [heads, k]) for the wire."""
    response = pb.RankResponse(
        request_id=request_id,
        candidate_ids=result.candidate_ids.tobytes(),
        positions=result.positions.tobytes(),
        rank_scores=result.rank_scores.tobytes(),
        flags=result.flags.tobytes(),
        level=level,
        bytes_copied=result.bytes_copied,
        missing_positions=np.arange(result.scored, result.scored + result.missing, dtype=np.uint32).tobytes(),
    )
    for head, scores in zip(heads, result.heads):
        response.heads.add(head=head, scores=scores.tobytes())
    for source, asked, answered in result.coverage:
        response.coverage.add(source=source, asked=asked, answered=answered)
    _add_reasons(response, _reasons(result))
    response.plan.CopyFrom(plan)
    response.plan.slices = result.slices
    _set_times(response.times, result)
    return response


def build_user(request_id: str, result, plan: pb.Plan, kept: bool, state_bytes: int,
               ttl_s: float) -> pb.PrecomputeUserResponse:
    """Packs what computing the user side alone counted; sources that it did not ask are left out."""
    response = pb.PrecomputeUserResponse(request_id=request_id, kept=kept, state_bytes=state_bytes,
                                         ttl_ms=int(1e3 * ttl_s) if kept else 0)
    for source, asked, answered in result.coverage:
        if asked:
            response.coverage.add(source=source, asked=asked, answered=answered)
    unkept = not kept and not result.ids_unanswered
    _add_reasons(response, (("unknown_user", int(result.unknown_user)), ("rows_unavailable", result.ids_unanswered),
                            ("no_room", int(unkept))))
    response.plan.CopyFrom(plan)
    _set_times(response.times, result)
    return response


def _set_times(times: pb.StageTimes, result) -> None:
    times.gather_us, times.lookup_us, times.run_us, times.topk_us = result.times_us


def _reasons(result) -> tuple[tuple[str, int], ...]:
    return (
        ("unknown_user", int(result.unknown_user)),
        ("unknown_candidates", result.unknown_candidates),
        ("nan_scores", result.nan_scores),
        ("deadline", result.missing),
    )


def _add_reasons(response: pb.RankResponse | pb.PrecomputeUserResponse, counts: Iterable[tuple[str, int]]) -> None:
    for code, count in counts:
        if count:
            response.reasons.add(code=code, count=count)
