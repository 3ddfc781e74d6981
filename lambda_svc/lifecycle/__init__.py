"""How a model version comes to serve: taken in, loaded, checked against its golden scores."""

from lambda_svc.lifecycle.auto_engine import settle
from lambda_svc.lifecycle.golden import check_golden
from lambda_svc.lifecycle.intake import take_in
from lambda_svc.lifecycle.load import load_model, open_cluster, signature_of, user_signature_of

__all__ = ["check_golden", "load_model", "open_cluster", "settle", "signature_of", "take_in",
           "user_signature_of"]
