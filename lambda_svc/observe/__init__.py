"""Metrics, status and request logs of the ranking service, beside the request path."""

from lambda_svc.observe.logs import set_up as set_up_logs
from lambda_svc.observe.observation import Observation
from lambda_svc.observe.observer import Call, Observer

__all__ = ["Call", "Observation", "Observer", "set_up_logs"]
