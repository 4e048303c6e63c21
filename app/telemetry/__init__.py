"""What operators see: log lines and metrics."""

from app.telemetry.logs import configure_logging
from app.telemetry.metrics import Metrics

__all__ = ["Metrics", "configure_logging"]
