"""Alert rules and destinations, in the API's format and as stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, HttpUrl, SecretStr, model_validator

from app.field_types import Line

Key = Annotated[SecretStr, Field(min_length=8, max_length=1_000)]
Metric = Literal[
    "blocked", "contradicted", "unjudged", "judge_errors", "upstream_errors", "trust", "latency_p95_ms", "cost_usd"
]
DestinationKind = Literal["webhook", "slack", "pagerduty"]
PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"

RATIOS = frozenset({"blocked", "contradicted", "unjudged", "judge_errors", "upstream_errors", "trust"})
"""Metrics whose values range from 0 to 1."""


class AlertDocument(BaseModel):
    """An alert rule. It fires while ``metric``, computed over the last ``window_minutes``, is above or below
    ``threshold``."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[Line, Field(description="Unique name")]
    metric: Annotated[Metric, Field(description="The metric to monitor; see the alerts documentation")]
    direction: Literal["above", "below"] = "above"
    threshold: Annotated[
        float,
        Field(
            ge=0,
            le=1e12,
            allow_inf_nan=False,
            description="A number from 0 to 1 for rates; otherwise, milliseconds or US dollars",
        ),
    ]
    window_minutes: Annotated[int, Field(ge=1, le=1_440)] = 15
    min_requests: Annotated[
        int, Field(ge=1, le=1_000_000, description="The rule doesn't fire if the window has fewer requests than this")
    ] = 20
    cooldown_minutes: Annotated[
        int, Field(ge=0, le=1_440, description="Minutes after the rule resolves before it can fire again")
    ] = 15
    agent: Line | None = None
    model: Line | None = None
    policy: Annotated[
        Line | None, Field(description="ID of a policy; only requests that this policy evaluated are counted")
    ] = None
    severity: Literal["critical", "error", "warning", "info"] = "error"
    destinations: Annotated[list[Line], Field(max_length=20, description="IDs of destinations")] = []
    enabled: bool = True

    @model_validator(mode="after")
    def _ratio(self) -> "AlertDocument":
        if self.metric in RATIOS and self.threshold > 1:
            raise ValueError("threshold must be between 0 and 1 for a rate")
        return self


class DestinationDocument(BaseModel):
    """A destination. ``url`` and ``key`` are secrets: they are stored encrypted and never returned.

    ``webhook`` takes a URL and, optionally, a key for signing messages. ``slack`` takes the URL of an incoming webhook.
    ``pagerduty`` takes a routing key and, optionally, the URL of a different service region.
    """

    model_config = ConfigDict(extra="forbid")

    name: Annotated[Line, Field(description="Unique name")]
    kind: DestinationKind
    url: Annotated[SecretStr | None, Field(max_length=2_000)] = None
    key: Key | None = None

    @model_validator(mode="after")
    def _complete(self) -> "DestinationDocument":
        if self.kind == "pagerduty":
            if self.key is None:
                raise ValueError("key: a PagerDuty destination requires a routing key")
        elif self.url is None:
            raise ValueError("url: required")
        if self.url is not None:
            _check_url(self.url.get_secret_value())
        return self

    def access(self) -> Mapping[str, str]:
        """Return the destination's URL and key."""
        found = {"url": PAGERDUTY_URL} if self.kind == "pagerduty" else {}
        for name, value in (("url", self.url), ("key", self.key)):
            if value is not None:
                found[name] = value.get_secret_value()
        return found


def _check_url(text: str) -> None:
    try:
        url = HttpUrl(text)
    except ValueError:
        url = None
    # The message must not repeat the URL, which is a secret.
    if url is None or url.host is None or url.username is not None or url.password is not None:
        raise ValueError("url: must be an http:// or https:// URL without a username or password")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """A stored rule and its state. ``value`` and ``requests`` are from the last check. ``firing_id`` is None unless the
    rule is firing."""

    id: str
    document: AlertDocument
    created_at: datetime
    updated_at: datetime
    checked_at: datetime | None
    value: float | None
    requests: int | None
    firing_id: str | None
    resolved_at: datetime | None

    @property
    def lacks_requests(self) -> bool:
        """Whether the rule can't fire because its window had fewer requests than ``min_requests``."""
        return self.requests is not None and self.requests < self.document.min_requests

    def to_dict(self) -> dict[str, Any]:
        """Return the rule in the admin API's format."""
        return {
            "id": self.id,
            **self.document.model_dump(),
            "state": "firing" if self.firing_id else "ok",
            "firing_id": self.firing_id,
            "value": self.value,
            "requests": self.requests,
            "checked_at": self.checked_at,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertDestination:
    """A destination without its secrets."""

    id: str
    name: str
    kind: DestinationKind
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFiring:
    """A period during which a rule fired. ``resolved_at`` is None while the rule is still firing. ``rule`` is a copy of
    the rule as it was when it fired."""

    id: str
    rule_id: str
    rule: Mapping[str, Any]
    value: float
    requests: int
    started_at: datetime
    resolved_at: datetime | None
    resolved_value: float | None

    @property
    def summary(self) -> str:
        """A one-sentence summary."""
        rule = self.rule
        metric, value = rule["metric"], shown(rule["metric"], self.value)
        return (
            f"{rule['name']}: {metric} is {value}, {rule['direction']} {shown(metric, rule['threshold'])}"
            f" (over {rule['window_minutes']} minutes, {self.requests:,} requests)"
        )


def shown(metric: str, value: float | None) -> str:
    """Format a metric's value for display."""
    if value is None:
        return "unknown"
    if metric in RATIOS:
        return f"{value * 100:.1f}%"
    return f"${value:,.2f}" if metric == "cost_usd" else f"{value:,.0f} ms"
