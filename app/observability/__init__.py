"""What operators see: log lines and metrics."""

from app.observability.logs import configure_logging, log_often
from app.observability.metrics import EventTotals, JudgeTotals, Metrics

__all__ = ["EventTotals", "JudgeTotals", "Metrics", "configure_logging", "log_often"]
