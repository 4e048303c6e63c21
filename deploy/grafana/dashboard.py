"""Generates ``groundlane.json``, the Grafana dashboard, next to this file: ``python deploy/grafana/dashboard.py``."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("groundlane.json")
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_OF = '{job=~"$job"}'
_COLUMNS = 24
_ACTIONS = {"allow": "green", "warn": "yellow", "drop": "orange", "block": "red"}
_LABELS = {"supported": "green", "contradicted": "red", "unverifiable": "yellow", "not_a_claim": "gray"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """``legend`` names the series by their labels, for example ``{{action}}``."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """``unit`` is a Grafana unit, and ``colors`` maps series names to colors."""

    title: str
    about: str
    queries: Sequence[Query]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    stacked: bool = False
    colors: dict[str, str] | None = None


def rate(metric: str, *by: str) -> str:
    """Build the query for the rate of a counter per second."""
    each = f" by ({', '.join(by)})" if by else ""
    return f"sum{each} (rate({metric}{_OF}[$__rate_interval]))"


def share(part: str, whole: str) -> str:
    return f"{part} / clamp_min({whole}, 1e-9)"


def quantiles(metric: str) -> list[Query]:
    """Build the queries for the median, the 95th and the 99th percentile of a histogram."""
    inner = f"sum by (le) (rate({metric}_bucket{_OF}[$__rate_interval]))"
    return [Query(expr=f"histogram_quantile({q / 100}, {inner})", legend=f"p{q}") for q in (50, 95, 99)]


_REQUESTS = rate("groundlane_requests_total")
_BLOCKED = 'sum (rate(groundlane_requests_total{job=~"$job", action="block"}[$__rate_interval]))'
_CLAIMS = 'sum (rate(groundlane_sentences_total{job=~"$job", label!="not_a_claim"}[$__rate_interval]))'
_SUPPORTED = 'sum (rate(groundlane_sentences_total{job=~"$job", label="supported"}[$__rate_interval]))'
_CONTRADICTED = 'sum (rate(groundlane_sentences_total{job=~"$job", label="contradicted"}[$__rate_interval]))'
_HITS, _MISSES = rate("groundlane_judge_cache_hits_total"), rate("groundlane_judge_cache_misses_total")

ROWS: dict[str, Sequence[Panel]] = {
    "Overview": (
        Panel(
            title="Requests",
            about="Requests per second, governed or passed through.",
            queries=[Query(expr=_REQUESTS, legend="requests")],
            unit="reqps",
            kind="stat",
            width=6,
        ),
        Panel(
            title="Blocked",
            about="Share of requests blocked by a policy.",
            queries=[Query(expr=share(_BLOCKED, _REQUESTS), legend="blocked")],
            unit="percentunit",
            kind="stat",
            width=6,
        ),
        Panel(
            title="Supported",
            about="Share of claims supported by the documents.",
            queries=[Query(expr=share(_SUPPORTED, _CLAIMS), legend="supported")],
            unit="percentunit",
            kind="stat",
            width=6,
        ),
        Panel(
            title="Events lost",
            about="Events that neither the database nor the journal accepted. Should stay at 0.",
            queries=[
                Query(expr=f"sum (increase(groundlane_events_dropped_total{_OF}[$__range]))", legend="lost"),
            ],
            kind="stat",
            width=6,
            colors={"lost": "red"},
        ),
    ),
    "Requests": (
        Panel(
            title="Requests by action",
            about="Requests per second by the action taken.",
            queries=[Query(expr=rate("groundlane_requests_total", "action"), legend="{{action}}")],
            unit="reqps",
            stacked=True,
            colors=_ACTIONS,
        ),
        Panel(
            title="Requests by status",
            about="How requests ended. Incomplete: the upstream's reply broke off.",
            queries=[Query(expr=rate("groundlane_requests_total", "status"), legend="{{status}}")],
            unit="reqps",
            stacked=True,
        ),
        Panel(
            title="Open streams",
            about="Streamed replies in progress.",
            queries=[Query(expr=f"sum (groundlane_open_streams{_OF})", legend="streams")],
        ),
        Panel(
            title="Request latency",
            about="From first to last byte.",
            queries=quantiles("groundlane_request_seconds"),
            unit="s",
        ),
        Panel(
            title="Upstream latency",
            about="Time spent on the upstream's reply.",
            queries=quantiles("groundlane_upstream_seconds"),
            unit="s",
        ),
        Panel(
            title="Upstream failures",
            about="Including failures that a retry fixed.",
            queries=[Query(expr=rate("groundlane_upstream_errors_total", "kind"), legend="{{kind}}")],
            unit="ops",
        ),
    ),
    "Grounding": (
        Panel(
            title="Sentences by verdict",
            about="Whether the documents support or contradict them.",
            queries=[Query(expr=rate("groundlane_sentences_total", "label"), legend="{{label}}")],
            unit="ops",
            stacked=True,
            colors=_LABELS,
        ),
        Panel(
            title="Contradicted claims",
            about="Share of claims contradicted by the documents.",
            queries=[Query(expr=share(_CONTRADICTED, _CLAIMS), legend="contradicted")],
            unit="percentunit",
            colors=_LABELS,
        ),
        Panel(
            title="Violations by reason",
            about="Decisions other than allow.",
            queries=[
                Query(
                    expr="sum by (reason_code) "
                    '(rate(groundlane_decisions_total{job=~"$job", action!="allow"}[$__rate_interval]))',
                    legend="{{reason_code}}",
                )
            ],
            unit="ops",
        ),
        Panel(
            title="Violations in shadow",
            about="Decisions other than allow by policies in shadow mode. They have no effect.",
            queries=[
                Query(
                    expr="sum by (reason_code) "
                    '(rate(groundlane_shadow_decisions_total{job=~"$job", action!="allow"}[$__rate_interval]))',
                    legend="{{reason_code}}",
                )
            ],
            unit="ops",
        ),
        Panel(
            title="Claims without a verdict",
            about="By reason: timeout, overload, claim limit, unsupported language.",
            queries=[Query(expr=rate("groundlane_unjudged_total", "reason"), legend="{{reason}}")],
            unit="ops",
        ),
        Panel(
            title="Regenerations",
            about="Replies regenerated from the point where a sentence failed.",
            queries=[Query(expr=rate("groundlane_regenerations_total", "api"), legend="{{api}}")],
            unit="ops",
        ),
        Panel(
            title="Alerts",
            about="Alerts that started or stopped firing, and attempts to send messages about alerts.",
            queries=[
                Query(expr=rate("groundlane_alerts_total", "state"), legend="{{state}}"),
                Query(expr=rate("groundlane_alert_messages_total", "outcome"), legend="message {{outcome}}"),
            ],
            unit="ops",
        ),
    ),
    "Judge": (
        Panel(
            title="Judging time",
            about="Per request.",
            queries=quantiles("groundlane_judge_seconds"),
            unit="s",
        ),
        Panel(
            title="Pairs",
            about="Claim-passage pairs that were scored, failed, or were rejected because the queue was full.",
            queries=[
                Query(expr=rate("groundlane_judge_pairs_total"), legend="scored"),
                Query(expr=rate("groundlane_judge_failed_total"), legend="failed"),
                Query(expr=rate("groundlane_judge_overloaded_total"), legend="rejected"),
            ],
            unit="ops",
            colors={"failed": "red", "rejected": "orange"},
        ),
        Panel(
            title="Batch size and queue",
            about="Pairs per batch, and pairs waiting. Larger batches are more efficient.",
            queries=[
                Query(
                    expr=share(rate("groundlane_judge_pairs_total"), rate("groundlane_judge_batches_total")),
                    legend="per batch",
                ),
                Query(expr=f"sum (groundlane_judge_queue_depth{_OF})", legend="waiting"),
            ],
        ),
        Panel(
            title="Verdict cache: hit rate",
            about="Share of pairs found in the cache.",
            queries=[Query(expr=share(_HITS, f"({_HITS} + {_MISSES})"), legend="hits")],
            unit="percentunit",
        ),
        Panel(
            title="Verdict cache: memory",
            about="Upper bound of the memory used.",
            queries=[Query(expr=f"sum (groundlane_judge_cache_bytes{_OF})", legend="bytes")],
            unit="bytes",
        ),
        Panel(
            title="Verdict cache: evictions",
            about="If many scores are evicted and the hit rate is low, increase GROUNDLANE_JUDGE_CACHE_MB.",
            queries=[Query(expr=rate("groundlane_judge_cache_evictions_total"), legend="evictions")],
            unit="ops",
        ),
    ),
    "LLM judge": (
        Panel(
            title="Calls",
            about="By mode and outcome.",
            queries=[
                Query(expr=rate("groundlane_llm_calls_total", "mode", "outcome"), legend="{{mode}} {{outcome}}"),
            ],
            unit="ops",
            width=6,
        ),
        Panel(
            title="Call latency",
            about="Duration of LLM judge calls.",
            queries=quantiles("groundlane_llm_seconds"),
            unit="s",
            width=6,
        ),
        Panel(
            title="Tokens",
            about="Tokens per second.",
            queries=[Query(expr=rate("groundlane_llm_tokens_total", "kind"), legend="{{kind}}")],
            stacked=True,
            width=6,
        ),
        Panel(
            title="Cost per hour",
            about="For models with known prices.",
            queries=[Query(expr=f"sum (rate(groundlane_llm_cost_usd_total{_OF}[1h])) * 3600", legend="cost")],
            unit="currencyUSD",
            width=6,
        ),
    ),
    "Event log and keys": (
        Panel(
            title="Events",
            about="Events written to the database, journaled, rejected because of their contents, or dropped (lost).",
            queries=[
                Query(expr=rate(f"groundlane_events_{name}_total"), legend=name)
                for name in ("written", "journaled", "rejected", "dropped")
            ],
            unit="ops",
            colors={"written": "green", "journaled": "yellow", "rejected": "orange", "dropped": "red"},
        ),
        Panel(
            title="Pending events",
            about="Events in memory, and bytes in the journal while the database is unavailable.",
            queries=[
                Query(expr=f"sum (groundlane_events_queue_depth{_OF})", legend="events"),
                Query(expr=f"max (groundlane_events_journal_bytes{_OF})", legend="journal bytes"),
            ],
        ),
        Panel(
            title="Requests refused by key",
            about="wrong: missing, unknown or revoked key. rate: over the limit per minute. admin: wrong admin token. "
            "not shared: limits counted per worker because Redis was unavailable.",
            queries=[
                Query(expr=rate("groundlane_keys_refused_total", "reason"), legend="{{reason}}"),
                Query(expr=rate("groundlane_admin_tokens_wrong_total"), legend="admin"),
                Query(expr=rate("groundlane_limits_not_shared_total"), legend="not shared"),
            ],
            unit="ops",
        ),
        Panel(
            title="Response fields left out",
            about="Unknown fields of upstream responses that were left out under a grounding policy.",
            queries=[Query(expr=rate("groundlane_dropped_fields_total", "api", "field"), legend="{{api}} {{field}}")],
            unit="ops",
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    """Build the dashboard in Grafana's import format."""
    numbers, panels, top = count(1), [], 0
    for title, row in ROWS.items():
        panels.append({"id": next(numbers), "type": "row", "title": title, "gridPos": _place(0, top, _COLUMNS, 1)})
        top, left, height = top + 1, 0, 4 if row[0].kind == "stat" else 8
        for panel in row:
            if left + panel.width > _COLUMNS:
                top, left = top + height, 0
            panels.append({"id": next(numbers), "gridPos": _place(left, top, panel.width, height), **_panel(panel)})
            left += panel.width
        top += height
    return {
        "title": "Groundlane",
        "uid": "groundlane",
        "description": "Requests, verdicts, policy decisions, judging and the event log of a Groundlane gateway.",
        "tags": ["groundlane", "llm", "rag"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_DATASOURCE, _JOB]},
        "panels": panels,
    }


