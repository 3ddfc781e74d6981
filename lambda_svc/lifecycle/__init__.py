"""How model versions come to serve and go: taken in, loaded, proven, warmed, switched to, let go of."""

from lambda_svc.lifecycle.auto_engine import settle
from lambda_svc.lifecycle.golden import check_golden
from lambda_svc.lifecycle.intake import take_in
from lambda_svc.lifecycle.keeper import Keeper, VersionStatus
from lambda_svc.lifecycle.load import load_model, open_cluster, signature_of, user_signature_of

__all__ = ["Keeper", "VersionStatus", "check_golden", "load_model", "open_cluster", "settle", "signature_of", "take_in",
           "user_signature_of"]
