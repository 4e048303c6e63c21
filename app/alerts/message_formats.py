"""Formats alert notifications for each kind of destination."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import orjson

from app.alerts.rules import AlertFiring, DestinationKind, shown
from app.alerts.webhook_signature import signature_headers

Event = Literal["firing", "resolved", "test"]
_SLACK_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_LONGEST_SUMMARY = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertMessage:
    """A message to POST: its body and any headers other than the content type."""

    body: bytes
    headers: Mapping[str, str]


def message(
    kind: DestinationKind, access: Mapping[str, str], delivery_id: str, event: Event, firing: AlertFiring
) -> AlertMessage:
    """Build the message about ``event``. ``access`` holds the destination's secrets."""
    match kind:
        case "slack":
            return AlertMessage(body=orjson.dumps({"text": _slack(event, firing)}), headers={})
        case "pagerduty":
            return AlertMessage(body=orjson.dumps(_pagerduty(access["key"], event, firing)), headers={})
    body = orjson.dumps({"id": delivery_id, "type": f"alert.{event}", **_details(event, firing)})
    return AlertMessage(body=body, headers=signature_headers(access.get("key"), body))


def sample_firing(name: str, now: datetime) -> AlertFiring:
    """Return sample data for a test message."""
    rule = {"name": name, "metric": "blocked", "direction": "above", "threshold": 0.1, "window_minutes": 15}
    return AlertFiring(
        id="fir_test",
        rule_id="alr_test",
        rule=rule | {"severity": "info", "agent": None, "model": None, "policy": None},
        value=0.25,
        requests=40,
        started_at=now,
        resolved_at=None,
        resolved_value=None,
    )


def _details(event: Event, firing: AlertFiring) -> dict[str, Any]:
    rule = firing.rule
    return {
        "summary": _summary(event, firing),
        "alert_id": firing.rule_id,
        "firing_id": firing.id,
        **{name: rule[name] for name in ("name", "metric", "direction", "threshold", "window_minutes", "severity")},
        **{name: rule[name] for name in ("agent", "model", "policy")},
        "value": firing.value,
        "requests": firing.requests,
        "started_at": firing.started_at,
        "resolved_at": firing.resolved_at,
        "resolved_value": firing.resolved_value,
    }


def _summary(event: Event, firing: AlertFiring) -> str:
    match event:
        case "test":
            return f"{firing.rule['name']}: a test message from Groundlane. No alert is firing."
        case "resolved":
            value = shown(firing.rule["metric"], firing.resolved_value)
            return f"Resolved: {firing.rule['name']}: {firing.rule['metric']} is {value}"
    return firing.summary


def _slack(event: Event, firing: AlertFiring) -> str:
    sign = {"firing": ":rotating_light:", "resolved": ":white_check_mark:", "test": ":wave:"}[event]
    return f"{sign} {_summary(event, firing).translate(_SLACK_ESCAPES)}"


def _pagerduty(key: str, event: Event, firing: AlertFiring) -> dict[str, Any]:
    """Build an event for the PagerDuty Events API v2. A test message opens an incident of severity ``info``, which must
    be resolved manually."""
    base = {"routing_key": key, "dedup_key": firing.id}
    if event == "resolved":
        return base | {"event_action": "resolve"}
    payload = {
        "summary": _summary(event, firing)[:_LONGEST_SUMMARY],
        "source": "groundlane",
        "severity": firing.rule["severity"],
        "timestamp": firing.started_at,
        "custom_details": _details(event, firing),
    }
    return base | {"event_action": "trigger", "client": "Groundlane", "payload": payload}
