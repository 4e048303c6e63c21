"""Traces of calls, where somebody has set them up: with the extra ``otel`` and OpenTelemetry's standard variables."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import structlog
from starlette.types import ASGIApp

from app.config import UpstreamSpec
from app.events.records import RequestEvent
from app.upstream import Upstreams

__all__ = ["Tracing", "open_tracing"]

_log = structlog.stdlib.get_logger(__name__)
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Tracing(Protocol):
    """What a process that traces does besides. One that does not has none of this in its way."""

    def app(self, app: ASGIApp) -> ASGIApp:
        """``app``, each call of ``/v1`` and ``/mcp`` in a span that continues the caller's trace."""
        ...

    def upstreams(self, specs: Sequence[UpstreamSpec], **options: Any) -> Upstreams:
        """Upstreams that are sent the trace of the call, with spans of their own."""
        ...

    def message(
        self, name: str, attributes: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> AbstractContextManager[Callable[[str], None]]:
        """A message of the Model Context Protocol while it is answered, in a span of its own: in the trace that its
        ``_meta`` names, else in that of the call that it came with. What is yielded notes the kind of an error."""
        ...

    def observe(self, event: RequestEvent) -> None:
        """Make spans of what a request did, in the task that answers it."""
        ...

    def shutdown(self) -> None:
        """Send what waits, and no more. Blocks for as long as that takes."""
        ...


def open_tracing(environment: Mapping[str, str] = os.environ) -> Tracing | None:
    """As the environment says: None unless ``OTEL_TRACES_EXPORTER`` names an exporter or an endpoint is set. What
    cannot be had is told in the log; nobody's request fails for it."""
    wanted = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if not wanted and any(environment.get(name) for name in _ENDPOINTS):
        wanted = "otlp"
    if wanted in ("", "none") or environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    try:
        from app.observability.opentelemetry import configured

        return configured(wanted.split(","), environment)
    except (ImportError, ValueError) as error:
        _log.warning("tracing_unavailable", detail=str(error), needs="the extra otel")
        return None
