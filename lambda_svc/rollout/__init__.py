"""Rollouts: a new version serves a growing share of users, or is scored beside for nobody, judged against stable."""

from lambda_svc.rollout.document import Limits, Rollout, RolloutFiles
from lambda_svc.rollout.rollouts import Rollouts

__all__ = ["Limits", "Rollout", "RolloutFiles", "Rollouts"]
