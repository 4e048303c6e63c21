"""Logs, metrics and traces."""

from app.observability.logs import configure_logging, log_often
from app.observability.metrics import EventTotals, JudgeTotals, Metrics

__all__ = ["EventTotals", "JudgeTotals", "Metrics", "configure_logging", "log_often"]