_DATASOURCE = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
_JOB = {
    "name": "job",
    "type": "query",
    "label": "Job",
    "datasource": _SOURCE,
    "definition": "label_values(groundlane_requests_total, job)",
    "query": {"query": "label_values(groundlane_requests_total, job)", "refId": "job"},
    "refresh": 2,
    "multi": True,
    "includeAll": True,
    "allValue": ".*",
    "current": {"text": "All", "value": "$__all"},
}


def _place(x: int, y: int, w: int, h: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": w, "h": h}


def _panel(panel: Panel) -> dict[str, Any]:
    custom: dict[str, Any] = {"lineWidth": 1, "fillOpacity": 25 if panel.stacked else 5, "showPoints": "never"}
    if panel.stacked:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    shown = {} if panel.kind == "stat" else {"custom": custom}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": query.expr, "legendFormat": query.legend}
            for number, query in enumerate(panel.queries)
        ],
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, **shown},
            "overrides": [
                {
                    "matcher": {"id": "byName", "options": name},
                    "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}],
                }
                for name, color in (panel.colors or {}).items()
            ],
        },
        "options": _OPTIONS[panel.kind],
    }


_OPTIONS: dict[str, dict[str, Any]] = {
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "graphMode": "area", "colorMode": "value"},
    "timeseries": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
}


def written() -> str:
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(written(), "utf-8")
