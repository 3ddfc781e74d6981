"""Stage 8: the answer, packed. Arrays travel as the little-endian bytes the native call left them in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lambda_svc.proto import ranking_pb2 as pb

__all__ = ["build"]


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
    _add_reasons(response, result)
    response.plan.CopyFrom(plan)
    response.plan.slices = result.slices
    gather_us, lookup_us, run_us, topk_us = result.times_us
    times = response.times
    times.gather_us, times.lookup_us, times.run_us, times.topk_us = gather_us, lookup_us, run_us, topk_us
    return response


def _add_reasons(response: pb.RankResponse, result) -> None:
    counts = (
        ("unknown_user", int(result.unknown_user)),
        ("unknown_candidates", result.unknown_candidates),
        ("nan_scores", result.nan_scores),
        ("deadline", result.missing),
    )
    for code, count in counts:
        if count:
            response.reasons.add(code=code, count=count)
