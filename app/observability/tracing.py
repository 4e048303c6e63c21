"""Optional tracing, enabled by the extra ``otel`` and OpenTelemetry's standard environment variables."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import structlog
from starlette.types import ASGIApp

from app.config import UpstreamSpec
from app.events.records import RecordedRequest
from app.upstream import UpstreamClient

__all__ = ["Tracing", "open_tracing"]

_log = structlog.stdlib.get_logger(__name__)
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Tracing(Protocol):
    """The hooks that create traces. If tracing is disabled, requests run no tracing code."""

    def app(self, app: ASGIApp) -> ASGIApp:
        """Wrap ``app`` so that each call to ``/v1`` or ``/mcp`` gets a span that continues the caller's trace."""
        ...

    def upstreams(self, specs: Sequence[UpstreamSpec], **options: Any) -> UpstreamClient:
        """Build an UpstreamClient that propagates the trace and creates a span for each request."""
        ...

    def message(
        self, name: str, attributes: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> AbstractContextManager[Callable[[str], None]]:
        """Open a span for handling an MCP message. The span belongs to the trace that the message's ``_meta`` names or,
        if it names none, to the trace of the call. Yields a function that records the type of an error."""
        ...

    def observe(self, record: RecordedRequest) -> None:
        """Create spans from a request's record. Call this in the task that handles the request."""
        ...

    def shutdown(self) -> None:
        """Export pending spans and stop. Blocks until done."""
        ...


def open_tracing(environment: Mapping[str, str] = os.environ) -> Tracing | None:
    """Set up tracing from the environment. Return None if ``OTEL_TRACES_EXPORTER`` names no exporter and no endpoint is
    set. If tracing can't be set up, log a warning and return None."""
    wanted = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if not wanted and any(environment.get(name) for name in _ENDPOINTS):
        wanted = "otlp"
    if wanted in ("", "none") or environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    try:
        from app.observability.opentelemetry import configured

        return configured(wanted.split(","), environment)
    except (ImportError, ValueError) as error:
        _log.warning("tracing_unavailable", detail=str(error), hint="install the extra otel")
        return None
